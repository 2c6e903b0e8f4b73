"""Cleaning captions, exactly as the public release does."""

from __future__ import annotations

import html
import string
from typing import Literal, get_args

import ftfy

from prolip.checks import describe

Cleaning = Literal["canonicalize", "whitespace", "lower"]
"""canonicalize: lower case, no ASCII punctuation; lower: lower case; whitespace: only runs of it become one space."""

# The letters stand in the table too: a letter that is missing costs an exception inside `str.translate`.
_WITHOUT_PUNCTUATION = {code: code for code in range(128)} | str.maketrans(
    "_", " ", string.punctuation.replace("_", "")
)


def clean(text: str, how: Cleaning) -> str:
    """Repair broken Unicode and HTML entities, then the cleaning that is asked for.

    >>> clean("It&amp;#39;s a  RED_car!", "canonicalize")
    'its a red car'
    >>> clean("It&amp;#39;s a  RED_car!", "lower")
    "it's a red_car!"
    """
    if not isinstance(text, str):
        raise TypeError(f"a text to clean must be a str, not {describe(text)}")
    text = _repaired(text)
    if how == "canonicalize":
        return " ".join(text.translate(_WITHOUT_PUNCTUATION).lower().split())
    if how == "lower":
        return " ".join(text.split()).lower()
    if how == "whitespace":
        return " ".join(text.split())
    raise ValueError(f"cleaning {how!r} is not one of {get_args(Cleaning)}")


def _repaired(text: str) -> str:
    """Mojibake, ligatures, curly quotes, control characters, entities.

    None of these can be made of printable ASCII without an ampersand, nor by ASCII whitespace around it: most captions
    skip ftfy, which takes ten times as long as all the rest.
    """
    plain = text.strip()
    if text.isascii() and plain.isprintable() and "&" not in plain:
        return plain
    return html.unescape(html.unescape(ftfy.fix_text(text))).strip()
