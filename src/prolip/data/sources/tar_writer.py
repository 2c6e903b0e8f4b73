"""Writing shards: the same samples give the same bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

SampleFiles = dict[str, bytes]
"""The files of a sample, by ending."""


def write_tar(path: Path, samples: Iterable[tuple[str, SampleFiles]]) -> None:
    """A tar of (key, files): key.ending each, without time or owner. (PAX: USTAR, but for names that it can't hold.)"""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for key, members in samples:
            for ending, content in members.items():
                entry = tarfile.TarInfo(f"{key}.{ending}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
