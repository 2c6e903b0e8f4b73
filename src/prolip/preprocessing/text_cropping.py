"""Text crops: contiguous spans of a caption's words, used as ordinary, more general captions of the same image."""

from __future__ import annotations

import re
import unicodedata

import torch

from prolip.checks import require_fraction
from prolip.preprocessing.augmentation import draw_bool, draw_int, draw_uniform
from prolip.tensor_checks import describe_type

UNSPACED = (
    "\u0e01-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # iteration marks, kana, half-width kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
"""Characters of scripts that are written without spaces, as ranges of a regular expression."""
UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""Matches a character of such a script, or a run of other characters between whitespace."""


def crop_text(text: str, generator: torch.Generator) -> str:
    """Crop a text to a random contiguous span of its words.

    Words are separated by whitespace. Each character of a script that is written without spaces (Chinese, Japanese,
    Thai, Lao, Burmese, Khmer) is a word of its own, together with the marks that combine with it. What has no letter
    and no digit, such as a dash or a full stop between spaces, is not a word: it stays between words, and is never an
    end of a crop. Of n words, a crop has k with probability ln((k + 1) / k) / ln n, k = 1 .. n - 1 (log-uniform), and
    all spans of k words are equally likely.

    Args:
        text: A caption.
        generator: CPU generator; two numbers are drawn from it, or none if the text is unchanged.

    Returns:
        A substring of the text that begins and ends with a word; a text of fewer than two words unchanged.

    Raises:
        TypeError: If the text is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"a text to crop must be a str, not {describe_type(text)}")
    words = find_words(text)
    if len(words) < 2:
        return text
    # floor(n^u) is k for ln k <= u ln n < ln(k + 1); the minimum is for rounding at u close to 1.
    length = min(int(len(words) ** draw_uniform(0.0, 1.0, generator)), len(words) - 1)
    first = draw_int(len(words) - length + 1, generator)
    return text[words[first][0] : words[first + length - 1][1]]


def draw_text_view(text: str, crop_fraction: float, generator: torch.Generator) -> str:
    """Crop a text or leave it whole, by chance.

    Args:
        text: A caption.
        crop_fraction: Probability of a crop, 0 to 1.
        generator: CPU generator; nothing is drawn from it if `crop_fraction` is 0.

    Returns:
        A crop of `crop_text`, or the whole text.
    """
    require_fraction(crop_fraction, "crop_fraction")
    if not crop_fraction or not draw_bool(crop_fraction, generator):
        return text
    return crop_text(text, generator)


def find_words(text: str) -> list[tuple[int, int]]:
    """Find the words of a text, as `crop_text` counts them.

    Args:
        text: Any text.

    Returns:
        (start, end) of each word, positions in the text, in order.
    """
    units: list[tuple[int, int]] = []
    for match in UNIT.finditer(text):
        start, end = match.span()
        if units and units[-1][1] == start and unicodedata.category(text[start]).startswith("M"):
            start = units.pop()[0]  # a combining mark belongs to the character before it
        units.append((start, end))
    return [(start, end) for start, end in units if any(map(str.isalnum, text[start:end]))]
