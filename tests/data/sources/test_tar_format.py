"""Our scanner against `tarfile`: on disk and as a stream, in every format, whole and damaged at every byte."""

import gzip
import io
import struct
import tarfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from prolip.data.sources import tar_format
from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_format import (
    BLOCK,
    StreamReader,
    TarDamageError,
    iter_samples,
    split_name,
    write_tar,
)
from prolip.data.sources.tar_index import scan_tar
from tests.data.tar_files import PNG, member, pairs, samples_by_tarfile, tar_bytes

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
PARTS = st.text(st.sampled_from("ab._é"), min_size=1, max_size=6)
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


class Trickle(io.RawIOBase):
    """A stream of few bytes at a time that can't seek."""

    def __init__(self, content, step=700):
        self.content, self.step, self.at = content, step, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self.content[self.at : self.at + min(self.step, len(buffer))]
        buffer[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)


def by_index(content, folder):
    """Samples as `samples_by_tarfile` gives them, and the damage."""
    path = folder / "one.tar"
    path.write_bytes(content)
    with open(path, "rb") as file:
        index = scan_tar(file.fileno())
    samples = [
        (index.key(n), [(ending, content[at : at + size]) for ending, at, size in index.files(n)])
        for n in range(len(index) - bool(index.damage))
    ]
    return samples, index.damage


def by_stream(content, skip=0):
    samples = []
    try:
        for group in iter_samples(StreamReader(io.BufferedReader(Trickle(content), 1000)), skip):
            samples.append((group.key, list(group.files.items())))
    except TarDamageError as error:
        return samples, str(error)
    return samples, ""


def with_header(name, size_field, kind=b"0", prefix=b"", content=b"", magic=b"ustar\x0000"):
    """A member as bytes, header by hand: what no writer would write."""
    block = struct.pack(
        "100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x",
        *(
            name,
            b"0000644",
            b"0",
            b"0",
            size_field,
            b"0",
            b" " * 8,
            kind,
            b"",
            magic,
            b"",
            b"",
            b"",
            b"",
            prefix,
        ),
    )
    block = block[:148] + b"%06o\0 " % sum(block) + block[156:]
    return block + content + bytes(-len(content) % BLOCK)


def octal(size):
    return b"%011o" % size


END = bytes(2 * BLOCK)


# Whole tars


LONG = "folder-" * 20 + "/" + "n" * 90
FILES = [
    *pairs(3),
    ("a/b.c/0003.JPG", PNG * 40),
    ("a/b.c/0003.seg.Png", b"x" * 512),
    ("a/b.c/0003.txt", b"y" * 511),
    member("folder.d", type=tarfile.DIRTYPE),
    ("a/b.c/0003.cls", b""),  # a folder between the files of a sample doesn't end it
    ("__meta__.json", b"{}"),
    ("a/.hidden.jpg", b"no"),
    ("._0004.jpg", b"no"),
    ("README", b"no"),
    ("dot.", b"no"),
    member("0004.jpg", type=tarfile.SYMTYPE, linkname="00000.jpg"),
    member("0005.jpg", type=tarfile.LNKTYPE, linkname="00000.jpg"),
    ("./0006.jpg", b"6"),
    ("0006.jpg", b"other key"),
    ("00000.txt", b"a key that was there before is another sample"),
]


@every_format
@pytest.mark.parametrize("end", [None, -2 * BLOCK], ids=["end", "more zeros"])
def test_samples_are_those_of_tarfile(form, end, tmp_path):
    content = tar_bytes(FILES, format=form)[:end]
    wanted = samples_by_tarfile(content)
    assert len(wanted) == 7
    assert by_index(content, tmp_path) == (wanted, "")
    assert by_stream(content) == (wanted, "")


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@pytest.mark.parametrize("name", [LONG, "n" * 99, "n" * 100, "n" * 101, "日本" * 60, "é" * 20], ids=len)
def test_long_names_and_names_in_all_alphabets(form, name, tmp_path):
    files = [(f"{name}.jpg", b"1"), (f"{name}.txt", b"2"), (f"{name}-2.jpg", b"3"), ("short.jpg", b"4")]
    content = tar_bytes(files, format=form)
    wanted = [
        (name, [("jpg", b"1"), ("txt", b"2")]),
        (f"{name}-2", [("jpg", b"3")]),
        ("short", [("jpg", b"4")]),
    ]
    assert samples_by_tarfile(content) == wanted
    assert by_index(content, tmp_path) == (wanted, "")
    assert by_stream(content) == (wanted, "")


def test_a_long_path_in_ustar_is_put_together(tmp_path):
    content = tar_bytes([("p" * 120 + "/1.jpg", b"1")], format=tarfile.USTAR_FORMAT)
    assert content[345:346] == b"p"
    assert by_index(content, tmp_path) == ([("p" * 120 + "/1", [("jpg", b"1")])], "")


@settings(max_examples=100)
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=600)), max_size=12), st.sampled_from(list(FORMATS.values()))
)
def test_any_tar_is_read_as_tarfile_reads_it(tmp_path_factory, files, form):
    content = tar_bytes(files, format=form)
    by_us = by_index(content, tmp_path_factory.getbasetemp())
    assert by_us == (samples_by_tarfile(content), "")
    twice = [key for key, found in by_us[0] if len(dict(found)) < len(found)]
    streamed, damage = by_stream(content)
    assert damage == ""
    assert [key for key, _ in streamed] == [key for key, _ in by_us[0]]
    assert all(pair in by_us[0] for pair in streamed if pair[0] not in twice)


@pytest.mark.parametrize("blocks", [1, 2, 20, 3000])
def test_empty_tar_is_complete(blocks, tmp_path):
    assert by_index(bytes(blocks * BLOCK), tmp_path) == ([], "")
    assert by_stream(bytes(blocks * BLOCK)) == ([], "")


def test_the_zeros_at_the_end_may_be_missing(tmp_path):
    content = tar_bytes(pairs(3)).rstrip(b"\0")
    content += bytes(-len(content) % BLOCK)
    assert by_index(content, tmp_path) == (samples_by_tarfile(content), "")
    assert len(by_stream(content)[0]) == 3


def test_names_that_are_not_utf8_stay_apart(tmp_path):
    content = b"".join(
        with_header(name + b".jpg", octal(1), content=b"x") for name in (b"\xff", b"\xfe", b"\xfe")
    )
    samples, damage = by_index(content + END, tmp_path)
    assert [(key, len(files)) for key, files in samples] == [("�", 1), ("�", 2)]
    assert damage == ""


def test_pax_sizes_and_paths_win_over_the_header(tmp_path):
    records = b"17 path=new.jpeg\n" + b"10 size=3\n" + b"20 GNU=no one knows\n"
    assert len(records) == 47
    content = with_header(b"x", octal(len(records)), b"x", content=records)
    content += with_header(b"old.jpg", octal(0), content=b"abc") + with_header(
        b"old.txt", octal(2), content=b"de"
    )
    wanted = [("new", [("jpeg", b"abc")]), ("old", [("txt", b"de")])]
    assert samples_by_tarfile(content + END) == wanted
    assert by_index(content + END, tmp_path) == (wanted, "")


@pytest.mark.parametrize("records", [b"16 path=all.jpg\n", b"10 size=3\n"], ids=["path", "size"])
def test_global_pax_records_hold_until_the_end(records, tmp_path):
    """(Of a size, `tarfile` forgets to skip the data.)"""
    size, keys = (octal(0), ("1", "2")) if b"size" in records else (octal(3), ("all", "all"))
    content = with_header(b"g", octal(len(records)), b"g", content=records)
    content += with_header(b"1.jpg", size, content=b"abc") + with_header(b"2.txt", size, content=b"def") + END
    samples, damage = by_index(content, tmp_path)
    assert damage == ""
    files = [(key, found) for key, files in samples for found in files]
    assert [(key, found) for key, (_, found) in files] == [(keys[0], b"abc"), (keys[1], b"def")]
    assert b"size" in records or samples == samples_by_tarfile(content)


def test_sizes_in_base_256_and_with_spaces(tmp_path):
    content = with_header(b"1.jpg", b"\x80" + (3).to_bytes(11, "big"), content=b"abc")
    content += with_header(b"2.jpg", b"         2 ", content=b"de") + with_header(b"3.jpg", b"")
    wanted = [("1", [("jpg", b"abc")]), ("2", [("jpg", b"de")]), ("3", [("jpg", b"")])]
    assert by_index(content + END, tmp_path) == (wanted, "")


def test_a_checksum_of_signed_bytes_is_accepted(tmp_path):
    block = bytearray(with_header(b"\xe9\xe9.jpg", octal(0)))
    block[148:156] = b"%06o\0 " % (int(block[148:154], 8) - 2 * 256)
    assert by_index(bytes(block) + END, tmp_path) == ([("��", [("jpg", b"")])], "")


def test_a_checksum_above_that_of_adler_is_accepted(tmp_path):
    """A header of 255s sums to more than 65521, where the quick check wraps around."""
    content = with_header(b"\xff" * 90 + b".jpg", octal(0), prefix=b"\xff" * 155, magic=b"\xff" * 8)
    content = bytearray(content)
    content[265:345], content[500:512] = b"\xff" * 80, b"\xff" * 12
    content[148:156] = b" " * 8
    assert sum(content) > 65521
    content[148:156] = b"%06o\0 " % sum(content)
    samples, damage = by_index(bytes(content) + END, tmp_path)
    assert damage == ""
    assert len(samples) == 1


def test_folders_as_the_oldest_tars_write_them_have_no_data(tmp_path):
    content = with_header(b"folder.d/", octal(512), kind=b"\0") + with_header(
        b"1.jpg", octal(1), b"\0", content=b"x"
    )
    assert samples_by_tarfile(content + END) == [("1", [("jpg", b"x")])]
    assert by_index(content + END, tmp_path) == ([("1", [("jpg", b"x")])], "")


def test_a_prefix_belongs_to_ustar_alone(tmp_path):
    content = with_header(b"1.jpg", octal(0), prefix=b"time", magic=b"ustar  \0")
    assert by_index(content + END, tmp_path) == ([("1", [("jpg", b"")])], "")


@pytest.mark.parametrize("skip", range(5))
def test_a_stream_may_start_later(skip):
    content = tar_bytes(pairs(3))
    assert by_stream(content, skip) == (samples_by_tarfile(content)[skip:], "")


def test_iter_samples_keeps_the_first_of_two_files_with_one_extension():
    (group,) = iter_samples(
        StreamReader(io.BytesIO(tar_bytes([("1.jpg", b"a"), ("1.txt", b"b"), ("1.JPG", b"c")])))
    )
    assert group == ("1", {"jpg": b"a", "txt": b"b"}, ("jpg", "txt", "jpg"))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (b"a.jpg", (b"a", b"jpg")),
        (b"a.b/c.Seg.PNG", (b"a.b/c", b"seg.png")),
        (b"a.b/c", None),
        (b"a/.c.jpg", None),
        (b"__a__.jpg", None),
        (b"__a.jpg", (b"__a", b"jpg")),
        (b"x/__a__.jpg", None),
        (b"_a.jpg", (b"_a", b"jpg")),
        (b"a.", None),
        (b"", None),
    ],
)
def test_split_name_gives_key_and_extension(name, parts):
    assert split_name(name) == parts


def test_an_index_is_small(tmp_path):
    path = tmp_path / "1.tar"
    path.write_bytes(tar_bytes([("long-folder/" * 6 + name, content) for name, content in pairs(1000)]))
    with open(path, "rb") as file:
        index = scan_tar(file.fileno())
    columns = [
        getattr(index, name) for name in index.__slots__ if isinstance(getattr(index, name), np.ndarray)
    ]
    assert len(columns) == 6
    assert sum(column.nbytes for column in columns) < 45 * 1000


# Damage


def damaged(content, tmp_path):
    """What both ways find, which must be the same."""
    samples, damage = by_index(content, tmp_path)
    assert by_stream(content) == (samples, damage)
    return samples, damage


def test_a_cut_anywhere_leaves_the_samples_before_it(tmp_path):
    content = tar_bytes(pairs(4))
    wanted = samples_by_tarfile(content)
    for cut in [n for n in range(1, 8 * 2 * BLOCK) if n % 97 == 0 or n % BLOCK in (0, 1, BLOCK - 1)]:
        samples, damage = damaged(content[:cut], tmp_path)
        headers = (cut + BLOCK) // (2 * BLOCK)  # every file is a block of header and a block of data
        whole = max(headers - 1, 0) // 2  # those before the sample of the last header
        if cut % (2 * BLOCK):
            assert samples == wanted[:whole]
            assert damage.endswith(f"at byte {cut}; good samples before it: {whole}")
        else:  # as if only the zeros at the end were missing
            assert damage == ""
            assert [key for key, _ in samples] == [key for key, _ in wanted[: whole + 1]]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file at byte 0"),
        (b"short", "the tar ends within a header at byte 5"),
        (b"<html>" * 1000, "not a tar header at byte 0"),
        (gzip.compress(np.random.default_rng(0).bytes(5000)), "a gzip file, not a tar"),
    ],
)
def test_content_that_is_not_a_tar_is_damage(content, what, tmp_path):
    samples, damage = damaged(content, tmp_path)
    assert samples == []
    assert damage.startswith(what)
    assert damage.endswith("good samples before it: 0")


def sparse():
    records = b"22 GNU.sparse.major=1\n"
    return with_header(b"x", octal(len(records)), b"x", content=records) + with_header(b"9.jpg", octal(0))


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        (b"\x01" + with_header(b"9.jpg", octal(0))[1:], "a damaged header (its checksum is wrong)"),
        (b"garbage!" * 64, "a damaged header (its checksum is wrong)"),
        (with_header(b"9.jpg", b"-0000000001"), "a header with b'-0000000001' for a size"),
        (with_header(b"9.jpg", b"1_000"), "a header with b'1_000' for a size"),
        (with_header(b"9.jpg", b"00000000009"), "a header with b'00000000009' for a size"),
        (with_header(b"9.jpg", b"\xff" * 12), "a header with"),
        (with_header(b"9.jpg", b"\x80" + b"\xff" * 11), "the files of '9' claim more than 1 GiB"),
        (with_header(b"9.jpg", octal(2**30 + 1)), "the files of '9' claim more than 1 GiB"),
        (with_header(b"00002.json", octal(2**30)), "the files of '00002' claim more than 1 GiB"),
        (with_header(b"00002.json", octal(2**30 - 100)), "the tar ends within '00002.json'"),
        (with_header(b"no-ending", octal(2**40 - 1)[-11:]), "the tar ends within 'no-ending'"),
        (with_header(b"L", octal(2**21), b"L"), "an extended header that claims 2097152 bytes"),
        (with_header(b"L", octal(300), b"L"), "the tar ends within an extended header"),
        (with_header(b"L", octal(3), b"L", content=b"abc"), "the tar ends within a header"),
        (with_header(b"x", octal(3), b"x", content=b"abc"), "a damaged extended header"),
        (with_header(b"x", octal(12), b"x", content=b"7 a=bc\n0 x=y"), "a damaged extended header"),
        (with_header(b"x", octal(15), b"x", content=b"7 a=bc\nno-space"), "a damaged extended header"),
        (with_header(b"x", octal(12), b"x", content=b"7 a=bc\n     "), "a header with b'' for a size"),
        (with_header(b"x", octal(9), b"x", content=b"99 a=bcd\n"), "a damaged extended header"),
        (with_header(b"x", octal(11), b"x", content=b"11 size=-1\n") + with_header(b"9.jpg", b""), "a header with"),
        (with_header(b"9.jpg", octal(0), b"S"), "a sparse file"),
        (sparse(), "a sparse file"),
    ],
)  # fmt: skip
def test_damage_is_reported_after_the_samples_before_it(rest, what, tmp_path):
    before = tar_bytes(pairs(3))[: 12 * BLOCK]
    samples, damage = damaged(before + rest, tmp_path)
    assert damage.startswith(what)
    assert samples == samples_by_tarfile(before)[:2]  # more files of the third may have come
    assert damage.endswith("good samples before it: 2")


def test_two_tars_in_one_file_are_not_read_as_the_first(tmp_path):
    one = tar_bytes(pairs(3))
    samples, damage = damaged(one + tar_bytes(pairs(3, start=3)), tmp_path)
    assert samples == samples_by_tarfile(one)  # the end mark tells that the third is whole
    assert damage == f"more data after the end of the tar (two tars in a file?) at byte {len(one)}; " + (
        "good samples before it: 3"
    )


def test_the_files_of_a_sample_are_bounded_together(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_format, "MAX_SAMPLE_BYTES", 100)
    files = [("1.jpg", b"x" * 60), ("2.jpg", b"x" * 60), ("2.txt", b"x" * 41), ("3.txt", b"")]
    samples, damage = damaged(tar_bytes(files), tmp_path)
    assert [key for key, _ in samples] == ["1"]
    assert damage.startswith("the files of '2' claim more than 1 GiB at byte ")


@settings(max_examples=200)
@given(st.binary(max_size=2000))
@example(b"\0" * 512 + b"x")
def test_garbage_never_raises_anything_else(tmp_path_factory, content):
    samples, damage = damaged(content, tmp_path_factory.getbasetemp())
    assert samples == []
    assert damage or not content.strip(b"\0")


@settings(max_examples=300)
@given(st.integers(0, 6 * 2 * BLOCK - 1), st.integers(0, 255))
def test_a_wrong_byte_anywhere_is_harmless(tmp_path_factory, at, value):
    content = bytearray(tar_bytes(pairs(3)))
    wanted = samples_by_tarfile(bytes(content))
    content[at] = value
    samples, damage = damaged(bytes(content), tmp_path_factory.getbasetemp())
    before = at // (4 * BLOCK)
    assert samples[: max(0, before - 1)] == wanted[: max(0, before - 1)]
    header = at % (2 * BLOCK) < BLOCK
    assert bool(damage) <= header
    assert damage or len(samples) == 3


# Writing

WRITTEN = [("a", {"jpg": b"one", "txt": b"a thing"}), ("b", {"jpg": b"two", "txt": b"a star", "json": b"{}"})]


def test_write_tar_is_read_by_tar_shards(tmp_path):
    write_tar(tmp_path / "x.tar", WRITTEN)
    source = TarShards(str(tmp_path / "x.tar"))
    found = [(source.read(i).key, source.read(i).image, source.read(i).captions) for i in range(len(source))]
    assert found == [("a", b"one", ("a thing",)), ("b", b"two", ("a star",))]


def test_write_tar_gives_the_same_bytes_without_time_or_owner(tmp_path):
    for name in ("x.tar", "y.tar"):
        write_tar(tmp_path / name, WRITTEN)
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert {(entry.mtime, entry.uid, entry.uname) for entry in tar} == {(0, 0, "")}


def test_write_tar_holds_long_names(tmp_path):
    key = "k" * 300
    write_tar(tmp_path / "a.tar", [(key, {"jpg": b"x", "txt": b"y"})])
    assert TarShards(str(tmp_path / "a.tar")).read(0).key == key
