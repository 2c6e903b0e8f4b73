"""Random numbers as a pure function of integers: the same on every machine and in every process."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from operator import index
from typing import TypeVar

T = TypeVar("T")

_WORDS = struct.Struct("<16I")  # a digest of 64 bytes as 16 integers
_SPAN = 2**32  # number of values of an integer


class RandomDraws:
    """A random stream seeded by integers (seed, index, ...): BLAKE2b of them and a counter, 32 bits at a time.

    NumPy's and Python's generators take longer to seed than a scene takes to draw, and may change with their version.

    >>> RandomDraws(1, 2).randbelow(100) == RandomDraws(1, 2).randbelow(100)
    True
    """

    def __init__(self, *numbers: int) -> None:
        """numbers: The integers that seed the stream; equal ones give equal draws."""
        self._key = repr(tuple(map(index, numbers))).encode()  # accepts NumPy integers
        self._block = 0
        self._unused: list[int] = []

    def uint32(self) -> int:
        """Uniform on 0 .. 2^32 - 1; takes the next 32 bits of the stream."""
        if not self._unused:
            digest = hashlib.blake2b(self._key + b"/%d" % self._block).digest()
            self._unused = list(_WORDS.unpack(digest))
            self._block += 1
        return self._unused.pop()

    def randbelow(self, limit: int) -> int:
        """Uniform on 0 .. limit - 1, to within limit / 2^32."""
        return self.uint32() * limit // _SPAN

    def uniform(self) -> float:
        """Uniform on [0, 1), in steps of 2^-32."""
        return self.uint32() / _SPAN

    def bernoulli(self, probability: float) -> bool:
        """True with this probability."""
        return self.uint32() < probability * _SPAN

    def choice(self, values: Sequence[T]) -> T:
        """One of the values, all equally likely."""
        return values[self.randbelow(len(values))]

    def categorical(self, weights: Sequence[float]) -> int:
        """Draw an index.

        Args:
            weights: Probability of each index; they add up to 1.

        Returns:
            An index from 0.
        """
        remainder = self.uniform()
        for i, weight in enumerate(weights):
            remainder -= weight
            if remainder < 0:
                return i
        return max(i for i, weight in enumerate(weights) if weight > 0)  # the sum was below 1 by rounding

    def sample(self, limit: int, count: int) -> list[int]:
        """Draw distinct integers.

        Args:
            limit: They are drawn from 0 .. limit - 1.
            count: How many, at most `limit`.

        Returns:
            `count` integers in random order.
        """
        pool = list(range(limit))
        return [pool.pop(self.randbelow(len(pool))) for _ in range(count)]
