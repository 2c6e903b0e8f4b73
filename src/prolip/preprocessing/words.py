"""Words of captions: how texts are split into them, and the record of those that a model met in training."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from prolip.files import atomic_write
from prolip.preprocessing.text_cleaning import Cleaning, clean_text

WORDS_FILE = "words.txt"
"""Name of the record in a folder of a model or a run."""
MAX_WORDS = 100_000
"""Words that a record holds. A model that met more has no record: it may know any word."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Characters of scripts that put no spaces between words; each counts as a word."""
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[^\W\d_])+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")


def split_words(text: str, cleaning: Cleaning) -> list[str]:
    """Split a text into its words, as a record holds them: runs of letters, in lower case and without accents.

    Digits and punctuation are no words. A possessive 's is left out.

    >>> split_words("Grandmother's café, 1968", "lower")
    ['grandmother', 'cafe']

    Args:
        text: A caption, not cleaned.
        cleaning: Cleaning of captions by the model's tokenizer.

    Returns:
        The words in the order of the text; a word may occur several times.
    """
    text = clean_text(text, cleaning).casefold()
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize(
            "NFC", "".join(character for character in marked if not unicodedata.combining(character))
        )
    return _WORD.findall(_POSSESSIVE.sub("", text))


def collect_words(captions: Iterable[str], cleaning: Cleaning) -> frozenset[str] | None:
    """Collect the words of captions, for `model.training_words`.

    Args:
        captions: All captions that the model is trained on.
        cleaning: `model.config.text.tokenizer.cleaning`.

    Returns:
        The different words; None if there are more than MAX_WORDS.
    """
    words: set[str] = set()
    for caption in captions:
        words.update(split_words(caption, cleaning))
        if len(words) > MAX_WORDS:
            return None
    return frozenset(words)


def write_words(path: Path, words: Iterable[str] | None) -> None:
    """Write a record, a word per line, atomically; or remove the one that is there.

    Args:
        path: The file.
        words: The words; None: no record.
    """
    if words is None:
        path.unlink(missing_ok=True)
        return
    text = "".join(f"{word}\n" for word in sorted(words))
    atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_words(path: Path) -> frozenset[str] | None:
    """Read a record.

    Args:
        path: The file.

    Returns:
        The words; None if there is no such file.

    Raises:
        ValueError: The file is damaged.
    """
    if not path.exists():
        return None
    try:
        return frozenset(path.read_text(encoding="utf-8").split())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is damaged: it is no text in UTF-8 ({error.reason}). Copy or download it again, or remove it: "
            "then searches don't say which words the model never met"
        ) from None
