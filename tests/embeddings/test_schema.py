"""The Arrow schema: rows of images and texts, and back to Gaussians."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from prolip.data.sample import SampleError
from prolip.data.sources.columns import DamagedFileError
from prolip.embeddings import schema
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.gaussian import Gaussian
from tests.embeddings.test_header import HEADER

D = HEADER.dim


@pytest.fixture
def part(draw):
    """Three samples with one, none and two captions; the third has no `width`, the first one that is none."""
    metadata = [
        SampleMetadata(
            "a", ("a cat",), {"json": {"uid": "u0", "width": "wide", "url": "https://x.org"}}, "0" * 16
        ),
        SampleMetadata("b", (), {"json": {"uid": "u1", "width": 4}}, "1" * 16),
        SampleMetadata("c", ("a dog", "an animal"), {"json": {"uid": "u2"}}, "2" * 16),
    ]
    z = draw(3, D, dtype=torch.float32)
    errors = {3: SampleError("no image", "here", "why")}
    return EncodedPart([z[:2], z[2:]], [0, 2, 5], metadata, [("pic/a.png", 1, 1), None, None], errors)


def test_make_part_table_rows_and_order(part, draw):
    texts = draw(3, D, dtype=torch.float32)
    made = schema.make_part_table(HEADER, 3, part, texts)
    made.validate(full=True)
    assert made.schema.equals(schema.make_schema(HEADER))
    columns = made.to_pydict()
    assert columns["id"] == ["a", "b", "c", "a", "c", "c"]
    assert columns["index"] == [0, 2, 5, 0, 5, 5]
    assert columns["modality"] == ["image"] * 3 + ["text"] * 3
    assert columns["caption"] == ["a cat", None, "a dog", "a cat", "a dog", "an animal"]
    assert columns["path"] == ["pic/a.png", None, None, "pic/a.png", None, None]
    assert columns["url"] == ["https://x.org", None, None, "https://x.org", None, None]
    assert columns["pixel_digest"] == ["0" * 16, "1" * 16, "2" * 16, None, None, None]
    assert columns["uid"] == ["u0", "u1", "u2", "u0", "u2", "u2"]
    assert columns["width"] == [None, 4, None, None, None, None]
    back = schema.read_gaussians(made)
    whole = Gaussian.cat([*part.gaussians, texts])
    assert torch.equal(back.mean, whole.mean)
    assert torch.equal(back.log_var, whole.log_var)
    assert torch.equal(schema.read_mean_traces(made).uncertainty, whole.uncertainty)


def test_part_metadata_write_and_parse(part):
    made = schema.make_part_table(HEADER, 3, part, None)
    found = schema.parse_part_metadata(made.schema.metadata)
    assert found.errors == part.errors
    assert found.num_samples == 4
    assert found.invalid_values == {"width": 1}
    schema.check_part_metadata(made.schema, len(made), HEADER, 3, "this")
    schema.check_part_metadata(made.select(["mean"]).schema, len(made), HEADER, 3, "this")
    without = {key: value for key, value in made.schema.metadata.items() if key != schema.CHECKSUM}
    schema.check_part_metadata(made.schema.with_metadata(without), len(made), HEADER, 3, "this")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: None, "not a part of an embedding data set. Remove it"),
        (lambda m: {k: v for k, v in m.items() if k != schema.DIGEST}, "not a part of an embedding data set"),
        (lambda m: {**m, schema.HEADER: b"{}"}, "its header differs"),
        (lambda m: {**m, schema.PART: b"4"}, "is part 4, not 3"),
        (lambda m: {**m, schema.NUM_SAMPLES: b"5"}, "its footer differs from its checksum. Remove it"),
        (lambda m: {**m, schema.ERRORS: b"{}"}, "its footer differs"),
        (lambda m: {**m, schema.CHECKSUM: b""}, "its footer differs"),
        (lambda m: {("Checksum" if k == b"checksum" else k): v for k, v in m.items()}, "its footer differs"),
    ],
)
def test_check_part_metadata_rejects_other_files(part, change, message):
    made = schema.make_part_table(HEADER, 3, part, None)
    changed = made.schema.with_metadata(change(made.schema.metadata))
    with pytest.raises(ValueError, match=f"this .*{message}"):
        schema.check_part_metadata(changed, len(made), HEADER, 3, "this")


def test_check_part_metadata_rejects_other_numbers_of_rows_and_types(part):
    made = schema.make_part_table(HEADER, 3, part, None)
    with pytest.raises(DamagedFileError, match="this is damaged"):
        schema.check_part_metadata(made.schema, len(made) + 1, HEADER, 3, "this")
    column = made.schema.get_field_index("index")
    other = made.schema.set(column, pa.field("index", pa.uint64()))
    with pytest.raises(DamagedFileError, match="this is damaged"):
        schema.check_part_metadata(other, len(made), HEADER, 3, "this")


def test_part_digest_depends_on_rows_only(part, draw):
    def digest(*arguments):
        return schema.parse_part_metadata(schema.make_part_table(*arguments).schema.metadata).digest

    first = digest(HEADER, 3, part, None)
    assert digest(HEADER, 4, part, None) == first
    texts = draw(3, D, dtype=torch.float32)
    assert digest(HEADER, 3, part, texts) != first
    part.metadata[0] = part.metadata[0]._replace(key="other")
    assert digest(HEADER, 3, part, None) != first


def test_unknown_columns_count_as_invalid_values(part):
    part.metadata[1] = part.metadata[1]._replace(extra={"json": {"uid": "u1", "height": 3, "again": "a cat"}})
    part.metadata[0] = part.metadata[0]._replace(extra={"again": "a cat"})
    metadata = schema.make_part_table(HEADER, 0, part, None).schema.metadata
    assert schema.parse_part_metadata(metadata).invalid_values == {"height": 1, "again": 1}


def test_make_part_table_of_one_modality(part, draw):
    images = schema.make_part_table(replace(HEADER, modality="image"), 0, part, None)
    assert images["modality"].to_pylist() == ["image"] * 3
    part.gaussians = []
    texts = schema.make_part_table(replace(HEADER, modality="text"), 0, part, draw(3, D))
    assert texts["modality"].to_pylist() == ["text"] * 3
    assert texts["index"].to_pylist() == [0, 5, 5]


def test_make_part_table_without_good_samples(draw):
    empty = EncodedPart.empty()
    for modality in (None, "image", "text"):
        made = schema.make_part_table(
            replace(HEADER, modality=modality), 0, empty, None if modality == "image" else draw(0, D)
        )
        assert made.num_rows == 0
        assert schema.read_mean_traces(made).mean.shape == (0, D)


def test_float16_applies_to_means_only(part):
    header = replace(HEADER, precision="float16")
    made = schema.make_part_table(header, 0, part, None)
    assert made.schema.field("mean").type == pa.list_(pa.float16(), D)
    whole = Gaussian.cat(part.gaussians)
    back = schema.read_gaussians(made)
    assert torch.equal(back.mean, whole.mean.half().float())
    assert not torch.equal(back.mean, whole.mean)
    assert torch.equal(back.log_var, whole.log_var)


def test_trace_variances_have_no_gaussians(part):
    made = schema.make_part_table(replace(HEADER, variances="trace"), 0, part, None)
    assert "log_var" not in made.schema.names
    whole = Gaussian.cat(part.gaussians)
    found = schema.read_mean_traces(made)
    assert torch.equal(found.mean, whole.mean)
    assert torch.equal(found.uncertainty, whole.uncertainty)
    with pytest.raises(ValueError, match="--variances full"):
        schema.read_gaussians(made)


def test_points_have_zero_uncertainty(part):
    part.gaussians = [Gaussian.point(Gaussian.cat(part.gaussians).mean)]
    made = schema.make_part_table(HEADER, 3, part, None)
    assert made["uncertainty"].to_pylist() == [0.0] * 3
    assert torch.isneginf(schema.read_gaussians(made).log_var).all()


def test_column_to_tensor_of_slices_and_chunks():
    """What was filtered or joined has offsets and chunks."""
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)
    chunked = pa.chunked_array([column.slice(1, 2), column.slice(4, 2)])
    assert schema.column_to_tensor(chunked).tolist() == values[[1, 2, 4, 5]].tolist()


def test_names_that_are_not_utf8_are_escaped(part):
    part.metadata[0] = part.metadata[0]._replace(key="half \udc80")
    part.file_stamps[0] = ("pic/\udcff.png", 1, 1)
    made = schema.make_part_table(HEADER, 3, part, None)
    assert made["id"][0].as_py() == "half \\udc80"
    assert made["path"][0].as_py() == "pic/\\udcff.png"


IMAGES = replace(HEADER, modality="image", columns={})


def encoded_equal(a, b):
    """Whether two parts have the same samples, Gaussians bit for bit."""
    z, w = Gaussian.cat(a.gaussians), Gaussian.cat(b.gaussians)
    return (
        (a.indices, a.metadata, a.file_stamps, a.errors) == (b.indices, b.metadata, b.file_stamps, b.errors)
        and torch.equal(z.mean.view(torch.int32), w.mean.view(torch.int32))
        and torch.equal(z.log_var.view(torch.int32), w.log_var.view(torch.int32))
    )


def test_read_encoded_part_is_the_inverse_of_make_part_table(part):
    part.metadata[1] = SampleMetadata(
        "lone surrogate \udce4",
        ("two\nlines", ""),
        {"npy": [0.1, 1e-300, 3], "json": {"a": None, "b": {"c": [True]}}, "url": "x"},
        "3" * 16,
    )
    z = Gaussian.cat(part.gaussians)
    z.mean[0, 0], z.log_var[1] = -0.0, -torch.inf  # a point
    part.gaussians = [z]
    assert encoded_equal(schema.read_encoded_part(schema.make_part_table(IMAGES, 3, part, None)), part)


def test_read_encoded_part_without_good_samples():
    empty = EncodedPart.empty()
    empty.errors[7] = SampleError("no image", "here", "why")
    back = schema.read_encoded_part(schema.make_part_table(IMAGES, 0, empty, None))
    assert (back.gaussians, back.indices, back.errors) == ([], [], empty.errors)


@pytest.mark.parametrize("column", ["id", "caption", "metadata", "mean", "log_var"])
def test_read_encoded_part_detects_changed_values(part, column):
    table = schema.make_part_table(IMAGES, 3, part, None)
    values = table[column].to_pylist()
    values[2] = [v + 1e-3 for v in values[2]] if column in ("mean", "log_var") else values[0]
    place = table.schema.get_field_index(column)
    changed = table.set_column(place, table.schema.field(column), pa.array(values, table[column].type))
    with pytest.raises(ValueError, match="digest"):
        schema.read_encoded_part(changed)


def test_read_encoded_part_detects_changed_errors(part):
    table = schema.make_part_table(IMAGES, 3, part, None)
    metadata = {**table.schema.metadata, schema.ERRORS: b"{}"}
    with pytest.raises(ValueError, match="digest"):
        schema.read_encoded_part(table.replace_schema_metadata(metadata))
