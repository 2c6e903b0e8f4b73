"""Extra columns: metadata of samples as typed columns."""

from collections import Counter

import pytest

from prolip.embeddings.extra_columns import (
    build_column,
    count_unknown_columns,
    find_url,
    flatten_extra,
    infer_types,
)
from prolip.embeddings.sample_metadata import SampleMetadata


def make_metadata(captions=("a cat",), **extra):
    return SampleMetadata("key", tuple(captions), extra)


def test_json_fields_are_columns_and_captions_are_not():
    metadata = make_metadata(
        json={"uid": "ab", "title": "a cat", "width": 3, "exif": None}, cls=7, txt="a cat\n"
    )
    assert flatten_extra(metadata) == {"uid": "ab", "title": "a cat", "width": 3, "cls": 7, "txt": "a cat\n"}
    assert infer_types([metadata]) == {"cls": "int64", "uid": "string", "width": "int64"}


def test_infer_types_includes_columns_that_sometimes_differ_from_the_caption():
    labels = [make_metadata(["cat"], label="cat"), make_metadata(["a dog"], label="dog")]
    assert infer_types(labels) == {"label": "string"}
    assert build_column("label", "string", [flatten_extra(one) for one in labels], Counter()) == [
        "cat",
        "dog",
    ]


def test_count_unknown_columns():
    invalid = Counter()
    count_unknown_columns({"uid"}, make_metadata(json={"uid": "a", "height": 3}, txt="a cat"), invalid)
    assert invalid == {"height": 1}


def test_lone_surrogates_are_escaped():
    metadata = make_metadata(json={"url": "http://\ud800", "a\udc80": 1})
    assert find_url(metadata) == "http://\\ud800"
    assert flatten_extra(metadata) == {"a\\udc80": 1}


def test_builtin_column_names_get_an_underscore():
    assert flatten_extra(make_metadata(json={"id": 5, "mean": 0.5}, index=1)) == {
        "id_": 5,
        "mean_": 0.5,
        "index_": 1,
    }
    assert flatten_extra(make_metadata(id_=1, json={"id": 2})) == {"id_": 1, "id__": 2}


def test_find_url():
    metadata = make_metadata(json={"url": "https://example.org/cat.jpg"})
    assert find_url(metadata) == "https://example.org/cat.jpg"
    assert find_url(make_metadata(url="https://example.org")) == "https://example.org"
    assert find_url(make_metadata(url=5, json={})) is None
    assert infer_types([metadata]) == {}


@pytest.mark.parametrize(
    ("values", "arrow_type"),
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
def test_infer_types_of_mixed_values(values, arrow_type):
    assert infer_types(make_metadata(x=value) for value in values) == {"x": arrow_type}


def test_build_column_counts_values_of_another_type():
    invalid = Counter()
    rows = [{"x": 1}, {}, {"x": "two"}, {"x": 3.5}, {"x": True}]
    assert build_column("x", "int64", rows, invalid) == [1, None, None, None, None]
    assert invalid == {"x": 3}
    assert build_column("x", "double", rows, invalid) == [1.0, None, None, 3.5, None]
    assert invalid == {"x": 5}


def test_build_column_of_strings_takes_all_values():
    invalid = Counter()
    rows = [{"x": "a"}, {"x": [1, "b"]}, {"x": 2}, {"x": "half \udc80"}]
    assert build_column("x", "string", rows, invalid) == ["a", '[1, "b"]', "2", "half \\udc80"]
    assert not invalid
