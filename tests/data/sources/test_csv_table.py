"""Tables against the csv module on the whole file; every kind of bad row by its reason."""

import csv
import io
import os
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from prolip.data.sample import MAX_CAPTION_LENGTH, BadSampleError
from prolip.data.sources import csv_table
from prolip.data.sources.csv_table import CsvTable

QUIRKS = ["a", "é", '"', ",", "\t", "\n", "\r\n", " ", "x" * 50, ";", "''", "\x85", "\u2028", "\x1c"]


@pytest.fixture
def folder(tmp_path):
    for name in ("a.jpg", "b.jpg", "c d.jpg"):
        (tmp_path / name).write_bytes(b"not opened here")
    return tmp_path


def table(at, content, name="t.csv", **options):
    path = at / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return CsvTable(path, **options)


def bad(source, index):
    with pytest.raises(BadSampleError) as caught:
        source.read(index)
    return caught.value.record


def test_a_sample_is_the_file_the_captions_and_the_other_columns(folder):
    source = table(folder, 'image,caption,score\na.jpg," a cat, asleep ",0.5\nc d.jpg,a dog,\n')
    assert len(source) == 2
    sample = source.read(0)
    assert sample.image == folder / "a.jpg"
    assert sample.captions == ("a cat, asleep",)
    assert dict(sample.extra) == {"score": "0.5"}
    assert source.read(1).image == folder / "c d.jpg"
    assert source.read(1).location == f"{folder / 't.csv'}: row 2"
    np.testing.assert_array_equal(source.chunks, [2])
    assert source.chunks.dtype == np.int64


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.lists(st.lists(st.sampled_from(QUIRKS), max_size=4).map("".join), min_size=2, max_size=2)
    ),
    ending=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from([",", "\t"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    last_line_ends=st.booleans(),
)
def test_rows_are_those_of_the_csv_module(folder, rows, ending, delimiter, quoting, mark, last_line_ends):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=ending)
    writer.writerows([["image", "one", "two"], *(["a.jpg", *row] for row in rows)])
    content = text.getvalue() if last_line_ends else text.getvalue().removesuffix(ending)
    name = "t.csv" if delimiter == "," else "t.tsv"
    source = table(folder, mark + content.encode(), name, captions=())
    assert len(source) == len(rows)
    for number in np.random.default_rng(0).permutation(len(rows)):
        assert dict(source.read(int(number)).extra) == dict(zip(("one", "two"), rows[number], strict=True))


def test_a_quote_inside_a_cell_is_a_character(folder):
    source = table(folder, 'image,caption\na.jpg,a 5" pipe\nb.jpg,a 7" pipe\n')
    assert [source.read(i).captions[0] for i in range(2)] == ['a 5" pipe', 'a 7" pipe']


def test_blank_lines_are_not_rows(folder):
    source = table(folder, "\n\nimage,caption\n\na.jpg,one\n\r\n\nb.jpg,two\n\n")
    assert [source.read(i).captions for i in range(len(source))] == [("one",), ("two",)]


def test_a_header_alone_is_an_empty_table(folder):
    source = table(folder, "image,caption")
    assert len(source) == source.chunks.sum() == 0
    with pytest.raises(IndexError):
        source.read(0)


@pytest.mark.parametrize("index", [-1, 1])
def test_read_refuses_indices_out_of_range(folder, index):
    with pytest.raises(IndexError, match="1 samples"):
        table(folder, "image,caption\na.jpg,one\n").read(index)


@pytest.mark.parametrize("delimiter", "\t,;|")
def test_the_delimiter_of_a_txt_is_sniffed_from_its_header(folder, delimiter):
    content = f"image{delimiter}caption\na.jpg{delimiter}one\n"
    assert table(folder, content, "t.txt").read(0).captions == ("one",)


@pytest.mark.parametrize("delimiter", "\t;|")
def test_delimiter_is_detected_if_that_of_the_extension_is_not_in_the_header(folder, delimiter):
    content = f"\nimage{delimiter}caption\na.jpg{delimiter}one, two\n"
    assert table(folder, content).read(0).captions == ("one, two",)
    assert table(folder, "image\na;b.jpg\n", captions=()).columns == ("image", ())


def test_a_field_of_any_length_is_read_to_its_end(folder):
    """Also beyond the csv module's own limit; a caption has another one."""
    long = "x" * MAX_CAPTION_LENGTH
    source = table(folder, f'image,caption\na.jpg,"{long}"\nb.jpg,"{100 * long}"\na.jpg,after\n')
    assert source.read(0).captions == (long,)
    with pytest.raises(BadSampleError, match="caption too long"):
        source.read(1)
    assert source.read(2).captions == ("after",)


# Columns


@pytest.mark.parametrize("image", ["image", "filepath", "file_name", "filename", "path", "image_path"])
@pytest.mark.parametrize("caption", ["caption", "title", "text", "captions"])
def test_usual_names_of_columns(folder, image, caption):
    source = table(folder, f"n,{caption},{image}\n1,one,a.jpg\n")
    assert source.columns == (image, (caption,))
    assert source.read(0).captions == ("one",)


def test_columns_that_are_asked_for(folder):
    source = table(folder, "image,x,y,z\na.jpg,b.jpg,one,two\n", image="x", captions=["z", "y"])
    assert source.read(0).image == folder / "b.jpg"
    assert source.read(0).captions == ("two", "one")
    assert table(folder, "image,x\na.jpg,one\n", captions="x").read(0).captions == ("one",)


def test_without_captions(folder):
    assert table(folder, "image\na.jpg\n", captions=()).read(0).captions == ()


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        ("a,b", {}, "no column image, .* or url.*image= .*: .*a, b"),
        ("image,b", {}, "no column caption, .* or txt.*captions= .*: .*image, b"),
        ("image,caption", {"captions": ["c"]}, "no column 'c'.*image, caption"),
        ("image,caption", {"image": "c"}, "no column 'c'"),
        ("image,caption,caption", {}, "2 columns 'caption'"),
        ("image,caption", {"captions": ["image"]}, "only once"),
        ("", {}, "is empty"),
        ("\n\n", {}, "is empty"),
        ('"image,caption', {}, "first row"),
        ("image,caption\ra.jpg,one\r", {}, "end in CR"),
        ("image,caption\r" + "a.jpg,one\r" * 50_000, {}, "end in CR"),
        ("image,caption".encode("utf-16"), {}, "UTF-16"),
    ],
)
def test_headers_that_cannot_be_used(folder, header, options, message):
    with pytest.raises(ValueError, match=f"t.csv.*{message}"):
        table(folder, header, **options)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        CsvTable(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="not a file"):
        CsvTable(tmp_path)


def test_a_line_without_end_is_no_table(folder, monkeypatch):
    monkeypatch.setattr(csv_table, "MAX_LINE_BYTES", 1000)
    with pytest.raises(ValueError, match="longer"):
        table(folder, "image,caption\n" + "x" * 2000)


# Bad rows


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ("a.jpg", "unreadable row", "1 cells for 2 columns"),
        ("a.jpg,one, two", "unreadable row", "3 cells for 2 columns"),
        ('a.jpg,"one" two', "unreadable row", "expected after"),
        (",one", "no image", ""),
        ("  ,one", "no image", ""),
        ("https://example.org/a.jpg,one", "no image", "img2dataset"),
        ("nothere.jpg,one", "missing file", "nothere.jpg"),
        ("a.jpg/b.jpg,one", "missing file", ""),
        ("x\0y.jpg,one", "missing file", ""),
        ("x" * 5000 + ",one", "missing file", ""),
        ("loop,one", "missing file", ""),
        (".,one", "missing file", "not a file"),
        ("pipe,one", "missing file", "not a file"),
        ("empty.jpg,one", "empty image", "empty.jpg"),
        ("a.jpg,", "empty caption", ""),
        (b"a.jpg,\xff\xfe", "unreadable caption", "UTF-8"),
        (b"\xff.jpg,one", "missing file", r"\udcff.jpg"),
    ],
)
def test_bad_rows_have_a_reason_and_spoil_no_other(folder, row, reason, detail):
    (folder / "empty.jpg").touch()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    row = row if isinstance(row, bytes) else row.encode()
    source = table(folder, b"image,caption\na.jpg,before\n" + row + b"\nb.jpg,after\n")
    found = bad(source, 1)
    assert found.reason == reason
    assert found.location == f"{folder / 't.csv'}: row 2"
    assert detail in found.detail
    found.detail.encode()  # can be printed
    assert [source.read(0).captions, source.read(2).captions] == [("before",), ("after",)]


def test_unclosed_quote_is_a_bad_sample(folder):
    source = table(folder, 'image,caption\na.jpg,one\na.jpg,"two\na.jpg,three\nb.jpg,"four"\na.jpg,five\n')
    assert len(source) == 5  # it costs its own row, not those after it
    assert source.read(0).captions == ("one",)
    assert bad(source, 1).reason == "unreadable row"
    assert [source.read(row).captions for row in (2, 3, 4)] == [("three",), ("four",), ("five",)]
    rows = "".join(f"a.jpg,number {n}\n" for n in range(500))
    source = table(folder, f'image,caption\na.jpg,one\na.jpg,"two\n{rows}')
    assert [len(source), bad(source, 1).reason] == [502, "unreadable row"]
    assert source.read(501).captions == ("number 499",)


@pytest.mark.parametrize("order", [("image", "caption"), ("caption", "image")])
def test_an_open_quote_that_a_later_row_closes_costs_its_own_row_only(folder, order):
    texts = ['"so called', "one", "two", "", 'end"', "four"]
    lines = ["\t".join({"image": "a.jpg", "caption": text}[name] for name in order) for text in texts]
    source = table(folder, "\t".join(order) + "\n" + "\n".join(lines) + "\n", "t.tsv")
    assert len(source) == 6
    assert bad(source, 0) == ("unreadable row", f"{folder / 't.tsv'}: row 1", "an unclosed quote")
    assert [source.read(row).captions[0] for row in (1, 2, 4, 5)] == ["one", "two", 'end"', "four"]
    assert bad(source, 3).reason == "empty caption"


def test_unclosed_quote_among_images_of_other_extensions(folder):
    (folder / "a").touch()
    for name in ("a", "a.ppm"):
        (folder / name).write_bytes(b"x")
        source = table(folder, f'image,caption\n{name},"one\n{name},two"\n')
        assert [len(source), bad(source, 0).detail] == [2, "an unclosed quote"]
        assert source.read(1).captions == ('two"',)


def test_line_ends_within_a_caption_are_no_open_quote(folder):
    """Though the second line of it, by itself, has as many cells as there are columns."""
    source = table(folder, 'image,caption\na.jpg,"one,\nor two, or\nthree"\nb.jpg,"four\n\nfive, six"\n')
    assert source.read(0).captions == ("one,\nor two, or\nthree",)
    assert source.read(1).captions == ("four\n\nfive, six",)
    source = table(folder, 'image\n"a.jpg"\n"a.jpg\nb.jpg"\n', captions=())  # one column: nothing to tell by
    assert [len(source), bad(source, 1).reason] == [2, "missing file"]


def test_many_unclosed_quotes_are_read_in_linear_time(folder):
    rows = 'a.jpg,"one\n' * 3 + "".join(f'a.jpg,"{n}\n' for n in range(20_000))
    source = table(folder, "image,caption\n" + rows)
    assert [len(source), bad(source, 20_002).reason] == [20_003, "unreadable row"]


def test_empty_cells_after_the_last_column_are_harmless(folder):
    assert table(folder, "image,caption\na.jpg,one,,\n").read(0).captions == ("one",)


def test_a_blank_caption_among_several_is_left_out(folder):
    source = table(folder, "image,c,d\na.jpg,,two\n", captions=("c", "d"))
    assert source.read(0).captions == ("two",)


def test_truncated_table_gives_bad_samples(folder):
    source = table(folder, "image,caption\na.jpg,one\na.jpg,two\n")
    (folder / "t.csv").write_text("image,caption\n")
    assert bad(source, 1).reason == "unreadable row"


# Where images are, copies, fingerprints


def test_paths_are_relative_to_the_folder_that_is_given(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    source = table(other, f"image,caption\na.jpg,one\n{folder / 'b.jpg'},two\n", folder=folder)
    assert [source.read(i).image for i in range(2)] == [folder / "a.jpg", folder / "b.jpg"]


def test_a_copy_reads_the_same(folder):
    source = table(folder, "image,caption\na.jpg,one\nb.jpg,two\n")
    source.read(0)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(1) == source.read(1)
    assert copy.fingerprint() == source.fingerprint()


def test_fingerprint_depends_on_content(folder, tmp_path_factory):
    content = "image,caption,text\na.jpg,one,x\nb.jpg,two,y\n"
    first = table(folder, content).fingerprint()
    assert table(tmp_path_factory.mktemp("moved"), content).fingerprint() == first
    assert table(folder, "image,caption,text\nb.jpg,two,y\na.jpg,one,x\n").fingerprint() != first
    assert table(folder, content, captions=["text"]).fingerprint() != first


def test_ten_million_rows_would_fit(folder):
    source = table(folder, "image,caption\n" + "a.jpg,one\n" * 20_000)
    assert len(pickle.dumps(source)) < 20_000 * 8 + 2000
    assert source.read(19_999).captions == ("one",)


def test_usual_columns_are_found_in_capitals(folder):
    assert table(folder, "URL,TEXT\na.jpg,one\n").read(0).captions == ("one",)


def test_an_open_quote_before_a_row_in_capitals(folder):
    (folder / "B.JPG").write_bytes(b"x")
    source = table(folder, 'image,caption\na.jpg,"one\n B.JPG ,two"\n')
    assert [len(source), bad(source, 0).detail] == [2, "an unclosed quote"]
    assert source.read(1).image == folder / "B.JPG"


def test_missing_file_with_a_name_that_is_not_utf8_is_reported(folder):
    found = bad(table(folder, b"image,caption\n\xff.jpg,one\n"), 0)
    assert found.reason == "missing file"
    found.detail.encode()


def test_with_one_column_a_line_end_in_a_path_is_no_open_quote(folder):
    source = table(folder, 'image\n"a.jpg"\n"a.jpg\nb.jpg\nc"\n', captions=())
    assert [len(source), bad(source, 1).reason] == [2, "missing file"]
