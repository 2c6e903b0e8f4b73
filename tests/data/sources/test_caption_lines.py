"""Lines and rows by their bytes, against the whole file at once; every kind of bad one by its reason."""

import csv
import io
import pickle
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from prolip.data.sample import BadSampleError
from prolip.data.sources import caption_lines
from prolip.data.sources.caption_lines import (
    LineCaptions,
    TableCaptions,
    make_caption_sample,
    require_caption_columns,
)

LETTERS = ["a", "é", " ", "\t", "x" * 9, "\x85", "\u2028", "=", ">", '"', ","]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines_of(folder, content):
    return LineCaptions(written(folder, "a.txt", content))


def table_of(folder, content, name="a.csv", captions=None):
    return TableCaptions(written(folder, name, content), captions)


def bad(source, index):
    with pytest.raises(BadSampleError) as caught:
        source.read(index)
    return caught.value.record


def captions_or_reasons(source):
    found = []
    for number in range(len(source)):
        try:
            found.append(source.read(number).captions)
        except BadSampleError as error:
            found.append(error.record.reason)
    return found


def expected_of(text):
    return tuple(part.strip() for part in text.split("=>") if part.strip()) or "empty caption"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.lists(st.sampled_from(LETTERS), max_size=4).map("".join), max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    last_line_ends=st.booleans(),
    block=st.integers(1, 20),
)
def test_lines_are_those_of_the_whole_text(tmp_path, lines, end, mark, last_line_ends, block):
    text = end.join(["first", *lines]) + (end if last_line_ends else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caption_lines, "BLOCK", block)
        source = lines_of(tmp_path, mark + text.encode())
    assert captions_or_reasons(source) == [expected_of(line) for line in text.split(end) if line]


def test_a_sample_of_a_line(tmp_path):
    source = lines_of(tmp_path, "a cat\n\n a dog => an animal \n")
    sample = source.read(1)
    assert (sample.key, sample.image, sample.captions) == ("1", b"", ("a dog", "an animal"))
    assert sample.location == f"{tmp_path / 'a.txt'}: caption 2"
    assert source.name == str(tmp_path / "a.txt")
    assert source.chunks.tolist() == [2]
    assert source.files() == [tmp_path / "a.txt"]
    with pytest.raises(IndexError):
        source.read(2)
    assert len(lines_of(tmp_path, "")) == len(lines_of(tmp_path, "\n\n\r\n")) == 0


def test_bad_line_is_one_bad_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(caption_lines, "MAX_TEXT_BYTES", 10)
    source = lines_of(tmp_path, b"a cat\n\xff\xfe\na\0b\n \n" + b"x" * 11 + b"\n0123456789")
    assert bad(source, 1).reason == bad(source, 2).reason == bad(source, 4).reason == "unreadable caption"
    assert "UTF-8" in bad(source, 1).detail
    assert "longer" in bad(source, 4).detail
    assert bad(source, 3).reason == "empty caption"
    assert source.read(0).captions == ("a cat",)
    assert source.read(5).captions == ("0123456789",)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.lists(
            st.lists(st.sampled_from([*LETTERS, "\n", "\r\n"]), max_size=4).map("".join),
            min_size=2,
            max_size=2,
        ),
        max_size=6,
    ),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    ending=st.sampled_from([".csv", ".tsv"]),
)
def test_rows_are_those_of_the_csv_module(tmp_path, rows, mark, ending):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if ending == ".tsv" else ",")
    writer.writerows([["id", "caption"], *rows])
    source = table_of(tmp_path, mark + text.getvalue().encode(), "a" + ending)
    assert captions_or_reasons(source) == [expected_of(caption) for _, caption in rows]
    for number, (identity, caption) in enumerate(rows):
        if expected_of(caption) != "empty caption":
            assert source.read(number).extra == {"id": identity}


def test_columns_and_delimiters(tmp_path):
    assert table_of(tmp_path, "id;Caption\n1;a, b\n").read(0).captions == ("a, b",)
    two = table_of(tmp_path, "short,id,long\na cat,1,a cat asleep\n", captions=("long", "short"))
    assert two.read(0).captions == ("a cat asleep", "a cat")
    assert two.read(0).extra == {"id": "1"}
    assert table_of(tmp_path, "\ncaption\n\na cat\n\n").read(0).captions == ("a cat",)


def test_bad_rows(tmp_path):
    source = table_of(tmp_path, b"id,caption\n1\n2,a,b\n3,\n4,\xff\n5,a cat,\n")
    assert [bad(source, 0).reason, bad(source, 1).reason] == ["unreadable row", "unreadable row"]
    assert bad(source, 1).detail == "3 cells for 2 columns"
    assert bad(source, 2).reason == "empty caption"
    assert bad(source, 3).reason == "unreadable caption"
    assert source.read(4).captions == ("a cat",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"id,url\n1,2\n", "no column caption"),
        (b'caption\na\n"b', "row 2 can't be read: unexpected end"),
        (b"\xff\xfei\0d\0", "UTF-16"),
        (b"caption\ra cat\ra dog\r", "end in CR"),
    ],
)
def test_files_that_are_not_tables_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        table_of(tmp_path, content)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(caption_lines, "MAX_LINE_BYTES", 16)
    with pytest.raises(ValueError, match="row 2 can't be read: a line is longer"):
        table_of(tmp_path, "caption\na cat\n" + 40 * "x")


def test_changed_table_gives_bad_samples(tmp_path):
    source = table_of(tmp_path, "caption,id\na cat,1\na dog,2\n")
    (tmp_path / "a.csv").write_text('caption,id\n"a"t,1\n')
    assert "changed" in bad(source, 0).detail
    assert bad(source, 1).reason == "unreadable row"


@pytest.mark.parametrize("make", [lines_of, table_of])
def test_fingerprints_are_of_the_content(tmp_path, make):
    source = make(tmp_path, "caption\na cat\n")
    assert pickle.loads(pickle.dumps(source)).read(0) == source.read(0)
    assert make(tmp_path, "caption\na cat\n").fingerprint() == source.fingerprint()
    assert make(tmp_path, "caption\na dog\n").fingerprint() != source.fingerprint()


def test_other_columns_are_other_data(tmp_path):
    content = "a,b\n1,2\n"
    one, other = (table_of(tmp_path, content, captions=(name,)) for name in "ab")
    assert one.fingerprint() != other.fingerprint()


# Columns and cells

PATH = Path("t.csv")


def test_require_caption_columns_prefers_the_usual_names_in_order():
    assert require_caption_columns(["text", "id", "Caption"], None, PATH) == ("Caption",)
    assert require_caption_columns(["txt", "text"], None, PATH) == ("text",)
    assert require_caption_columns(["CAPTION", "caption"], None, PATH) == ("caption",)
    assert require_caption_columns(["CAPTION", "Caption"], None, PATH) == ("CAPTION",)
    assert require_caption_columns(["a", "b", "c"], ["c", "a"], PATH) == ("c", "a")


@pytest.mark.parametrize(
    ("present", "asked"),
    [(["a"], None), (["a"], ["b"]), (["a"], []), (["a"], ["a", "a"]), (["caption", "caption"], None)],
)
def test_require_caption_columns_refuses_missing_and_repeated_columns(present, asked):
    with pytest.raises(ValueError, match=r"t\.csv"):
        require_caption_columns(present, asked, PATH)


@pytest.mark.parametrize(
    ("values", "captions"),
    [
        (["a cat"], ("a cat",)),
        ([b" an animal=>a cat "], ("an animal", "a cat")),
        ([["a cat", ["a dog => an animal", None]], "a bird"], ("a cat", "a dog", "an animal", "a bird")),
        (["a cat", 3], ("a cat",)),
    ],
)
def test_make_caption_sample_splits_captions(values, captions):
    sample = make_caption_sample(7, "here", values, {"id": 1})
    assert (sample.key, sample.location, sample.image, sample.extra) == ("7", "here", b"", {"id": 1})
    assert sample.captions == captions


@pytest.mark.parametrize(
    ("values", "reason"),
    [([], "no caption"), ([None], "no caption"), ([" => "], "empty caption"), ([3], "unreadable caption")],
)
def test_make_caption_sample_without_caption_is_bad(values, reason):
    with pytest.raises(BadSampleError) as caught:
        make_caption_sample(0, "here", values, {})
    assert caught.value.record.reason == reason
