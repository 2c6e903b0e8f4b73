"""What a folder of embeddings says of itself: there and back, and who may go on in it."""

from dataclasses import replace

import pytest

from prolip.embeddings import header
from prolip.embeddings.header import Header, is_embeddings, require_same
from prolip.embeddings.storage import place_of

HEADER = Header(
    model="scenes-tiny",
    identity="0123456789abcdef",
    dim=8,
    scale=10.5,
    bias=-9.25,
    variances="full",
    precision="float32",
    what="both",
    data="shards/{0..3}.tar",
    captions=("txt", "json:caption"),
    image=None,
    fingerprint="fedcba9876543210",
    part_size=4096,
    parts=3,
    columns={"uid": "string", "width": "int64"},
)


def test_there_and_back(tmp_path):
    HEADER.write(tmp_path)
    assert is_embeddings(tmp_path)
    assert Header.read(tmp_path) == HEADER
    assert Header.from_json(HEADER.to_json(), "here") == HEADER


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[]", "object with named values"),
        (HEADER.to_json().replace('"version": 1', '"version": 2'), "version 2; this prolip reads 1"),
        (HEADER.to_json().replace('"full"', '"half"'), "'half' is not one of"),
        (HEADER.to_json().replace('"dim"', '"dims"'), "unknown keys"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_header_is_a_sentence(text, told):
    with pytest.raises(ValueError, match=told):
        Header.from_json(text, "here")


def test_a_folder_without_a_header_is_none(tmp_path):
    assert not is_embeddings(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no embeddings: prolip\.json is missing"):
        Header.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"identity": "0" * 16}, "another model"),
        ({"fingerprint": "0" * 16}, "other data"),
        ({"variances": "trace", "part_size": 7}, "variances full, not trace; part_size 4096, not 7"),
        ({"precision": "float16"}, "precision float32, not float16"),
        ({"what": "texts"}, "what both, not texts"),
    ],
)
def test_who_may_not_go_on(tmp_path, changes, told):
    with pytest.raises(ValueError, match=told):
        require_same(HEADER, replace(HEADER, **changes), place_of(tmp_path))


def test_who_may(tmp_path):
    """A model may have moved, and so may the data: their identities count."""
    require_same(HEADER, replace(HEADER, model="elsewhere", data="moved", columns={}), place_of(tmp_path))


@pytest.mark.parametrize(
    "data",
    [
        "pipe:cat x.tar",
        "https://x.org/{0..3}.tar",
        "hf://datasets/a/b/c",
        "s3://pool/{000..001}.tar",
        "gs://a/0.tar",
    ],
)
def test_an_address_of_data_is_not_asked_for_embeddings(data, monkeypatch):
    monkeypatch.setattr(header, "place_of", lambda where: pytest.fail("it was asked"))
    assert not is_embeddings(data)
