"""Cleaning of captions, exactly as in the ProLIP release."""

from __future__ import annotations

import html
import string
from typing import Literal, get_args

import ftfy

from prolip.tensor_checks import describe_type

Cleaning = Literal["canonicalize", "whitespace", "lower"]
"""canonicalize: lower case, no ASCII punctuation; lower: lower case; whitespace: only runs of it become one space."""

# Letters are in the table too: a missing one costs an exception inside `str.translate`.
_WITHOUT_PUNCTUATION = {code: code for code in range(128)} | str.maketrans(
    "_", " ", string.punctuation.replace("_", "")
)


def clean_text(text: str, cleaning: Cleaning) -> str:
    """Repair broken Unicode and HTML entities, then clean.

    >>> clean_text("It&amp;#39;s a  RED_car!", "canonicalize")
    'its a red car'
    >>> clean_text("It&amp;#39;s a  RED_car!", "lower")
    "it's a red_car!"

    Args:
        text: A caption.
        cleaning: "canonicalize": lower case, underscores become spaces, other ASCII punctuation is removed; "lower":
            lower case; "whitespace": neither. All three strip the text and collapse runs of whitespace to one space.

    Returns:
        The cleaned caption; "" if nothing is left.

    Raises:
        TypeError: If the text is not a str.
        ValueError: If the cleaning is none of the three.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text to clean must be a str, not {describe_type(text)}")
    text = _repair_unicode(text)
    if cleaning == "canonicalize":
        return " ".join(text.translate(_WITHOUT_PUNCTUATION).lower().split())
    if cleaning == "lower":
        return " ".join(text.split()).lower()
    if cleaning == "whitespace":
        return " ".join(text.split())
    raise ValueError(f"cleaning {cleaning!r} is not one of {get_args(Cleaning)}")


def _repair_unicode(text: str) -> str:
    """Repair mojibake, ligatures, curly quotes, control characters and HTML entities, and strip the text.

    Printable ASCII without an ampersand has none of these, whatever ASCII whitespace is around it. So most captions
    skip ftfy, which takes ten times as long as the rest of the cleaning.
    """
    stripped = text.strip()
    if text.isascii() and stripped.isprintable() and "&" not in stripped:
        return stripped
    return html.unescape(html.unescape(ftfy.fix_text(text))).strip()
