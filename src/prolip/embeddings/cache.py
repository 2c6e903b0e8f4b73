"""Cache of embeddings: a folder of embedding data sets, bounded in size; the least recently used are removed.

    CACHE/MODEL/DATA            images of a source: hashes of the model, and of the data with the images' transform
    CACHE/MODEL/texts-TEXTS     texts: hash of the list of texts
    CACHE/MODEL/DATA/.lock      locked while a process uses the data set; its modification time is that of the last use

A data set is removed as a whole: it is renamed first, so that a killed removal leaves no half data set.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.header import HEADER_FILE, DatasetHeader
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.embeddings.schema import make_part_table, read_encoded_part, read_verified_gaussians
from prolip.files import remove_temporary_files
from prolip.gaussian import Gaussian
from prolip.storage.folders import LocalStorage

Part = TypeVar("Part")
DEFAULT_SIZE = "20 GB"
"""Largest size of the cache, unless PROLIP_CACHE_SIZE or an argument gives another."""
SIZE_VARIABLE = "PROLIP_CACHE_SIZE"
LOCK_FILE = ".lock"
LOCK_TRIES = 100
"""How often a data set is locked anew because another process has just removed it."""
DATASET_NAME = re.compile(r"(texts-)?[0-9a-f]{16}")
"""Names of the folders of data sets. Nothing else in the folder of a cache is ever removed."""
MODEL_NAME = re.compile(r"[0-9a-f]{16}")
REMOVED_PREFIX = ".removed."
"""Prefix of data sets that are being removed; another process finishes what a killed one has left."""
RECENT_SECONDS = 3600
"""Where files can't be locked, a data set that was used within this time counts as in use."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """A data set of a cache.

    Attributes:
        folder: Its folder.
        size: Bytes of its files.
        last_used: When it was last opened, in seconds since the epoch.
        in_use: Whether a process has it open.
        header: Model, data and options; None if the header is missing or of another version.
    """

    folder: Path
    size: int
    last_used: float
    in_use: bool
    header: DatasetHeader | None


@dataclass(frozen=True, kw_only=True)
class CachedDataset:
    """A data set of the cache that is open, and locked against removal.

    Attributes:
        dataset: The data set; any of its parts may be missing.
        written: Indices of the parts that were written since it was opened.
    """

    dataset: EmbeddingDataset
    written: list[int] = field(default_factory=list)

    def read_images(self, index: int, indices: range) -> EncodedPart | None:
        """Read the images of a part, with its checksums and its digest verified.

        Args:
            index: Index of the part.
            indices: Indices of the samples that it must have, good and bad together.

        Returns:
            The part; None if it is missing, damaged or of other samples.
        """
        part = self._try_read(index, read_encoded_part)
        return part if part is not None and sorted([*part.indices, *part.errors]) == list(indices) else None

    def read_texts(self, index: int, texts: Sequence[str]) -> Gaussian | None:
        """Read the Gaussians of a part's texts, with its checksums and its digest verified.

        Args:
            index: Index of the part.
            texts: The n texts that it must have.

        Returns:
            Gaussian (n, D); None if the part is missing, damaged or of other texts.
        """

        def read(table: Any) -> Gaussian | None:
            z = read_verified_gaussians(table).check("cached texts")
            return z if table["caption"].to_pylist() == list(texts) else None

        return self._try_read(index, read)

    def write_images(self, index: int, part: EncodedPart) -> None:
        """Write the images of a part atomically.

        Args:
            index: Index of the part.
            part: Its samples, with float32 Gaussians.

        Raises:
            OSError: The disk is full, or the cache can't be written.
        """
        self._write(index, part, None)

    def write_texts(self, index: int, texts: Sequence[str], z: Gaussian) -> None:
        """Write the Gaussians of a part's texts atomically.

        Args:
            index: Index of the part.
            texts: n texts.
            z: Gaussian (n, D), float32.

        Raises:
            OSError: The disk is full, or the cache can't be written.
        """
        start = index * self.dataset.header.part_size
        indices = list(range(start, start + len(texts)))
        metadata = [
            SampleMetadata(str(number), (text,), {}) for number, text in zip(indices, texts, strict=True)
        ]
        self._write(index, EncodedPart([], indices, metadata, [None] * len(texts), {}), z)

    def _write(self, index: int, part: EncodedPart, texts: Gaussian | None) -> None:
        """Write a part; `texts` are the Gaussians of its captions, None for a data set of images."""
        table = make_part_table(self.dataset.header, index, part, texts)
        write_part(self.dataset.storage, index, table)
        self.written.append(index)

    def _try_read(self, index: int, read: Callable[[Any], Part | None]) -> Part | None:
        """What `read` makes of a part's table; None if the part is missing or damaged: it is computed again."""
        try:
            return read(self.dataset.read_part(index))
        except (ValueError, TypeError, KeyError, OSError):
            return None


@dataclass(frozen=True, kw_only=True)
class EmbeddingCache:
    """A folder of embedding data sets.

    Attributes:
        folder: The folder. It need not exist.
        max_size: Bytes. When a data set was written, others are removed until all together are not larger, the least
            recently used first; never one that a process has open. None: `get_max_size`.
    """

    folder: Path
    max_size: int | None = None

    @contextmanager
    def open(self, name: str, header: DatasetHeader) -> Iterator[CachedDataset]:
        """Open a data set of the cache, which is created if need be, and lock it against removal.

        Args:
            name: Name of its folder, which must match `DATASET_NAME`.
            header: Header that it must have; the name of the model and of the data may differ.

        Yields:
            The data set.

        Raises:
            OSError: There is no such data set, and it can't be created.
        """
        folder = self.folder / header.identity / name
        limit = self._get_limit()  # now: after hours of work it is too late for an invalid setting
        with _locked(folder):
            storage = LocalStorage(folder)
            cached = CachedDataset(dataset=EmbeddingDataset(storage, _write_header(storage, header)))
            try:
                yield cached
            finally:
                if cached.written:
                    with suppress(
                        OSError
                    ):  # the embeddings are needed now; the next run removes what is too much
                        self.shrink(limit)

    def list_entries(self) -> list[CacheEntry]:
        """All data sets of the cache, the least recently used first."""
        folders = [folder for model in self._list_models() for folder in _list_folders(model, DATASET_NAME)]
        return sorted(_iter_entries(folders), key=lambda entry: (entry.last_used, str(entry.folder)))

    def shrink(self, max_size: int | None = None) -> list[CacheEntry]:
        """Remove data sets until the cache is small enough, the least recently used first.

        What a killed removal has left is removed too.

        Args:
            max_size: Bytes; None: `max_size` of the cache. 0: all data sets are removed that are not in use.

        Returns:
            The data sets that were removed.
        """
        limit = self._get_limit() if max_size is None else max_size
        for model in self._list_models():
            for leftover in model.glob(f"{REMOVED_PREFIX}*"):
                shutil.rmtree(leftover, ignore_errors=True)
        entries, removed = self.list_entries(), []
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if 0 < limit >= total:
                break
            if _remove(entry):
                total -= entry.size
                removed.append(entry)
        return removed

    def _get_limit(self) -> int:
        """Largest size of the cache, in bytes."""
        return get_max_size() if self.max_size is None else self.max_size

    def _list_models(self) -> list[Path]:
        """Folders of the models."""
        return _list_folders(self.folder, MODEL_NAME)


def get_max_size() -> int:
    """The largest size of the cache, in bytes: PROLIP_CACHE_SIZE, or `DEFAULT_SIZE`."""
    return parse_size(os.environ.get(SIZE_VARIABLE) or DEFAULT_SIZE, SIZE_VARIABLE)


def parse_size(text: str, name: str) -> int:
    """Parse a number of bytes.

    Args:
        text: Such as "20 GB", "500MB" or "1000000"; a GB is 10^9 bytes.
        name: Name of the setting, for the message.

    Returns:
        Bytes.

    Raises:
        ValueError: It is something else.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{name} must be a size such as "20 GB" or "500 MB", not {text!r}')
    return int(float(match[1]) * UNITS[match[2].upper()])


def _write_header(storage: LocalStorage, header: DatasetHeader) -> DatasetHeader:
    """The header of a data set of the cache: that of its folder, or, if this is missing or another, `header`.

    Names of the model and of the data may differ: the same data can be opened under another path.
    """
    try:
        existing = DatasetHeader.read(storage)
    except (ValueError, OSError):  # missing, damaged or of another version
        existing = None
    if existing is not None and _is_same(existing, header):
        with suppress(OSError):
            remove_temporary_files(storage.path)  # of killed runs
        return existing
    header.write(storage)
    return header


def _is_same(existing: DatasetHeader, header: DatasetHeader) -> bool:
    """Whether two headers differ at most in the names of the model and the data."""
    names = {name: getattr(header, name) for name in ("model", "data")}
    return DatasetHeader(**{**vars(existing), **names}) == header


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a data set against removal by another process, and note that it is used now.

    The folder is created. Where that or a lock is impossible (a read-only disk), the data set is used without a lock.
    """
    file = _open_lock(folder)
    try:
        yield
    finally:
        if file is not None:
            file.close()  # which unlocks it


def _open_lock(folder: Path) -> BinaryIO | None:
    """The open and locked lock file of a data set; None if it can't be created. Waits while the folder is removed."""
    for _ in range(LOCK_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open(folder / LOCK_FILE, "ab")  # noqa: SIM115 (the caller closes it)
        except FileNotFoundError:  # removed between the two calls, or a place without folders such as /proc
            continue
        except OSError:
            return None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        with suppress(OSError):
            # The folder may have been removed before it was locked: then another file has this name, or none.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK_FILE)):
                os.utime(folder / LOCK_FILE)
                return file
        file.close()
    return None


def _remove(entry: CacheEntry) -> bool:
    """Remove a data set, unless a process has it open; returns whether it was removed."""
    folder = entry.folder
    removed = folder.with_name(f"{REMOVED_PREFIX}{folder.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(folder / LOCK_FILE, "ab") as file:
            if not _try_lock_alone(file, entry.last_used):
                return False
            folder.rename(removed)
    except OSError:  # removed by another process, or of another user
        return False
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()  # of the model, if it was its last data set
    return True


def _try_lock_alone(file: BinaryIO, last_used: float) -> bool:
    """Lock a lock file for removal; returns False if a process uses the data set, or may do so."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return time.time() - last_used > RECENT_SECONDS
    return True


def _iter_entries(folders: Iterable[Path]) -> Iterator[CacheEntry]:
    """Describe data sets; those that another process removes meanwhile are skipped."""
    for folder in folders:
        with suppress(OSError):
            lock = folder / LOCK_FILE
            last_used = (lock if lock.exists() else folder).stat().st_mtime
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            yield CacheEntry(
                folder=folder,
                size=size,
                last_used=last_used,
                in_use=_is_in_use(lock, last_used),
                header=_try_read_header(folder),
            )


def _is_in_use(lock: Path, last_used: float) -> bool:
    """Whether a process has the data set of this lock file open."""
    if not lock.exists():
        return False
    with open(lock, "rb") as file:
        return not _try_lock_alone(file, last_used)


def _try_read_header(folder: Path) -> DatasetHeader | None:
    """The header of a data set; None if it is missing or can't be read."""
    try:
        return DatasetHeader.from_json((folder / HEADER_FILE).read_bytes(), str(folder / HEADER_FILE))
    except (ValueError, OSError):
        return None


def _list_folders(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """The folders in a folder whose names match."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if names.fullmatch(path.name) and path.is_dir()]
