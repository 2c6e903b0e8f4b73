"""Damage to bytes and texts: flips, cuts, repeats, extreme numbers, deep nesting."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

EXTREMES = (
    b"0", b"-1", b"1e400", b"-1e400", b"NaN", b"Infinity", b"9" * 40, b"2147483648", b"18446744073709551616",
    b"1e-400", b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"', b"'", b"%s",
)  # fmt: skip
"""What replaces a number or a word."""
TEXTS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", "\u202e".encode(), "\U0001f600".encode(), b"\r\n", b"\\", b'"',
    b"=1+1", b"../../x", b"pipe:touch pwned", b"a" * 5000, b"(" * 2000, b"[" * 100_000,
)  # fmt: skip
"""What is inserted."""
WORD = re.compile(rb"-?\d+(?:\.\d+)?|[A-Za-z_]{3,}")
MAX_DAMAGES = 3
"""Damages of one input, at most."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Damage an input in one to MAX_DAMAGES ways.

    Args:
        content: A valid input.
        rng: Decides how.

    Returns:
        The damaged input; now and then it is still valid.
    """
    for _ in range(rng.randint(1, MAX_DAMAGES)):
        content = rng.choice(DAMAGES)(content, rng)
    return content


def _flip_bits(content: bytes, rng: random.Random) -> bytes:
    """Flip one to eight bits."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 8) if damaged else 0):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _cut_end(content: bytes, rng: random.Random) -> bytes:
    """Drop the end, as an interrupted copy does."""
    return content[: rng.randint(0, len(content))]


def _cut_middle(content: bytes, rng: random.Random) -> bytes:
    """Drop a span."""
    start, length = rng.randint(0, len(content)), rng.randint(1, 64)
    return content[:start] + content[start + length :]


def _repeat_span(content: bytes, rng: random.Random) -> bytes:
    """Repeat a span once or many times."""
    start = rng.randint(0, len(content))
    end = start + rng.randint(1, 64)
    return content[:end] + content[start:end] * rng.choice((1, 2, 100)) + content[end:]


def _overwrite(content: bytes, rng: random.Random) -> bytes:
    """Overwrite a span with zeros, ones or random bytes."""
    start, length = rng.randint(0, len(content)), rng.randint(1, 16)
    span = rng.choice((b"\x00" * length, b"\xff" * length, rng.randbytes(length)))
    return content[:start] + span + content[start + length :]


def _insert_text(content: bytes, rng: random.Random) -> bytes:
    """Insert an odd text."""
    start = rng.randint(0, len(content))
    return content[:start] + rng.choice(TEXTS) + content[start:]


def _replace_word(content: bytes, rng: random.Random) -> bytes:
    """Replace a number or a word by an extreme one, or by another word of the input."""
    words = list(WORD.finditer(content[:100_000]))
    if not words:
        return _flip_bits(content, rng)
    word = rng.choice(words)
    new = rng.choice((rng.choice(EXTREMES), rng.choice(words)[0]))
    return content[: word.start()] + new + content[word.end() :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip_bits, _cut_end, _cut_middle, _repeat_span, _overwrite, _insert_text, _replace_word, _replace_word,
)  # fmt: skip
