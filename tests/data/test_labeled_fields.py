"""Labels in JSON fields, files of tars and columns of tables."""

import io
import json
from types import SimpleNamespace

import pytest
from PIL import Image

from prolip.data.labeled_fields import open_labeled_fields
from prolip.data.sources.labeled import read_label
from tests.data.tar_files import tar_bytes

CLASSES = ["red fox", "crane", "red fox", "bus"]
NUMBERS = [2, 1, 2, 0]


@pytest.fixture
def shard(tmp_path):
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    files = []
    for n, (name, number) in enumerate(zip(CLASSES, NUMBERS, strict=True)):
        fields = {"meta": {"class": number, "name": name}, "flag": True}
        files += [
            (f"{n}.png", image.getvalue()),
            (f"{n}.txt", f"{name}\n".encode()),
            (f"{n}.json", json.dumps(fields).encode()),
        ]
    (tmp_path / "a.tar").write_bytes(tar_bytes(files))
    return tmp_path / "a.tar"


def read_labels(data):
    return data.labels([data.source.read(index) for index in range(len(data.source))]).tolist()


@pytest.mark.parametrize("field", ["txt", "json:meta.name"])
def test_names_that_occur_are_the_classes(shard, field):
    data = open_labeled_fields(shard, field)
    assert data.class_names == ("bus", "crane", "red fox")
    assert read_labels(data) == NUMBERS
    assert open_labeled_fields(shard, field, templates=["a {}!"]).templates == ("a {c}!",)


def test_numbers_need_names(shard):
    names = ["a bus", "a crane", "a fox"]
    data = open_labeled_fields(shard, "json:meta.class", class_names=names)
    assert read_labels(data) == NUMBERS
    with pytest.raises(ValueError, match=r"of 0 is the number 2, so class names"):
        open_labeled_fields(shard, "json:meta.class")


def test_names_select_among_given_classes(shard):
    names = ["crane", "cow", "bus", "red fox"]
    assert read_labels(open_labeled_fields(shard, "txt", class_names=names)) == [3, 0, 3, 2]
    with pytest.raises(ValueError, match=r"label 'bus', which is no class name"):
        read_labels(open_labeled_fields(shard, "txt", class_names=["crane", "red fox"]))


def test_a_column_of_a_table(tmp_path):
    lines = ["image,kind"]
    for n, name in enumerate(CLASSES):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{n}.png")
        lines.append(f"{n}.png,{name}")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert read_labels(open_labeled_fields(tmp_path / "a.csv", "kind")) == NUMBERS


@pytest.mark.parametrize("field", ["cls", "json:class", "json:flag", "json"])
def test_missing_labels(shard, field):
    with pytest.raises(ValueError, match=f"no sample has a class name in '{field}'"):
        open_labeled_fields(shard, field)
    data = open_labeled_fields(shard, field, class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"0 has no label"):
        read_labels(data)


def test_parsed_metadata_is_read_like_files():
    parsed = SimpleNamespace(extra={"json": {"class": 7, "name": " crane "}, "txt": "12", "cls": 3})
    found = [
        read_label(parsed.extra, field) for field in ("json:class", "json:name", "txt", "cls", "json:no")
    ]
    assert found == [7, "crane", 12, 3, None]
    assert read_label({"json": b"{"}, "json:class") is None
