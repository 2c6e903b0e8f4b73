"""Tars from front to back, as samples: files that stand together and share a key.

The headers are read here, not by `tarfile`, which takes four to five times as long; shards have 30,000 members.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Protocol

BLOCK = 512
"""Headers and data start at multiples of so many bytes."""

MAX_SAMPLE = 2**30
"""Bytes of all files of a sample: a header of a few bytes can claim any size, and a stream must hold a sample whole."""

MAX_EXTENSION = 2**20
"""Bytes of a long name, or of the records of a pax header."""

MAX_TAIL = 2**20
"""How many bytes after the end mark must be zero; tar fills up its last 10 KiB, and seldom more."""

ZEROS = bytes(BLOCK)
FILES = (b"0", b"\0", b"7")
LINKS = (b"1", b"2")
WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, folders, pipes: no data follows, whatever size they claim."""


class TarDamageError(Exception):
    """A tar that can't be read further: what is wrong, at which byte, and how many samples before it are whole."""

    def __init__(self, what: str, at: int | None) -> None:
        super().__init__(what, at)
        self.what, self.at, self.whole = what, at, 0

    def __str__(self) -> str:
        return self.what + (
            f" at byte {self.at}; good samples before it: {self.whole}" if self.at is not None else ""
        )


class ByteReader(Protocol):
    """Bytes from front to back. `at` is the position; reading gives fewer bytes than asked for only at the end."""

    at: int

    def read(self, count: int) -> bytes: ...

    def skip(self, count: int) -> int:
        """Go on without reading; how far."""


class FileReader:
    """A file on disk. Small files lie side by side, so that a read brings several headers."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.at = 0
        self._descriptor, self._size = descriptor, size
        self._start, self._window = 0, b""

    def read(self, count: int) -> bytes:
        begin = self.at - self._start
        piece = self._window[begin : begin + count]
        if len(piece) < count:
            self._start = self.at
            self._window = read_at(self._descriptor, max(count, 8 * BLOCK), self.at)
            piece = self._window[:count]
        self.at += len(piece)
        return piece

    def skip(self, count: int) -> int:
        count = min(count, self._size - self.at)
        self.at += count
        return count


class StreamReader:
    """A binary file that can't seek."""

    def __init__(self, file: BinaryIO) -> None:
        self.at = 0
        self._file = file

    def read(self, count: int) -> bytes:
        pieces = list(self._pieces(count))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, count: int) -> int:
        return sum(len(piece) for piece in self._pieces(count))

    def _pieces(self, count: int) -> Iterator[bytes]:
        """Never more at once than is really there: a damaged size makes no room for a gigabyte."""
        while count and (piece := self._file.read(min(count, 2**20))):
            self.at += len(piece)
            count -= len(piece)
            yield piece


class Member(NamedTuple):
    """A file of a sample. While it is at hand, the tape stands at the start of its data."""

    key: bytes
    ending: bytes
    size: int
    first: bool  # of its sample


class Group(NamedTuple):
    """A sample as it comes from a tape. `twice` is an ending that came twice, of which `files` has the first."""

    key: str
    files: dict[str, bytes]
    twice: str = ""


def groups(tape: ByteReader, skip: int = 0) -> Iterator[Group]:
    """The samples of a tape in order, without the first `skip`. TarDamageError after the last that is whole."""
    number, key, files, twice = -1, "", dict[str, bytes](), ""  # the sample at hand
    try:
        for member in walk(tape):
            if member is None or member.first:
                if number >= skip:
                    yield Group(key, files, twice)
                number, files, twice = number + 1, {}, ""
            if member is None or number < skip:
                continue
            key, ending = decode_name(member.key), decode_name(member.ending)
            if ending in files:
                twice = ending
            else:
                files[ending] = tape.read(member.size)
    except TarDamageError as error:
        error.whole = max(number, 0)
        raise


def walk(tape: ByteReader, links: list[bytes] | None = None) -> Iterator[Member | None]:
    """The files of samples, in order; None at the end, where the last sample is known to be whole.

    A sample's files stand together. Its key is a file's path up to the first dot of the last part, the ending is what
    follows, in lower case. Folders, links, and files that `split_name` leaves out don't count; the names of links that
    would be files of samples go to `links`. A sample that is followed by damage is not whole: more of its files may
    have come.
    """
    common: dict[bytes, bytes] = {}
    last, total = b"", 0
    while (header := _next_header(tape, common)) is not None:
        name, size, kind = header
        end = tape.at + (size + BLOCK - 1) // BLOCK * BLOCK
        parts = split_name(name)
        if parts and kind in LINKS and links is not None:
            links.append(name)
        if parts and kind in FILES:
            key, ending = parts
            first = key != last
            total = size if first else total + size
            if total > MAX_SAMPLE:
                raise TarDamageError(f"the files of {decode_name(key[:100])!r} claim more than 1 GiB", tape.at)
            last = key
            yield Member(key, ending, size, first)
        left = end - tape.at
        if tape.skip(left) < left:
            raise TarDamageError(f"the tar ends within {decode_name(name[:100])!r}", tape.at)
    yield None
    _check_tail(tape)


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """A path's key and ending; None if it is no file of a sample: hidden, without ending, or like __meta__.json."""
    slash = name.rfind(b"/") + 1
    dot = name.find(b".", slash)
    if (
        dot <= slash
        or dot + 1 == len(name)
        or (name.startswith(b"__", slash) and name.endswith(b"__", slash, dot))
    ):
        return None
    return name[:dot], name[dot + 1 :].lower()


def read_at(descriptor: int, count: int, at: int) -> bytes:
    """Bytes of a file from a position; fewer only at its end."""
    content = os.pread(descriptor, count, at)
    while len(content) < count and (more := os.pread(descriptor, count - len(content), at + len(content))):
        content += more
    return content


def decode_name(name: bytes) -> str:
    """For people, and as a key: old tars have names that are not UTF-8."""
    return name.decode("utf-8", "replace")


def _next_header(tape: ByteReader, common: dict[bytes, bytes]) -> tuple[bytes, int, bytes] | None:
    """Name, bytes of data that follow, and what kind of member it is; None at the end of the tar.

    Reads the extended headers in front; the records of those that hold for all that follows go to `common`.
    """
    records = common
    while True:
        at = tape.at
        block = tape.read(BLOCK)
        if len(block) < BLOCK or block == ZEROS:
            _check_end(block, at, extended=records is not common)
            return None
        kind, size = block[156:157], _checked_size(block, at)
        if kind == b"g":
            common.update(_records(_extension(tape, size), at))
        elif kind in (b"x", b"X"):
            records = {**records, **_records(_extension(tape, size), at)}
        elif kind == b"L":
            records = {**records, b"path": _extension(tape, size).split(b"\0", 1)[0]}
        else:
            break
    if kind == b"S" or b"sparse" in records:
        raise TarDamageError("a sparse file, which `tar -S` made (pack it without -S),", at)
    name = block[:100].split(b"\0", 1)[0]
    if kind == b"\0" and name.endswith(b"/"):  # how the oldest tars write a folder
        kind = b"5"
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    if told := records.get(b"size"):
        size = _number(told, 10, at)
    return records.get(b"path") or name, 0 if kind in WITHOUT_DATA else size, kind


def _checked_size(block: bytes, at: int) -> int:
    """A header's size field, if the header's checksum is right."""
    sum_field = block[148:156]
    # Adler's low half is 1 + the sum of the bytes modulo 65521: 20 times as quick as sum().
    found = (zlib.adler32(block) - zlib.adler32(sum_field) + 8 * 32) % 2**16
    try:
        told = int(sum_field.strip(b" \0"), 8)
    except ValueError:
        told = -1
    if found != told and not _slowly_checked(block, told):
        what = "a damaged header (its checksum is wrong)"
        if at == 0:
            zipped = block[:2] == b"\x1f\x8b"
            what = "a gzip file, not a tar (unpack it with gunzip)," if zipped else "no header of a tar"
        raise TarDamageError(what, at)
    field = block[124:136]
    if field[0] == 0x80:  # GNU's way to write what needs more than 11 octal digits
        return int.from_bytes(field[1:], "big")
    return _number(field.split(b"\0", 1)[0].strip(b" ") or b"0", 8, at)


def _slowly_checked(block: bytes, told: int) -> bool:
    """The sum by its definition, the checksum itself counted as spaces; or of signed bytes, as old Sun tars have it."""
    content = block[:148] + b" " * 8 + block[156:]
    return told in (sum(content), sum(content) - 256 * sum(byte > 127 for byte in content))


def _number(digits: bytes, base: int, at: int) -> int:
    with suppress(ValueError):
        if digits.isdigit() and len(digits) < 20:  # int() alone would take signs and underscores
            return int(digits, base)
    raise TarDamageError(f"a header with {digits[:20]!r} for a size", at)


def _extension(tape: ByteReader, size: int) -> bytes:
    """The data of an extended header."""
    if size > MAX_EXTENSION:
        raise TarDamageError(f"an extended header that claims {size} bytes", tape.at)
    content = tape.read((size + BLOCK - 1) // BLOCK * BLOCK)
    if len(content) < size:
        raise TarDamageError("the tar ends within an extended header", tape.at)
    return content[:size]


def _records(content: bytes, at: int) -> dict[bytes, bytes]:
    """Those of a pax header's records that matter: path, size, and whether the file is sparse.

    Each record is "length name=value" and a line's end; the length counts itself.
    """
    records, start = {}, 0
    content = content.rstrip(b"\0")
    while start < len(content):
        space = content.find(b" ", start, start + 20)
        length = _number(content[start:space], 10, at) if space > 0 else 0
        name, equals, value = content[space + 1 : start + length - 1].partition(b"=")
        if not length or not equals or content[start + length - 1 : start + length] != b"\n":
            raise TarDamageError("a damaged extended header", at)
        if name in (b"path", b"size"):
            records[name] = value
        if name.startswith(b"GNU.sparse."):
            records[b"sparse"] = value
        start += length
    return records


def _check_end(block: bytes, at: int, extended: bool) -> None:
    """A tar ends with zeros, or without them after a whole file: some writers forget them."""
    if not block and not at:
        raise TarDamageError("an empty file", at)
    if extended or (block and len(block) < BLOCK):
        raise TarDamageError("the tar ends within a header", at + len(block))


def _check_tail(tape: ByteReader) -> None:
    """Only zeros may follow, or files would be left out silently: `cat a.tar b.tar` is no tar of both."""
    end = tape.at + MAX_TAIL
    while tape.at < end and (piece := tape.read(16 * BLOCK)):
        if rest := piece.lstrip(b"\0"):
            raise TarDamageError("more data after the end of the tar (two tars in a file?)", tape.at - len(rest))
