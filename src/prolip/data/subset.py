"""A part of a source, evenly spread over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prolip.checks import require_positive_int
from prolip.data.sample import Sample
from prolip.data.source import FileBacked, Source, compute_fingerprint, require_index


def evenly_spaced(total: int, most: int) -> np.ndarray:
    """At most so many numbers from 0 to total - 1, evenly spread, int64, increasing."""
    return np.unique(np.linspace(0, total - 1, min(most, total)).round().astype(np.int64))


class Subset:
    """`count` samples of a source, evenly spread over it, as a source of their own."""

    def __init__(self, source: Source, count: int) -> None:
        require_positive_int(count, "limit", maximum=2**40)
        self.source, self.name = source, source.name
        self.numbers = evenly_spaced(len(source), count)

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(self.numbers)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        return self.source.read(int(self.numbers[index]))

    def fingerprint(self) -> str:
        return compute_fingerprint("spread", self.source.fingerprint(), len(self))

    def files(self) -> Sequence[Path]:
        return self.source.files() if isinstance(self.source, FileBacked) else ()
