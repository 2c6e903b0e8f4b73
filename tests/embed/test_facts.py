"""What is remembered of a sample."""

import io
import json

import numpy as np
import pytest

from prolip.data.sample import BadSampleError, Sample
from prolip.embed.facts import MOST_TEXT, facts_of


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
