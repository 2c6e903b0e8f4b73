"""What came along with samples, as typed columns."""

from collections import Counter

import pytest

from prolip.embeddings.extra_columns import address_of, cells, count_unknown, kinds_of, values_of
from prolip.embeddings.sample_metadata import Facts


def facts(captions=("a cat",), **extra):
    return Facts("key", tuple(captions), extra)


def test_fields_of_json_are_columns_and_captions_are_not():
    told = facts(json={"uid": "ab", "title": "a cat", "width": 3, "exif": None}, cls=7, txt="a cat\n")
    assert values_of(told) == {"uid": "ab", "title": "a cat", "width": 3, "cls": 7, "txt": "a cat\n"}
    assert kinds_of([told]) == {"cls": "int64", "uid": "string", "width": "int64"}


def test_what_is_sometimes_the_caption_is_a_column():
    labels = [facts(["cat"], label="cat"), facts(["a dog"], label="dog")]
    assert kinds_of(labels) == {"label": "string"}
    assert cells("label", "string", [values_of(one) for one in labels], Counter()) == ["cat", "dog"]


def test_what_no_sample_had_at_first_is_counted():
    misfits = Counter()
    count_unknown({"uid"}, facts(json={"uid": "a", "height": 3}, txt="a cat"), misfits)
    assert misfits == {"height": 1}


def test_half_a_character_is_spelt_out():
    told = facts(json={"url": "http://\ud800", "a\udc80": 1})
    assert address_of(told) == "http://\\ud800"
    assert values_of(told) == {"a\\udc80": 1}


def test_names_of_our_own_columns_are_kept_apart():
    assert values_of(facts(json={"id": 5, "mean": 0.5}, number=1)) == {"id_": 5, "mean_": 0.5, "number_": 1}
    assert values_of(facts(id_=1, json={"id": 2})) == {"id_": 1, "id__": 2}


def test_an_address_has_a_column_of_its_own():
    told = facts(json={"url": "https://example.org/cat.jpg"})
    assert address_of(told) == "https://example.org/cat.jpg"
    assert address_of(facts(url="https://example.org")) == "https://example.org"
    assert address_of(facts(url=5, json={})) is None
    assert kinds_of([told]) == {}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False], "bool"),
        ([1, 2], "int64"),
        ([1, 2.5], "double"),
        ([1, "x"], "string"),
        ([True, 1], "string"),
        ([2**63], "string"),
        ([[1, 2]], "string"),
    ],
)
def test_the_type_that_holds_all(values, kind):
    assert kinds_of(facts(x=value) for value in values) == {"x": kind}


def test_a_value_of_another_type_is_null_and_counted():
    misfits = Counter()
    rows = [{"x": 1}, {}, {"x": "two"}, {"x": 3.5}, {"x": True}]
    assert cells("x", "int64", rows, misfits) == [1, None, None, None, None]
    assert misfits == {"x": 3}
    assert cells("x", "double", rows, misfits) == [1.0, None, None, 3.5, None]
    assert misfits == {"x": 5}


def test_texts_take_everything():
    misfits = Counter()
    rows = [{"x": "a"}, {"x": [1, "b"]}, {"x": 2}, {"x": "half \udc80"}]
    assert cells("x", "string", rows, misfits) == ["a", '[1, "b"]', "2", "half \\udc80"]
    assert not misfits
