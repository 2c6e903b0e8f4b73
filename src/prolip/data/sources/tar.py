"""Shards on disk: WebDataset tars whose samples can be read in any order."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob, has_magic
from itertools import islice
from pathlib import Path

import numpy as np
from braceexpand import braceexpand

from prolip.checks import join_names
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import compute_fingerprint, require_captions
from prolip.data.sources.sample_fields import SampleFields, require_unique_extensions
from prolip.data.sources.tar_format import read_at
from prolip.data.sources.tar_index import TarIndex, load_index
from prolip.progress import progress_bar

CAPTIONS = ("txt",)
IMAGES = ("jpg", "jpeg", "png", "webp")

MAX_SHARDS = 1_000_000
MAX_OPEN = 32
INDEXERS = 8
"""Threads: while one waits for the disk, others scan."""

URL = re.compile(r"[a-z][a-z0-9+.-]*://|pipe:", re.IGNORECASE)


class TarShards:
    """Tars on disk as a Source.

    pattern:  a path, a glob, a range in braces ("data/{00000..00012}.tar"), or a list of them.
    captions: where they are, by ending: "txt" (the file is one), "txt:lines" (each line is), "json:caption" or
              "json:meta.captions" (a field that is a text or a list of texts). All that are found count.
              (): none are wanted, as with data for classification.
    images:   endings; the first of them that a sample has is its picture.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = CAPTIONS,
        images: Sequence[str] = IMAGES,
    ) -> None:
        self.name = describe_pattern(pattern)
        self.picks = SampleFields(captions, images)
        self.paths = tuple(expand(pattern))
        opened = _open_all(self.paths)
        self._indexes = [index for index, _ in opened]
        self._stamps = [stamp for _, stamp in opened]
        self._ends = np.cumsum([len(index) for index in self._indexes])
        self._files = FileCache()
        require_captions(self)

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(index) for index in self._indexes], np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name}: there is no sample {index}, only 0 to {len(self) - 1}")
        shard = int(np.searchsorted(self._ends, index, side="right"))
        tar, path = self._indexes[shard], self.paths[shard]
        number = index - int(self._ends[shard]) + len(tar)
        if tar.is_damage(number):
            raise BadSampleError("broken shard", path, tar.damage)
        key = tar.key(number)
        where = f"{path}: {key}"
        files = tar.files(number)
        require_unique_extensions((ending for ending, _, _ in files), where)
        file = self._files.open(path, self._stamps[shard])
        contents = {ending: file.read(at, size) for ending, at, size in files}
        try:
            return self.picks.sample(key, where, contents)
        except BadSampleError as error:
            if tar.hint and error.record.reason in ("no image", "no caption"):
                raise BadSampleError(error.record.reason, where, f"{error.record.detail}; {tar.hint}") from None
            raise

    def fingerprint(self) -> str:
        shards = zip(self.paths, self._stamps, self._indexes, strict=True)
        facts = [ascii((os.path.basename(path), size, len(tar))) for path, (size, _), tar in shards]
        return compute_fingerprint(*facts, *self.picks.facts())

    def files(self) -> list[Path]:
        return [Path(path) for path in self.paths]


class FileCache:
    """The last few files that were read, open. Each process has its own; threads may share one."""

    def __init__(self) -> None:
        self._forget()

    def open(self, path: str, stamp: tuple[int, int]) -> CachedFile:
        """stamp: the size and the time of change that the file must still have."""
        if self._process != os.getpid():  # a fork: another thread of the parent may have held the lock
            self._forget()
        with self._lock:
            file = self._files.pop(path, None) or CachedFile(path, stamp)
            self._files[path] = file
            if len(self._files) > MAX_OPEN:
                self._files.popitem(last=False)
        return file

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._files: OrderedDict[str, CachedFile] = OrderedDict()

    def __reduce__(self) -> tuple[type[FileCache], tuple[()]]:
        return FileCache, ()


class CachedFile:
    """Closed when its last user has let go of it: a thread may still read what another one has pushed out."""

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        self.path, self._stamp = path, stamp
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BadSampleError("missing file", path, "it was there when the data was opened") from None

    def read(self, at: int, size: int) -> bytes:
        content = read_at(self._descriptor, size, at)
        facts = os.fstat(self._descriptor)  # after reading: a writer sets the time before it changes a byte
        if len(content) < size or (facts.st_size, facts.st_mtime_ns) != self._stamp:
            raise BadSampleError("broken shard", self.path, "it has changed since the data was opened")
        return content

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def expand(pattern: str | Sequence[str]) -> list[str]:
    """The files that patterns name, in order, each once; those of a glob sorted."""
    paths: list[str] = []
    missing: list[str] = []
    for one in [pattern] if isinstance(pattern, str) else pattern:
        if URL.match(one):
            raise ValueError(f"a {one.split(':')[0]}: address is no file on disk; open it as a TarStream")
        for path in [one] if os.path.exists(one) else expand_braces(os.path.expanduser(one)):
            found = sorted(glob(path, recursive=True)) if _is_glob(path) else [path] * os.path.exists(path)
            paths += found
            missing += [] if found else [path]
    if missing:
        what = "no file matches this" if _is_glob(missing[0]) else "there is no such file"
        others = (
            f", and {len(missing) - 1} more of the shards that were named are missing" if missing[1:] else ""
        )
        raise FileNotFoundError(f"{missing[0]}: {what}{others}")
    if not paths:
        raise FileNotFoundError("no shard was named")
    for path in paths:
        if not os.path.isfile(path):
            hint = f"; its tars are {os.path.join(path, '*.tar')}" if os.path.isdir(path) else ""
            raise ValueError(f"{path}: this is not a file{hint}")
    return list(dict.fromkeys(paths))


def expand_braces(pattern: str) -> list[str]:
    """All that "{00..12}" and "{a,b}" stand for, as in a shell. A backslash is a backslash."""
    for start, end in re.findall(r"\{(-?\d+)\.\.(-?\d+)", pattern):
        if len(start) > 18 or len(end) > 18 or abs(int(end) - int(start)) >= MAX_SHARDS:
            raise ValueError(f"{pattern}: the range names more than {MAX_SHARDS:,} shards")
    try:
        names = list(islice(braceexpand(pattern, escape=False), MAX_SHARDS + 1))
    except ValueError:
        raise ValueError(f"{pattern}: a brace is opened and not closed, or the other way round") from None
    if len(names) > MAX_SHARDS:
        raise ValueError(f"{pattern}: the braces name more than {MAX_SHARDS:,} shards")
    return names


def describe_pattern(pattern: str | Sequence[str]) -> str:
    return pattern if isinstance(pattern, str) else join_names(list(pattern), 2)


def _is_glob(path: str) -> bool:
    return has_magic(path) and not os.path.exists(path)


def _open_all(paths: Sequence[str]) -> list[tuple[TarIndex, tuple[int, int]]]:
    opened = []
    pool = ThreadPoolExecutor(min(INDEXERS, len(paths)))
    try:
        with progress_bar("indexing", len(paths), "shards") as advance:
            for one in pool.map(load_index, paths):
                opened.append(one)
                advance(1)
    finally:
        pool.shutdown(cancel_futures=True)  # or an interrupt would wait for thousands
    return opened
