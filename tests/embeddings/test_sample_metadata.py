"""Metadata of samples: types, limits and errors."""

import io
import json

import numpy as np
import pytest

from prolip.data.sample import BadSampleError, Sample
from prolip.embeddings.sample_metadata import MAX_ARRAY_SIZE, MAX_JSON_BYTES, MAX_TEXT_BYTES, collect_metadata


def npy(values):
    file = io.BytesIO()
    np.save(file, np.asarray(values))
    return file.getvalue()


def extra(**members):
    return collect_metadata(Sample("k", "here", b"", ("a caption",), members)).extra


def test_collect_metadata_parses_members_by_extension():
    found = extra(
        cls=b" 7\n", npy=npy([3, 4]), json=b'{"a": [1]}', txt="grün".encode(), region="Asia", year=2016
    )
    assert found == {
        "cls": 7,
        "npy": [3, 4],
        "json": {"a": [1]},
        "txt": "grün",
        "region": "Asia",
        "year": 2016,
    }
    assert json.loads(json.dumps(found)) == found


def test_collect_metadata_converts_numpy_scalars():
    assert extra(a=np.int64(3), b=np.float32(0.5)) == {"a": 3, "b": 0.5}


@pytest.mark.parametrize(
    "value",
    [b"\xff\xfe", b"x" * (MAX_TEXT_BYTES + 1), object(), {"a": object()}, None],
    ids=["not UTF-8", "long", "object", "object inside", "none"],
)
def test_collect_metadata_drops_what_json_can_not_hold(value):
    assert extra(other=value) == {}


def test_collect_metadata_never_loads_pickles():
    assert extra(npy=npy(np.array([object()], dtype=object))) == {}


def test_collect_metadata_requires_integer_labels():
    with pytest.raises(BadSampleError, match="b'cat', not an integer"):
        extra(cls=b"cat")


def test_collect_metadata_size_limits():
    assert extra(txt=b"x" * MAX_TEXT_BYTES) == {"txt": "x" * MAX_TEXT_BYTES}
    for size, is_kept in ((MAX_JSON_BYTES - 2, True), (MAX_JSON_BYTES - 1, False)):
        text = "x" * size  # two quotes more in JSON
        assert extra(json=json.dumps(text).encode()) == ({"json": text} if is_kept else {})
        assert extra(column=text) == ({"column": text} if is_kept else {})
    assert len(extra(npy=npy([0] * MAX_ARRAY_SIZE))["npy"]) == MAX_ARRAY_SIZE
    assert extra(npy=npy([0] * (MAX_ARRAY_SIZE + 1))) == {}


def test_collect_metadata_of_arrays():
    assert extra(npy=npy([True, False])) == {"npy": [True, False]}
    assert extra(npy=npy([[0.5, 1.5]])) == {"npy": [0.5, 1.5]}
    assert extra(npy=npy(["a"])) == {}


def test_collect_metadata_uses_the_last_extension():
    assert extra(**{"label.cls": b"3", "meta.json": b"[1]"}) == {"label.cls": 3, "meta.json": [1]}


DAMAGED = {
    "zip archive": b"PK\x03\x04" + b"0" * 40,
    "npz": None,
    "huge shape": npy([1]).replace(b"(1,)", b"(2**40,)"),
    "overflow": npy([1]).replace(b"(1,), }", b"(9" + b"9" * 30 + b",), }"),
    "unclosed header": npy([1]).replace(b"}", b"("),
    "odd type": npy([1]).replace(b"'<i8'", b"[[1]]"),
    "wrong key": npy([1]).replace(b"'descr'", b"'desc('"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_arrays_are_left_out(name):
    content = DAMAGED[name]
    if content is None:
        file = io.BytesIO()
        np.savez(file, a=[1])
        content = file.getvalue()
    assert extra(npy=content, txt=b"x") == {"txt": "x"}


def test_no_flipped_byte_of_an_array_raises():
    whole = npy([3, 4])
    for position in range(len(whole)):
        for flip in (1, 0x20, 0x80):
            damaged = bytearray(whole)
            damaged[position] ^= flip
            extra(npy=bytes(damaged))
