"""The tar format of WebDataset shards: reading samples from front to back, and writing.

Headers are parsed here and not by `tarfile`, which takes four to five times as long; shards have 30,000 members.
"""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from prolip.storage.streams import BrokenStreamError

BLOCK = 512
"""Headers and data start at multiples of this many bytes."""

MAX_SAMPLE_BYTES = 2**30
"""Bytes of all files of a sample: a damaged header can claim any size, and a stream must hold a sample in memory."""

MAX_EXTENDED_HEADER = 2**20
"""Bytes of a long name, or of the records of a pax header."""

MAX_PADDING = 2**20
"""Bytes after the end mark that must be zero; tar pads its last record of 10 KiB, rarely more."""

ZEROS = bytes(BLOCK)
"""A block that marks the end of a tar."""
FILE_TYPES = (b"0", b"\0", b"7")
"""Type flags of regular files."""
LINK_TYPES = (b"1", b"2")
"""Type flags of hard and symbolic links."""
TYPES_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, folders, pipes: no data follows, whatever size they claim."""


class TarDamageError(Exception):
    """A tar that can't be read further.

    Everything after the damage is lost: where the next header begins is only known from the one before it.

    message:          what is wrong.
    offset:           the byte where it is; None if unknown.
    complete_samples: samples before it that are complete.
    """

    def __init__(self, message: str, offset: int | None) -> None:
        super().__init__(message, offset)
        self.message, self.offset, self.complete_samples = message, offset, 0

    def __str__(self) -> str:
        if self.offset is None:
            return self.message
        return f"{self.message} at byte {self.offset}; good samples before it: {self.complete_samples}"


class ByteReader(Protocol):
    """Bytes from front to back; `offset` is the position."""

    offset: int

    def read(self, count: int) -> bytes:
        """Read bytes; fewer than `count` only at the end."""

    def skip(self, count: int) -> int:
        """Skip bytes; return how many, fewer than `count` only at the end."""


class FileReader:
    """Reads a file on disk, in windows: members are often small, so that one read fetches several headers.

    Args:
        descriptor: descriptor of the open file; it is neither moved nor closed.
        size: size of the file, in bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.offset = 0
        self._descriptor, self._size = descriptor, size
        self._window_start, self._window = 0, b""  # the bytes of the file from this offset on

    def read(self, count: int) -> bytes:
        """Read bytes and advance, from the window if it holds them all; fewer than `count` only at the end."""
        begin = self.offset - self._window_start
        piece = self._window[begin : begin + count]
        if len(piece) < count:
            self._window_start = self.offset
            self._window = read_at(self._descriptor, max(count, 8 * BLOCK), self.offset)
            piece = self._window[:count]
        self.offset += len(piece)
        return piece

    def skip(self, count: int) -> int:
        """Advance without reading; return the number of bytes, fewer than `count` only at the end."""
        count = min(count, self._size - self.offset)
        self.offset += count
        return count


class StreamReader:
    """Reads a binary file that can't seek."""

    def __init__(self, file: BinaryIO) -> None:
        self.offset = 0
        self._file = file

    def read(self, count: int) -> bytes:
        pieces = list(self._iter_pieces(count))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, count: int) -> int:
        return sum(len(piece) for piece in self._iter_pieces(count))

    def _iter_pieces(self, count: int) -> Iterator[bytes]:
        """Read and yield `count` bytes in pieces of at most 1 MiB, fewer at the end of the file.

        In pieces, because a damaged size must not allocate a gigabyte for bytes that don't exist.
        """
        while count and (piece := self._read_piece(min(count, 2**20))):
            self.offset += len(piece)
            count -= len(piece)
            yield piece

    def _read_piece(self, count: int) -> bytes:
        """Read at most `count` bytes; TarDamageError if the stream breaks off."""
        try:
            return self._file.read(count)
        except BrokenStreamError as error:
            raise TarDamageError(error.message, error.offset) from None


class TarMember(NamedTuple):
    """A file of a sample. While it is current, the reader is at the start of its data.

    key, extension: the two parts of its name, see `split_name`.
    size:           bytes of its data.
    is_first:       whether it is the first file of its sample.
    """

    key: bytes
    extension: bytes
    size: int
    is_first: bool


class TarSample(NamedTuple):
    """The files of a sample.

    key:        name of the sample.
    files:      contents by extension; of two files with one extension the first.
    extensions: extensions of all files, in order: one that came twice is in it twice.
    """

    key: str
    files: dict[str, bytes]
    extensions: tuple[str, ...]


def iter_samples(reader: ByteReader, skip: int = 0) -> Iterator[TarSample]:
    """Iterate over the samples of a tar, in order.

    Args:
        reader: reader of the tar, at its beginning.
        skip: number of samples to skip at the beginning; their data is not held in memory.

    Yields:
        The samples, each with all its files.

    Raises:
        TarDamageError: After the last complete sample, if the tar is damaged. Its `complete_samples` includes the
            skipped ones.
    """
    index, key, files, extensions = -1, "", dict[str, bytes](), list[str]()  # the current sample
    try:
        for member in iter_members(reader):
            if member is None or member.is_first:
                if index >= skip:
                    yield TarSample(key, files, tuple(extensions))
                index, files, extensions = index + 1, {}, []
            if member is None or index < skip:
                continue
            key, extension = decode_name(member.key), decode_name(member.extension)
            extensions.append(extension)
            if extension not in files:
                files[extension] = reader.read(member.size)
    except TarDamageError as error:
        error.complete_samples = max(index, 0)
        raise


def iter_members(reader: ByteReader, links: list[bytes] | None = None) -> Iterator[TarMember | None]:
    """Iterate over the files of samples, in order.

    The files of a sample are adjacent. Its key is a file's path up to the first dot of the last part; the extension is
    what follows, in lower case. Folders, links, and files for which `split_name` returns None don't count.

    Args:
        reader: reader of the tar, at its beginning. The caller may read a member's data; the rest of it is skipped.
        links: list that receives the names of links that would be files of samples.

    Yields:
        The files; None at the end, where the last sample is known to be complete.

    Raises:
        TarDamageError: If the tar is damaged. The sample before the damage counts as incomplete: more of its files may
            have followed.
    """
    global_records: dict[bytes, bytes] = {}
    last_key, sample_bytes = b"", 0
    while (header := _read_header(reader, global_records)) is not None:
        name, size, type_flag = header
        end = reader.offset + (size + BLOCK - 1) // BLOCK * BLOCK
        key_and_extension = split_name(name)
        if key_and_extension and type_flag in LINK_TYPES and links is not None:
            links.append(name)
        if key_and_extension and type_flag in FILE_TYPES:
            key, extension = key_and_extension
            is_first = key != last_key
            sample_bytes = size if is_first else sample_bytes + size
            if sample_bytes > MAX_SAMPLE_BYTES:
                raise TarDamageError(
                    f"the files of {decode_name(key[:100])!r} claim more than 1 GiB", reader.offset
                )
            last_key = key
            yield TarMember(key, extension, size, is_first)
        unread = end - reader.offset
        if reader.skip(unread) < unread:
            raise TarDamageError(f"the tar ends within {decode_name(name[:100])!r}", reader.offset)
    yield None
    _check_padding(reader)


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a path into key and extension.

    Args:
        name: path of a member in the tar.

    Returns:
        (key, extension in lower case); None if it is not a file of a sample: hidden, without extension, or like
        __meta__.json.
    """
    base = name.rfind(b"/") + 1  # where the last part of the path begins
    dot = name.find(b".", base)
    # A dot at `base` is a hidden file; -1 is no dot at all.
    is_hidden_or_without_extension = dot <= base or dot + 1 == len(name)
    if is_hidden_or_without_extension or (name.startswith(b"__", base) and name.endswith(b"__", base, dot)):
        return None
    return name[:dot], name[dot + 1 :].lower()


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """Read bytes of an open file from an offset.

    Args:
        descriptor: descriptor of the file; its position stays as it is.
        count: number of bytes.
        offset: offset of the first byte.

    Returns:
        The bytes; fewer than `count` only at the end of the file.
    """
    content = os.pread(descriptor, count, offset)
    while len(content) < count and (
        more := os.pread(descriptor, count - len(content), offset + len(content))
    ):
        content += more
    return content


def decode_name(name: bytes) -> str:
    """Decode a name, as a key and for messages: old tars have names that are not UTF-8.

    Args:
        name: name of a member, or a part of it.

    Returns:
        The text; bytes that are not UTF-8 are replaced.
    """
    return name.decode("utf-8", "replace")


def _read_header(reader: ByteReader, global_records: dict[bytes, bytes]) -> tuple[bytes, int, bytes] | None:
    """Read the next header: (name, size of the data that follows in bytes, type flag); None at the end of the tar.

    Reads the extended headers before it too. Records that hold for all members that follow are added to
    `global_records`. TarDamageError if a header is damaged.
    """
    records = global_records
    while True:
        offset = reader.offset
        block = reader.read(BLOCK)
        if len(block) < BLOCK or block == ZEROS:
            _check_end(block, offset, extended=records is not global_records)
            return None
        type_flag, size = block[156:157], _parse_verified_size(block, offset)
        if type_flag == b"g":  # pax records for all members that follow
            global_records.update(_parse_records(_read_extended_header(reader, size), offset))
        elif type_flag in (b"x", b"X"):  # pax records for the next member
            records = {**records, **_parse_records(_read_extended_header(reader, size), offset)}
        elif type_flag == b"L":  # GNU: the long name of the next member
            records = {**records, b"path": _read_extended_header(reader, size).split(b"\0", 1)[0]}
        else:
            break
    if type_flag == b"S" or b"sparse" in records:
        raise TarDamageError("a sparse file made by `tar -S` (pack it without -S)", offset)
    name = block[:100].split(b"\0", 1)[0]
    if type_flag == b"\0" and name.endswith(b"/"):  # how the oldest tars mark a folder
        type_flag = b"5"
    if block[257:263] == b"ustar\0" and block[345]:  # USTAR's prefix of a long name
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    if pax_size := records.get(b"size"):  # replaces that of the header
        size = _parse_number(pax_size, 10, offset)
    return records.get(b"path") or name, 0 if type_flag in TYPES_WITHOUT_DATA else size, type_flag


def _parse_verified_size(block: bytes, offset: int) -> int:
    """Verify the checksum of a header, and parse its size field, in bytes; TarDamageError if either is wrong.

    `block` is the header, 512 bytes, and `offset` where it is in the tar.
    """
    sum_field = block[148:156]
    # The low half of Adler-32 is 1 + the sum of the bytes modulo 65521; 20 times as fast as sum(). The checksum field
    # itself counts as 8 spaces, of code 32. A sum above 65520 comes out wrong here: `_has_checksum` decides then.
    checksum = (zlib.adler32(block) - zlib.adler32(sum_field) + 8 * 32) % 2**16
    try:
        claimed = int(sum_field.strip(b" \0"), 8)
    except ValueError:
        claimed = -1
    if checksum != claimed and not _has_checksum(block, claimed):
        message = "a damaged header (its checksum is wrong)"
        if offset == 0:
            is_gzip = block[:2] == b"\x1f\x8b"
            message = "a gzip file, not a tar (unpack it with gunzip)," if is_gzip else "not a tar header"
        raise TarDamageError(message, offset)
    size_field = block[124:136]
    if size_field[0] == 0x80:  # GNU's base-256 encoding of what needs more than 11 octal digits
        return int.from_bytes(size_field[1:], "big")
    return _parse_number(size_field.split(b"\0", 1)[0].strip(b" ") or b"0", 8, offset)


def _has_checksum(block: bytes, claimed: int) -> bool:
    """Whether `claimed` is the checksum of a header by its definition: its own field counts as spaces.

    A sum of signed bytes is accepted too, as old Sun tars have it.
    """
    content = block[:148] + b" " * 8 + block[156:]
    signed_sum = sum(content) - 256 * sum(byte > 127 for byte in content)
    return claimed in (sum(content), signed_sum)


def _parse_number(digits: bytes, base: int, offset: int) -> int:
    """Parse a number of at most 19 digits in base 8 or 10; TarDamageError, at the header's `offset`, if it is none."""
    with suppress(ValueError):
        if digits.isdigit() and len(digits) < 20:  # int() alone would take signs and underscores
            return int(digits, base)
    raise TarDamageError(f"a header with {digits[:20]!r} for a size", offset)


def _read_extended_header(reader: ByteReader, size: int) -> bytes:
    """Read the `size` bytes of an extended header; TarDamageError if they are too many or the tar ends within them."""
    if size > MAX_EXTENDED_HEADER:
        raise TarDamageError(f"an extended header that claims {size} bytes", reader.offset)
    content = reader.read((size + BLOCK - 1) // BLOCK * BLOCK)
    if len(content) < size:
        raise TarDamageError("the tar ends within an extended header", reader.offset)
    return content[:size]


def _parse_records(content: bytes, offset: int) -> dict[bytes, bytes]:
    """Parse a pax header: the records that are used, by name: path, size, and "sparse" if the file is sparse.

    Each record is "length name=value\\n"; the length includes itself. TarDamageError if one is malformed.
    """
    records, start = {}, 0
    content = content.rstrip(b"\0")
    while start < len(content):
        space = content.find(b" ", start, start + 20)
        length = _parse_number(content[start:space], 10, offset) if space > 0 else 0
        name, equals, value = content[space + 1 : start + length - 1].partition(b"=")
        if not length or not equals or content[start + length - 1 : start + length] != b"\n":
            raise TarDamageError("a damaged extended header", offset)
        if name in (b"path", b"size"):
            records[name] = value
        if name.startswith(b"GNU.sparse."):
            records[b"sparse"] = value
        start += length
    return records


def _check_end(block: bytes, offset: int, extended: bool) -> None:
    """Check the block in place of a header where a tar ends: zeros, or nothing, as some writers omit the zeros.

    TarDamageError for an empty file, for a part of a block, or if an extended header came before (`extended`).
    """
    if not block and not offset:
        raise TarDamageError("an empty file", offset)
    if extended or (block and len(block) < BLOCK):
        raise TarDamageError("the tar ends within a header", offset + len(block))


def _check_padding(reader: ByteReader) -> None:
    """Raise TarDamageError if anything but zeros follows the end mark: files would be lost silently.

    (`cat a.tar b.tar` is not a tar of both.) At most MAX_PADDING bytes are read.
    """
    end = reader.offset + MAX_PADDING
    while reader.offset < end and (piece := reader.read(16 * BLOCK)):
        if rest := piece.lstrip(b"\0"):
            raise TarDamageError(
                "more data after the end of the tar (two tars in a file?)", reader.offset - len(rest)
            )


SampleFiles = dict[str, bytes]
"""The files of a sample, by extension."""


def write_tar(path: Path, samples: Iterable[tuple[str, SampleFiles]]) -> None:
    """Write a shard. The same samples give the same bytes: members have no time and no owner.

    Args:
        path: path of the tar, which is overwritten. The format is PAX, which is USTAR except for names that USTAR
            can't hold.
        samples: pairs (key, files); the members are key.extension.
    """
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for key, files in samples:
            for extension, content in files.items():
                entry = tarfile.TarInfo(f"{key}.{extension}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
