"""Where the samples of a tar lie, in a few numbers each; kept on disk, since the scan reads every header."""

from __future__ import annotations

import json
import os
from array import array
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prolip.data.source import compute_fingerprint
from prolip.data.sources.tar_format import BLOCK, TarDamageError, FileReader, decode_name, walk
from prolip.files import atomic_write

ARRAYS = ("blocks", "sizes", "kinds", "starts", "keys", "key_ends")
SCANNER = 2
"""Version of the index: one of another version that was kept on disk is made again."""

APART = "keys come again in this shard, but the files of one sample must stand together: tar --sort=name"
LINKED = "{!r} is a link, which is not read: tar -h --hard-dereference"


@dataclass(frozen=True, slots=True, eq=False)
class TarIndex:
    """Where the files of S samples lie in a tar; M files in all. No Python object a sample.

    blocks:   uint32 (M,): where the data starts, in blocks of 512 bytes.
    sizes:    uint32 (M,): bytes.
    kinds:    (M,): which of `endings`.
    starts:   int64 (S + 1,): a sample's first file; the last is M.
    prefix:   what all keys begin with.
    keys:     uint8: the rest of all keys, one after another.
    key_ends: int64 (S + 1,): where each ends in `keys`, from 0.
    damage:   what ends the tar early, "" if it is whole.
    hint:     why samples may lack files, "" if the tar shows no reason.
    """

    blocks: np.ndarray
    sizes: np.ndarray
    kinds: np.ndarray
    starts: np.ndarray
    prefix: bytes
    keys: np.ndarray
    key_ends: np.ndarray
    endings: tuple[str, ...]
    damage: str = ""
    hint: str = ""

    def __len__(self) -> int:
        """Samples; and one more that stands for the damage, if any."""
        return len(self.starts) - 1 + bool(self.damage)

    def is_damage(self, number: int) -> bool:
        return number == len(self.starts) - 1

    def key(self, number: int) -> str:
        rest = self.keys[self.key_ends[number] : self.key_ends[number + 1]]
        return decode_name(self.prefix + rest.tobytes())

    def files(self, number: int) -> list[tuple[str, int, int]]:
        """Ending, first byte and size of each file of a sample."""
        members = slice(self.starts[number], self.starts[number + 1])
        kinds, blocks, sizes = (column[members].tolist() for column in (self.kinds, self.blocks, self.sizes))
        return [
            (self.endings[kind], block * BLOCK, size)
            for kind, block, size in zip(kinds, blocks, sizes, strict=True)
        ]


def scan_tar(descriptor: int) -> TarIndex:
    """The samples of an open file on disk. An OSError is the disk's; a damaged tar is no error."""
    size = os.fstat(descriptor).st_size
    tape = FileReader(descriptor, size)
    endings: dict[bytes, int] = {}
    blocks, sizes, kinds, starts, keys = array("I"), array("I"), array("I"), array("Q"), list[bytes]()
    links, whole, damage = list[bytes](), 0, ""
    try:
        if size > 2**32 * BLOCK:
            raise TarDamageError("more than 2 TiB in one shard", 0)
        for member in walk(tape, links):
            if member is None:
                whole = len(keys)
                continue
            if member.first:
                whole = len(keys)
                starts.append(len(blocks))
                keys.append(member.key)
            blocks.append(tape.at // BLOCK)
            sizes.append(member.size)
            kinds.append(endings.setdefault(member.ending, len(endings)))
    except TarDamageError as error:
        error.whole = whole
        damage = str(error)
    starts.append(len(blocks))
    files = starts[whole]
    prefix, keys_left, key_ends = _packed(keys[:whole])
    return TarIndex(
        blocks=np.array(blocks[:files], np.uint32),
        sizes=np.array(sizes[:files], np.uint32),
        kinds=np.array(kinds[:files], np.min_scalar_type(len(endings))),
        starts=np.array(starts[: whole + 1], np.int64),
        prefix=prefix,
        keys=keys_left,
        key_ends=key_ends,
        endings=tuple(map(decode_name, endings)),
        damage=damage,
        hint=_hint(keys, links),
    )


def load_index(path: str) -> tuple[TarIndex, tuple[int, int]]:
    """A tar's index, from the disk if it was kept there; and the tar's size in bytes and time of change in ns.

    An OSError is one of the tar's disk. What is wrong with the kept index is no error, nor is a full disk.
    """
    with open(path, "rb", buffering=0) as file:
        facts = os.fstat(file.fileno())
        stamp = (facts.st_size, facts.st_mtime_ns)
        # `cp -p` and `rsync -t` bring a tar's time along. ascii: a path may have bytes that are no text
        name = ascii(os.path.abspath(path))
        told = ascii((name, *stamp, facts.st_ino, facts.st_ctime_ns, SCANNER))
        index = _kept(name, told)
        if index is None:
            index = scan_tar(file.fileno())
            _keep(index, name, told)
        return index, stamp


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "prolip" / "shards"


def _place(name: str) -> Path:
    """One for each path: a new index takes the place of the old one."""
    return cache_folder() / f"{compute_fingerprint(name)}.npz"


def _keep(index: TarIndex, name: str, told: str) -> None:
    columns = {name: getattr(index, name) for name in ARRAYS}
    columns["damage"], columns["hint"] = np.array(index.damage), np.array(index.hint)
    columns["endings"] = np.array(json.dumps(index.endings))
    columns["prefix"] = np.frombuffer(index.prefix, np.uint8)

    def write(aside: Path) -> None:
        with open(aside, "wb") as file:
            np.savez(file, allow_pickle=False, told=np.array(told), **columns)

    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        atomic_write(_place(name), write)


def _kept(name: str, told: str) -> TarIndex | None:
    try:
        # opened here, as numpy leaves a corrupt one open
        with open(_place(name), "rb") as file, np.load(file, allow_pickle=False) as columns:
            if str(columns["told"]) != told:
                return None
            return TarIndex(
                **{name: columns[name] for name in ARRAYS},
                prefix=columns["prefix"].tobytes(),
                endings=tuple(json.loads(str(columns["endings"]))),
                damage=str(columns["damage"]),
                hint=str(columns["hint"]),
            )
    except Exception:  # a corrupt file raises what it likes, and a scan is always possible
        return None


def _hint(keys: list[bytes], links: list[bytes]) -> str:
    if len(set(keys)) < len(keys):
        return APART
    return LINKED.format(decode_name(links[0])) if links else ""


def _packed(keys: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """`prefix`, `keys` and `key_ends` of an index."""
    first, last = (min(keys), max(keys)) if keys else (b"", b"")
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    rests = [key[shared:] for key in keys]
    ends = np.cumsum([0, *map(len, rests)], dtype=np.int64)
    return first[:shared], np.frombuffer(b"".join(rests), np.uint8), ends
