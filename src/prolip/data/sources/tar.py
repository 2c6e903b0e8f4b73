"""TarShards: WebDataset shards on disk, whose samples can be read in any order."""

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
from prolip.data.source import compute_fingerprint, require_usable_sample
from prolip.data.sources.sample_fields import SampleFields, require_unique_extensions
from prolip.data.sources.tar_format import read_at
from prolip.data.sources.tar_index import TarIndex, load_index
from prolip.progress import progress_bar
from prolip.storage.addresses import is_remote, resolve_local_path

DEFAULT_CAPTIONS = ("txt",)
DEFAULT_IMAGES = ("jpg", "jpeg", "png", "webp")
"""Fields of captions and extensions of images, see `SampleFields`."""

MAX_SHARDS = 1_000_000
"""Shards that a range in braces may have: more are a typing error."""
MAX_OPEN_FILES = 32
"""Files that a source keeps open, in each process."""
INDEX_THREADS = 8
"""Threads that scan tars: while one waits for the disk, others scan."""


class TarShards:
    """Tars on disk as a Source.

    A damaged tar is read up to the damage; everything after it is one bad sample ("broken shard"), at the end of the
    shard.

    Args:
        pattern: a path, a glob, a range in braces ("data/{00000..00012}.tar"), or a list of them.
        captions, images: see `SampleFields`.

    Raises:
        FileNotFoundError: If a path or a glob matches nothing.
        ValueError: If no sample has an image and captions where they are looked for.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = DEFAULT_CAPTIONS,
        images: Sequence[str] = DEFAULT_IMAGES,
    ) -> None:
        """List the tars, load or make their indexes, and read some samples to check where captions and images are."""
        self.name = describe_pattern(pattern)
        self.fields = SampleFields(captions, images)
        self.paths = tuple(expand_paths(pattern))
        loaded = _load_indexes(self.paths)
        self._indexes = [index for index, _ in loaded]
        self._stamps = [stamp for _, stamp in loaded]  # (size in bytes, mtime in ns) of each tar
        self._ends = np.cumsum([len(index) for index in self._indexes])
        self._files = FileCache()
        require_usable_sample(self)

    @property
    def chunks(self) -> np.ndarray:
        return np.array([len(index) for index in self._indexes], np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`; the last index of a damaged shard is its "broken shard" error."""
        if not 0 <= index < len(self):
            raise IndexError(
                f"{self.name}: sample index {index} is out of range: there are {len(self)} samples"
            )
        shard = int(np.searchsorted(self._ends, index, side="right"))
        tar, path = self._indexes[shard], self.paths[shard]
        index_in_shard = index - (int(self._ends[shard]) - len(tar))
        if tar.is_damage_entry(index_in_shard):
            raise BadSampleError("broken shard", path, tar.damage)
        key = tar.key(index_in_shard)
        location = f"{path}: {key}"
        files = tar.files(index_in_shard)
        require_unique_extensions((extension for extension, _, _ in files), location)
        file = self._files.open(path, self._stamps[shard])
        contents = {extension: file.read(offset, size) for extension, offset, size in files}
        try:
            return self.fields.make_sample(key, location, contents)
        except BadSampleError as error:
            if tar.hint and error.record.reason in ("no image", "no caption"):
                raise BadSampleError(
                    error.record.reason, location, f"{error.record.detail}; {tar.hint}"
                ) from None
            raise

    def fingerprint(self) -> str:
        """Return a digest of names, sizes and numbers of samples of the tars, and of the fields."""
        shards = zip(self.paths, self._stamps, self._indexes, strict=True)
        described = [ascii((os.path.basename(path), size, len(tar))) for path, (size, _), tar in shards]
        return compute_fingerprint(*described, *self.fields.describe())

    def files(self) -> list[Path]:
        return [Path(path) for path in self.paths]


class FileCache:
    """The files that were read last, open. Each process has its own; threads may share one."""

    def __init__(self) -> None:
        self._reset()

    def open(self, path: str, stamp: tuple[int, int]) -> CachedFile:
        """Open a file, or return it if it is open; may drop the one that was not used for longest.

        Args:
            path: path of the file.
            stamp: the size (bytes) and modification time (ns) that it must still have when it is read.

        Returns:
            The open file.

        Raises:
            BadSampleError: If the file no longer exists.
        """
        if self._process != os.getpid():  # forked: another thread of the parent may have held the lock
            self._reset()
        with self._lock:
            file = self._files.pop(path, None) or CachedFile(path, stamp)
            self._files[path] = file
            if len(self._files) > MAX_OPEN_FILES:
                self._files.popitem(last=False)
        return file

    def _reset(self) -> None:
        """Forget all files, and start with a new lock in this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._files: OrderedDict[str, CachedFile] = OrderedDict()

    def __reduce__(self) -> tuple[type[FileCache], tuple[()]]:
        """Pickle as an empty cache: open files and locks can't be sent to another process."""
        return FileCache, ()


class CachedFile:
    """An open file, closed with the last reference: a thread may still read what another one has evicted.

    Args:
        path: path of the file.
        stamp: the size (bytes) and modification time (ns) that it must have whenever it is read.
    """

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        self.path, self._stamp = path, stamp
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BadSampleError("missing file", path, "it existed when the data was opened") from None

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes.

        Args:
            offset: offset of the first byte.
            size: number of bytes.

        Returns:
            Exactly `size` bytes.

        Raises:
            BadSampleError: If the file has changed since the data was opened.
        """
        content = read_at(self._descriptor, size, offset)
        # After reading: a writer that changes a byte has changed the modification time before.
        status = os.fstat(self._descriptor)
        if len(content) < size or (status.st_size, status.st_mtime_ns) != self._stamp:
            raise BadSampleError("broken shard", self.path, "it has changed since the data was opened")
        return content

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def expand_paths(pattern: str | Sequence[str]) -> list[str]:
    """List the files that patterns match.

    Args:
        pattern: a path or file:// address, a glob, a range in braces, or a list of them.

    Returns:
        Paths in order, each once; those of a glob sorted. None looks like an address.

    Raises:
        FileNotFoundError: If a path or a glob matches nothing.
        ValueError: If one is an address or not a file.
    """
    paths: list[str] = []
    missing: list[str] = []
    for one_pattern in [pattern] if isinstance(pattern, str) else pattern:
        if is_remote(one_pattern):
            scheme = one_pattern.split(":")[0]
            raise ValueError(f"a {scheme}: address is not a file on disk. Open it as a TarStream.")
        one_pattern = resolve_local_path(one_pattern)
        # A file may have braces in its name.
        exists = os.path.exists(one_pattern)
        for path in [one_pattern] if exists else expand_braces(os.path.expanduser(one_pattern)):
            matches = [path] if os.path.exists(path) else []
            if _is_glob(path):
                matches = sorted(glob(path, recursive=True))
            paths += matches
            missing += [] if matches else [path]
    if missing:
        problem = "no file matches" if _is_glob(missing[0]) else "no such file"
        others = f"; {len(missing) - 1} more shards are missing" if missing[1:] else ""
        raise FileNotFoundError(f"{missing[0]}: {problem}{others}")
    if not paths:
        raise FileNotFoundError("no shards were given: the list of patterns is empty")
    for path in paths:
        if not os.path.isfile(path):
            hint = f". For the tars in it, use {os.path.join(path, '*.tar')}" if os.path.isdir(path) else ""
            raise ValueError(f"{path}: not a file{hint}")
    # A file may be named "pipe:command.tar". It must not be read as that address when it is opened.
    return list(dict.fromkeys(f"./{path}" if is_remote(path) else path for path in paths))


def expand_braces(pattern: str) -> list[str]:
    """Expand "{00..12}" and "{a,b}" as a shell does, except that a backslash is not special.

    Args:
        pattern: a path or an address, with or without braces.

    Returns:
        The names, in order.

    Raises:
        ValueError: If the braces are not balanced, or there are more than a million names.
    """
    for start, end in re.findall(r"\{(-?\d+)\.\.(-?\d+)", pattern):
        if len(start) > 18 or len(end) > 18 or abs(int(end) - int(start)) >= MAX_SHARDS:
            raise ValueError(f"{pattern}: the range has more than {MAX_SHARDS:,} shards")
    try:
        names = list(islice(braceexpand(pattern, escape=False), MAX_SHARDS + 1))
    except ValueError:
        raise ValueError(f"{pattern}: the braces are not balanced") from None
    if len(names) > MAX_SHARDS:
        raise ValueError(f"{pattern}: the braces have more than {MAX_SHARDS:,} shards")
    return names


def describe_pattern(pattern: str | Sequence[str]) -> str:
    """Format a pattern for messages.

    Args:
        pattern: one pattern, or a list of them.

    Returns:
        The pattern; of a list the first two, and how many more there are.
    """
    return pattern if isinstance(pattern, str) else join_names(list(pattern), 2)


def _is_glob(path: str) -> bool:
    """Whether a path has wildcards, and is not the name of a file itself."""
    return has_magic(path) and not os.path.exists(path)


def _load_indexes(paths: Sequence[str]) -> list[tuple[TarIndex, tuple[int, int]]]:
    """`load_index` of all tars, in threads, with a progress bar: (index, (size in bytes, mtime in ns)) of each."""
    loaded = []
    pool = ThreadPoolExecutor(min(INDEX_THREADS, len(paths)))
    try:
        with progress_bar("indexing", len(paths), "shards") as advance:
            for index_and_stamp in pool.map(load_index, paths):
                loaded.append(index_and_stamp)
                advance(1)
    finally:
        pool.shutdown(cancel_futures=True)  # otherwise Ctrl-C would wait for thousands of scans
    return loaded
