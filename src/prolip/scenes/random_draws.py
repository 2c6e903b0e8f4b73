"""Random numbers that are a pure function of some whole numbers: the same on every machine, in every process."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from operator import index
from typing import TypeVar

T = TypeVar("T")

_WORDS = struct.Struct("<16I")
_SPAN = 2**32


class Draws:
    """A stream of draws from (seed, index, ...): BLAKE2 of the numbers and a counter, 32 bits at a time.

    NumPy's and Python's generators take longer to seed than a scene takes to draw, and may change with their version.

    >>> Draws(1, 2).below(100) == Draws(1, 2).below(100)
    True
    """

    def __init__(self, *numbers: int) -> None:
        self._key = repr(tuple(map(index, numbers))).encode()  # NumPy's integers count as numbers
        self._block = 0
        self._left: list[int] = []

    def word(self) -> int:
        """Uniform on 0 .. 2^32 - 1."""
        if not self._left:
            digest = hashlib.blake2b(self._key + b"/%d" % self._block).digest()
            self._left = list(_WORDS.unpack(digest))
            self._block += 1
        return self._left.pop()

    def below(self, limit: int) -> int:
        """Uniform on 0 .. limit - 1, to within limit / 2^32."""
        return self.word() * limit // _SPAN

    def uniform(self) -> float:
        """Uniform on [0, 1), in steps of 2^-32."""
        return self.word() / _SPAN

    def chance(self, probability: float) -> bool:
        return self.word() < probability * _SPAN

    def choice(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def weighted(self, weights: Sequence[float]) -> int:
        """A number from 0, with probabilities that add up to 1."""
        rest = self.uniform()
        for i, weight in enumerate(weights):
            rest -= weight
            if rest < 0:
                return i
        return max(i for i, weight in enumerate(weights) if weight > 0)

    def sample(self, limit: int, count: int) -> list[int]:
        """`count` different numbers of 0 .. limit - 1, in random order."""
        pool = list(range(limit))
        return [pool.pop(self.below(len(pool))) for _ in range(count)]
