"""Files of captions: the same captions out of every format; Parquet by row groups."""

import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prolip.data.sample import BadSampleError
from prolip.data.source import FileBacked, Source
from prolip.data.sources.captions import ParquetCaptions, iter_captions, open_captions

TEXTS = ["a cat", "", " a dog ", "an animal => a bird", "é", " "]
CAPTIONS = ["a cat", "a dog", "an animal", "a bird", "é"]


def write(path, texts):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"number": range(len(texts)), "text": texts}), path, row_group_size=2)
    elif path.suffix == ".json":
        path.write_text(json.dumps(texts))
    elif path.suffix == ".csv":
        path.write_text("\n".join(["id,caption", *(f"{n},{text}" for n, text in enumerate(texts))]))
    else:
        path.write_text("\n".join(texts))
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.list", "a.json", "a.csv", "a.parquet"])
def test_the_same_captions_of_every_format(tmp_path, name):
    source = open_captions(write(tmp_path / name, TEXTS))
    assert isinstance(source, Source)
    assert isinstance(source, FileBacked)
    assert list(iter_captions(source)) == CAPTIONS
    assert source.chunks.sum() == len(source)
    assert source.files() == [tmp_path / name]
    assert source.name == str(tmp_path / name)
    assert list(iter_captions(pickle.loads(pickle.dumps(source)))) == CAPTIONS
    same = open_captions(write(tmp_path / name, TEXTS))
    assert same.fingerprint() == source.fingerprint()
    assert open_captions(write(tmp_path / name, ["a fox", *TEXTS])).fingerprint() != source.fingerprint()
    with pytest.raises(IndexError):
        source.read(len(source))


def test_row_groups_are_read_when_they_are_needed(tmp_path, monkeypatch):
    source = ParquetCaptions(write(tmp_path / "a.parquet", [f"caption {n}" for n in range(7)]))
    assert source.chunks.tolist() == [2, 2, 2, 1]
    seen, real = [], source._load
    monkeypatch.setattr(source, "_load", lambda part: (seen.append(part.row_group), real(part))[1])
    for number in [0, 1, 6, 5, 4, 6, 0]:
        sample = source.read(number)
        assert sample.captions == (f"caption {number}",)
        assert (sample.key, sample.image, sample.extra) == (str(number), b"", {"number": number})
        assert sample.location == f"{tmp_path / 'a.parquet'}: row {number + 1}"
    assert seen == [0, 3, 2, 0], "two stay: of 6, 5, 4, 6 none is read twice"


def test_several_captions_a_row(tmp_path):
    lists = pa.array([["a cat", "an animal"], [], None, ["a dog"]], pa.list_(pa.string()))
    pq.write_table(pa.table({"captions": lists, "title": ["t"] * 4}), tmp_path / "a.parquet")
    source = open_captions(tmp_path / "a.parquet")
    assert source.read(0).captions == ("a cat", "an animal")
    for number in (1, 2):
        with pytest.raises(BadSampleError, match="no caption"):
            source.read(number)
    both = open_captions(tmp_path / "a.parquet", ["title", "captions"])
    assert both.read(3).captions == ("t", "a dog")
    assert both.fingerprint() != source.fingerprint()


def test_image_files_are_not_read_and_other_columns_are_extra(tmp_path):
    pictures = pa.array([{"bytes": b"png", "path": "a.png"}] * 2)
    columns = {"image": pictures, "jpg": [b"x", b"y"], "caption": ["a cat", "a dog"], "width": [3, 4]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert open_captions(tmp_path / "a.parquet").read(1).extra == {"width": 4}
    assert open_captions(tmp_path / "a.parquet", ["jpg"]).read(1).captions == ("y",)


def test_text_that_is_not_utf8_makes_only_its_row_bad(tmp_path):
    column = pa.array([b"a cat", b"\xff\xfe", b"a\0b"]).view(pa.string())
    pq.write_table(pa.table({"caption": column}), tmp_path / "a.parquet")
    source = open_captions(tmp_path / "a.parquet")
    assert source.read(0).captions == ("a cat",)
    for number in (1, 2):
        with pytest.raises(BadSampleError) as caught:
            source.read(number)
        assert caught.value.record.reason == "unreadable caption"


def test_damaged_row_groups_and_changed_files_raise(tmp_path):
    path = write(tmp_path / "a.parquet", ["a cat"] * 6)
    source = open_captions(path)
    write(path, ["a cat"] * 3)
    for number, message in ((2, "changed"), (5, "unreadable row")):
        with pytest.raises(BadSampleError, match=message):
            ParquetCaptions.read(source, number)
    path.write_bytes(b"PAR1" + bytes(30))
    with pytest.raises(BadSampleError, match="damaged"):
        source.read(5)
    with pytest.raises(ValueError, match="damaged or of another format"):
        open_captions(path)


def test_in_a_list_what_is_no_text_is_bad_alone(tmp_path):
    source = open_captions(write(tmp_path / "a.json", ["a cat", 3, None, ["a dog", "a fox"], "\ud800"]))
    assert source.read(3).captions == ("a dog", "a fox")
    reasons = []
    for number in (1, 2, 4):
        with pytest.raises(BadSampleError) as caught:
            source.read(number)
        reasons.append(caught.value.record.reason)
    assert reasons == ["unreadable caption", "no caption", "unreadable caption"]
    with pytest.raises(ValueError, match="caption 2: unreadable caption"):
        list(iter_captions(source))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\n \n", "empty caption"),
        ("a.txt", b"", "has no caption"),
        ("a.txt", b"\xff\xfa\xfa", "not UTF-8"),
        ("a.json", b"{", "can't be read"),
        ("a.json", b"\xff", "can't be read"),
        ("a.json", b'{"a": 1}', "list of texts"),
        ("a.json", b"[]", "has no caption"),
        ("a.csv", b"id,url\n1,2\n", "no column caption"),
        ("a.csv", b"id,caption\n", "has no caption"),
    ],
)
def test_files_without_captions(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_captions(tmp_path / name)


def test_other_bad_input(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file of captions"):
        open_captions(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="no columns to choose"):
        open_captions(write(tmp_path / "a.txt", TEXTS), ["caption"])
