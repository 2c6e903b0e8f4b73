"""Index of the samples of a tar: offsets and sizes; cached on disk, because a scan reads every header."""

from __future__ import annotations

import json
import os
from array import array
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prolip.data.source import compute_fingerprint
from prolip.data.sources.tar_format import BLOCK, FileReader, TarDamageError, decode_name, iter_members
from prolip.files import atomic_write, get_cache_folder

ARRAY_NAMES = ("blocks", "sizes", "extension_numbers", "starts", "keys", "key_ends")
"""Fields of a TarIndex that are arrays."""
INDEX_VERSION = 3
"""Version of the cached files: one of another version is made again."""

HINT_SCATTERED = (
    "keys are repeated in this shard, but the files of a sample must be adjacent: use tar --sort=name"
)
HINT_LINK = "{!r} is a link, which is not read: use tar -h --hard-dereference"


@dataclass(frozen=True, slots=True, eq=False)
class TarIndex:
    """Where the files of S samples are in a tar; M files in all. Arrays only: no Python object per sample.

    blocks:   uint32 (M,): where the data begins, in blocks of 512 bytes.
    sizes:    uint32 (M,): bytes of data.
    extension_numbers: unsigned integer (M,): index into `extensions`.
    starts:   int64 (S + 1,): index of each sample's first file; the last is M.
    prefix:   common beginning of all keys.
    keys:     uint8: the rest of all keys, concatenated.
    key_ends: int64 (S + 1,): key i is at key_ends[i] to key_ends[i + 1] of `keys`.
    extensions: all extensions in the tar, in lower case.
    damage:   message of what ends the tar early, "" if it is complete.
    hint:     why samples may lack files, "" if the tar shows no reason.
    """

    blocks: np.ndarray
    sizes: np.ndarray
    extension_numbers: np.ndarray
    starts: np.ndarray
    prefix: bytes
    keys: np.ndarray
    key_ends: np.ndarray
    extensions: tuple[str, ...]
    damage: str = ""
    hint: str = ""

    def __len__(self) -> int:
        """Samples, plus one that stands for the damage, if any."""
        return len(self.starts) - 1 + bool(self.damage)

    def is_damage_entry(self, number: int) -> bool:
        """Return whether index `number` is no sample, but the last entry, which stands for the damage."""
        return number == len(self.starts) - 1

    def key(self, number: int) -> str:
        """Return the key of the sample of index `number`."""
        rest = self.keys[self.key_ends[number] : self.key_ends[number + 1]]
        return decode_name(self.prefix + rest.tobytes())

    def files(self, number: int) -> list[tuple[str, int, int]]:
        """Find the files of a sample in the tar.

        Args:
            number: index of the sample in the tar, from 0.

        Returns:
            (extension, offset of the data, size) of each file; offset and size in bytes.
        """
        members = slice(self.starts[number], self.starts[number + 1])
        columns = (self.extension_numbers, self.blocks, self.sizes)
        extension_numbers, blocks, sizes = (column[members].tolist() for column in columns)
        return [
            (self.extensions[extension_number], block * BLOCK, size)
            for extension_number, block, size in zip(extension_numbers, blocks, sizes, strict=True)
        ]


def scan_tar(descriptor: int) -> TarIndex:
    """Make the index of an open tar on disk, from its headers.

    A damaged tar is not an error: the index ends at the damage, with a message in `damage`.

    Args:
        descriptor: descriptor of the open file; it is neither moved nor closed.

    Returns:
        The index of its complete samples.

    Raises:
        OSError: If the disk fails.
    """
    size = os.fstat(descriptor).st_size
    reader = FileReader(descriptor, size)
    extensions: dict[bytes, int] = {}
    blocks, sizes, extension_numbers, starts = array("I"), array("I"), array("I"), array("Q")
    keys, links = list[bytes](), list[bytes]()
    num_complete, damage = 0, ""  # num_complete: samples of which all files were seen
    try:
        if size > 2**32 * BLOCK:
            raise TarDamageError("a shard of more than 2 TiB", 0)  # `blocks` are uint32
        for member in iter_members(reader, links):
            if member is None:
                num_complete = len(keys)
                continue
            if member.is_first:
                num_complete = len(keys)
                starts.append(len(blocks))
                keys.append(member.key)
            blocks.append(reader.offset // BLOCK)
            sizes.append(member.size)
            extension_numbers.append(extensions.setdefault(member.extension, len(extensions)))
    except TarDamageError as error:
        error.complete_samples = num_complete
        damage = str(error)
    starts.append(len(blocks))
    num_files = starts[num_complete]
    prefix, key_rests, key_ends = _pack_keys(keys[:num_complete])
    return TarIndex(
        blocks=np.array(blocks[:num_files], np.uint32),
        sizes=np.array(sizes[:num_files], np.uint32),
        extension_numbers=np.array(extension_numbers[:num_files], np.min_scalar_type(len(extensions))),
        starts=np.array(starts[: num_complete + 1], np.int64),
        prefix=prefix,
        keys=key_rests,
        key_ends=key_ends,
        extensions=tuple(map(decode_name, extensions)),
        damage=damage,
        hint=_make_hint(keys, links),
    )


def load_index(path: str) -> tuple[TarIndex, tuple[int, int]]:
    """Load the index of a tar from the cache, or scan the tar and write the index to the cache.

    A damaged cache file is not an error, nor is a full disk.

    Args:
        path: path of the tar.

    Returns:
        (index, (size, mtime)): the tar's size in bytes and modification time in ns, when it was indexed.

    Raises:
        OSError: If the tar can't be read.
    """
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        stamp = (status.st_size, status.st_mtime_ns)
        # Inode and ctime as well: `cp -p` and `rsync -t` preserve the modification time of another tar.
        # ascii: a path may have bytes that are not text.
        name = ascii(os.path.abspath(path))
        identity = ascii((name, *stamp, status.st_ino, status.st_ctime_ns, INDEX_VERSION))
        index = _read_cached_index(name, identity)
        if index is None:
            index = scan_tar(file.fileno())
            _write_cached_index(index, name, identity)
        return index, stamp


def _get_cache_path(name: str) -> Path:
    """The cache file of a tar, by its path `name`: one for each path, so that a new index replaces the old one."""
    return get_cache_folder("shards") / f"{compute_fingerprint(name)}.npz"


def _write_cached_index(index: TarIndex, name: str, identity: str) -> None:
    """Write an index to the cache file of the tar `name`; `identity` says which content of the tar it is of.

    Failure is ignored, because a scan is always possible.
    """
    arrays = {field: getattr(index, field) for field in ARRAY_NAMES}
    arrays["damage"], arrays["hint"] = np.array(index.damage), np.array(index.hint)
    arrays["extensions"] = np.array(json.dumps(index.extensions))
    arrays["prefix"] = np.frombuffer(index.prefix, np.uint8)

    def write_arrays(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, identity=np.array(identity), **arrays)

    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        atomic_write(_get_cache_path(name), write_arrays)


def _read_cached_index(name: str, identity: str) -> TarIndex | None:
    """Read the index of the tar `name` from the cache; None if there is none, it is damaged, or of another identity."""
    try:
        # opened here, because numpy leaves a corrupt file open
        with open(_get_cache_path(name), "rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["identity"]) != identity:
                return None
            return TarIndex(
                **{field: arrays[field] for field in ARRAY_NAMES},
                prefix=arrays["prefix"].tobytes(),
                extensions=tuple(json.loads(str(arrays["extensions"]))),
                damage=str(arrays["damage"]),
                hint=str(arrays["hint"]),
            )
    except Exception:  # a corrupt file can raise anything, and a scan is always possible
        return None


def _make_hint(keys: list[bytes], links: list[bytes]) -> str:
    """The `hint` of a `TarIndex`, from the keys of all samples and the names of links that were skipped."""
    if len(set(keys)) < len(keys):
        return HINT_SCATTERED
    return HINT_LINK.format(decode_name(links[0])) if links else ""


def _pack_keys(keys: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Pack the keys of samples into arrays: (`prefix`, `keys`, `key_ends`) of a `TarIndex`."""
    # The common beginning of the smallest and the largest key is that of all keys.
    first, last = (min(keys), max(keys)) if keys else (b"", b"")
    prefix_length = 0
    while prefix_length < min(len(first), len(last)) and first[prefix_length] == last[prefix_length]:
        prefix_length += 1
    rests = [key[prefix_length:] for key in keys]
    ends = np.cumsum([0, *map(len, rests)], dtype=np.int64)
    return first[:prefix_length], np.frombuffer(b"".join(rests), np.uint8), ends
