"""What is remembered of a sample."""

import io
import json

import numpy as np
import pytest

from prolip.data.sample import BadSampleError, Sample
from prolip.embeddings.sample_metadata import MOST_JSON, MOST_NUMBERS, MOST_TEXT, facts_of


def npy(values):
    file = io.BytesIO()
    np.save(file, np.asarray(values))
    return file.getvalue()


def extra(**members):
    return facts_of(Sample("k", "here", b"", ("a caption",), members)).extra


def test_small_members_by_their_kind():
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


def test_numbers_of_numpy_are_plain():
    assert extra(a=np.int64(3), b=np.float32(0.5)) == {"a": 3, "b": 0.5}


@pytest.mark.parametrize(
    "value",
    [b"\xff\xfe", b"x" * (MOST_TEXT + 1), object(), {"a": object()}, None],
    ids=["not UTF-8", "long", "object", "object inside", "none"],
)
def test_what_json_does_not_know_is_left_out(value):
    assert extra(other=value) == {}


def test_pickles_are_never_opened():
    assert extra(npy=npy(np.array([object()], dtype=object))) == {}


def test_a_label_must_be_a_whole_number():
    with pytest.raises(BadSampleError, match="not a whole number"):
        extra(cls=b"cat")


def test_how_large_a_member_may_be():
    assert extra(txt=b"x" * MOST_TEXT) == {"txt": "x" * MOST_TEXT}
    for size, is_kept in ((MOST_JSON - 2, True), (MOST_JSON - 1, False)):
        text = "x" * size  # two quotes more in JSON
        assert extra(json=json.dumps(text).encode()) == ({"json": text} if is_kept else {})
        assert extra(column=text) == ({"column": text} if is_kept else {})
    assert len(extra(npy=npy([0] * MOST_NUMBERS))["npy"]) == MOST_NUMBERS
    assert extra(npy=npy([0] * (MOST_NUMBERS + 1))) == {}


def test_arrays_of_every_kind_of_number():
    assert extra(npy=npy([True, False])) == {"npy": [True, False]}
    assert extra(npy=npy([[0.5, 1.5]])) == {"npy": [0.5, 1.5]}
    assert extra(npy=npy(["a"])) == {}


def test_the_last_ending_tells_the_kind():
    assert extra(**{"label.cls": b"3", "meta.json": b"[1]"}) == {"label.cls": 3, "meta.json": [1]}
