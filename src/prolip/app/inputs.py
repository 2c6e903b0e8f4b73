"""Inputs of requests: texts and images within limits, each refused with one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from prolip.checks import escape_controls
from prolip.preprocessing.images import EmptyImageError, TooManyPixelsError, read_image

MAX_PIXELS = 40_000_000
"""Largest image that is decoded: 120 MB of RGB."""
MAX_IMAGES = 16
"""Images of one request."""
MAX_EXAMPLES = 200
"""Example images of one request, to learn prompt weights from."""
MAX_TEXTS = 32
"""Captions of one request that are compared."""
MAX_CAPTIONS = 1000
"""Captions of one request that are searched."""
MAX_TEXT_LENGTH = 2000
"""Characters of a caption."""
MAX_PROMPTS = 1000
"""Class names times templates of one request."""
NAME_LENGTH = 40
"""Characters of a file name that are shown."""
KNOWN_SENTENCES = {
    TooManyPixelsError: f"it has more than {MAX_PIXELS:,} pixels. Make it smaller.",
    EmptyImageError: "the file is empty.",
}


class InputError(ValueError):
    """A request that can't be answered. The message is for the page: it holds no path of this machine."""


@dataclass(frozen=True)
class NamedImage:
    """An image of a request or of a collection.

    Attributes:
        name: The name of its file, or what it shows.
        image: RGB.
    """

    name: str
    image: Image.Image


def parse_lines(text: str | None, what: str, maximum: int) -> list[str]:
    """Parse a text with one entry per line.

    Args:
        text: The text; None and blank lines count for nothing.
        what: What an entry is, for messages.
        maximum: Largest number of entries.

    Returns:
        The entries, each once.

    Raises:
        InputError: There are too many, or one is too long.
    """
    return check_texts([line.strip() for line in (text or "").splitlines() if line.strip()], what, maximum)


def check_texts(texts: Sequence[str], what: str, maximum: int) -> list[str]:
    """Check the number and the length of texts.

    Args:
        texts: The texts.
        what: What one of them is, for messages.
        maximum: Largest number of them.

    Returns:
        The texts, each once.

    Raises:
        InputError: There are too many, one is too long, or one holds what no tokenizer reads.
    """
    unique = list(dict.fromkeys(texts))
    if len(unique) > maximum:
        raise InputError(f"There are {len(unique):,} {what}s. At most {maximum:,} are possible.")
    for number, text in enumerate(unique, start=1):
        check_text(text, f"{what} {number}")
    return unique


def check_text(text: str, what: str) -> str:
    """Check the length of a text.

    Args:
        text: The text.
        what: Which one it is, for messages.

    Returns:
        The text.

    Raises:
        InputError: It is too long, or holds a NUL character or half of a surrogate pair.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise InputError(
            f"The {what} has {len(text):,} characters. At most {MAX_TEXT_LENGTH:,} are possible."
        )
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"The {what} holds a character that is not text.")
    return text


def read_uploads(paths: Sequence[str | Path], maximum: int = MAX_IMAGES) -> list[NamedImage]:
    """Read image files that were uploaded.

    Args:
        paths: Paths of the files, which the server has chosen.
        maximum: Largest number of images.

    Returns:
        The images.

    Raises:
        InputError: There are too many, or one can't be read.
    """
    if len(paths) > maximum:
        raise InputError(f"There are {len(paths)} images. At most {maximum} are possible.")
    return [decode_image(Path(path).read_bytes(), Path(path).name) for path in paths]


def decode_image(content: bytes, name: str) -> NamedImage:
    """Decode the content of an image file.

    Args:
        content: The bytes of the file.
        name: Its name, as the user gave it.

    Returns:
        The image.

    Raises:
        InputError: It can't be decoded, or has too many pixels.
    """
    name = shorten_name(name)
    try:
        return NamedImage(name, read_image(content, max_pixels=MAX_PIXELS))
    except (ValueError, OSError) as error:
        reason = next(
            (sentence for kind, sentence in KNOWN_SENTENCES.items() if isinstance(error, kind)),
            "it is damaged, or not an image file.",
        )
        raise InputError(f"{name} can't be read: {reason}") from None


def shorten_name(name: str) -> str:
    """Shorten the name of a file for a label.

    Args:
        name: A name, perhaps with folders before it.

    Returns:
        Its last part, at most `NAME_LENGTH` characters, without control characters.
    """
    last = escape_controls(name.replace("\\", "/").rsplit("/", 1)[-1]) or "image"
    return last if len(last) <= NAME_LENGTH else f"{last[: NAME_LENGTH - 9]}…{last[-8:]}"
