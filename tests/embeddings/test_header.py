"""The header of a data set: written and read, and which runs may resume."""

from dataclasses import replace

import pytest

from prolip.embeddings import header
from prolip.embeddings.header import DatasetHeader, check_same_header, has_embeddings
from prolip.storage.folders import open_storage

HEADER = DatasetHeader(
    model="scenes-tiny",
    identity="0123456789abcdef",
    dim=8,
    has_uncertainty=True,
    scale=10.5,
    logit_bias=-9.25,
    variances="full",
    precision="float32",
    modality=None,
    data="shards/{0..3}.tar",
    captions=("txt", "json:caption"),
    image=None,
    fingerprint="fedcba9876543210",
    part_size=4096,
    parts=3,
    columns={"uid": "string", "width": "int64"},
)


def test_header_write_and_read(tmp_path):
    HEADER.write(tmp_path)
    assert has_embeddings(tmp_path)
    assert DatasetHeader.read(tmp_path) == HEADER
    assert DatasetHeader.from_json(HEADER.to_json(), "here") == HEADER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "here must be an object with named values"),
        ('{"version": 1, "what": "both"}', "here has format version 1, but .* version 5"),
        (HEADER.to_json().replace('"full"', '"half"'), "variances 'half' is not one of"),
        (
            HEADER.to_json().replace('"modality": null', '"modality": "sounds"'),
            "modality 'sounds' is not one of",
        ),
        (HEADER.to_json().replace('"dim"', '"dims"'), r"unknown keys \['dims'\]"),
        (
            HEADER.to_json().replace(f'"parts": {HEADER.parts}', '"parts": "1"'),
            "parts must be a whole number",
        ),
        (
            HEADER.to_json().replace(f'"parts": {HEADER.parts}', '"parts": -1'),
            "parts must be at least 0, not -1",
        ),
        (HEADER.to_json().replace('"dim": 8', '"dim": 0'), "dim must be at least 1, not 0"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_from_json_rejects_invalid_headers(text, message):
    with pytest.raises(ValueError, match=message):
        DatasetHeader.from_json(text, "here")


def test_read_without_header_file_raises(tmp_path):
    assert not has_embeddings(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no embeddings: prolip\.json is missing"):
        DatasetHeader.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity": "0" * 16}, "another model"),
        ({"fingerprint": "0" * 16}, "other data"),
        ({"variances": "trace", "part_size": 7}, "variances full, not trace; part_size 4096, not 7"),
        ({"precision": "float16"}, "precision float32, not float16"),
        ({"decode": "fast"}, "decode exact, not fast"),
        ({"modality": "text"}, "modality unset, not text"),
    ],
)
def test_check_same_header_rejects_differences(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        check_same_header(HEADER, replace(HEADER, **changes), open_storage(tmp_path))


def test_check_same_header_ignores_moved_model_and_data(tmp_path):
    """A model may have moved, and so may the data: their identities count."""
    check_same_header(
        HEADER, replace(HEADER, model="elsewhere", data="moved", columns={}), open_storage(tmp_path)
    )


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
def test_has_embeddings_does_not_open_data_uris(data, monkeypatch):
    monkeypatch.setattr(header, "open_storage", lambda where: pytest.fail("the storage was opened"))
    assert not has_embeddings(data)
