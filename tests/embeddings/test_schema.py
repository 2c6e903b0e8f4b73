"""The Arrow schema: rows of images and texts, and the way back to Gaussians."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from prolip.data.sample import Bad
from prolip.embeddings import schema
from prolip.embeddings.cache import Part
from prolip.embeddings.sample_metadata import Facts
from prolip.gaussian import Gaussian
from tests.embeddings.test_header import HEADER

D = HEADER.dim


@pytest.fixture
def part(draw):
    """Three samples with one, none and two captions; the third has no `width`, the first one that is none."""
    facts = [
        Facts("a", ("a cat",), {"json": {"uid": "u0", "width": "wide", "url": "https://x.org"}}, "0" * 16),
        Facts("b", (), {"json": {"uid": "u1", "width": 4}}, "1" * 16),
        Facts("c", ("a dog", "an animal"), {"json": {"uid": "u2"}}, "2" * 16),
    ]
    z = draw(3, D, dtype=torch.float32)
    bads = {3: Bad("no image", "here", "why")}
    return Part([z[:2], z[2:]], [0, 2, 5], facts, [("pic/a.png", 1, 1), None, None], bads)


def test_rows_and_their_order(part, draw):
    texts = draw(3, D, dtype=torch.float32)
    made = schema.table_of(HEADER, 3, part, texts)
    made.validate(full=True)
    assert made.schema.equals(schema.schema(HEADER))
    told = made.to_pydict()
    assert told["id"] == ["a", "b", "c", "a", "c", "c"]
    assert told["number"] == [0, 2, 5, 0, 5, 5]
    assert told["modality"] == ["image"] * 3 + ["text"] * 3
    assert told["caption"] == ["a cat", None, "a dog", "a cat", "a dog", "an animal"]
    assert told["path"] == ["pic/a.png", None, None, "pic/a.png", None, None]
    assert told["url"] == ["https://x.org", None, None, "https://x.org", None, None]
    assert told["pixels"] == ["0" * 16, "1" * 16, "2" * 16, None, None, None]
    assert told["uid"] == ["u0", "u1", "u2", "u0", "u2", "u2"]
    assert told["width"] == [None, 4, None, None, None, None]
    back = schema.gaussian_of(made)
    whole = Gaussian.cat([*part.blocks, texts])
    assert torch.equal(back.mean, whole.mean)
    assert torch.equal(back.log_var, whole.log_var)
    assert torch.equal(schema.mean_trace_of(made).uncertainty, whole.uncertainty)


def test_what_is_told_of_a_part(part):
    metadata = schema.table_of(HEADER, 3, part, None).schema.metadata
    assert schema.bads_of(metadata) == part.bads
    assert schema.tried_of(metadata) == 4
    assert schema.misfits_of(metadata) == {"width": 1}
    schema.require_part(metadata, HEADER, 3, "this")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: None, "no part of embeddings: remove it"),
        (lambda m: {k: v for k, v in m.items() if k != schema.DIGEST}, "no part of embeddings"),
        (lambda m: {**m, schema.HEADER: b"{}"}, "its header is another one"),
        (lambda m: {**m, schema.NUMBER: b"4"}, "is part 4, not 3"),
    ],
)
def test_what_is_no_part_of_these_embeddings(part, change, told):
    metadata = change(schema.table_of(HEADER, 3, part, None).schema.metadata)
    with pytest.raises(ValueError, match=f"this .*{told}"):
        schema.require_part(metadata, HEADER, 3, "this")


def test_the_digest_is_of_the_rows(part, draw):
    def digest(*arguments):
        return schema.digest_of(schema.table_of(*arguments).schema.metadata)

    first = digest(HEADER, 3, part, None)
    assert digest(HEADER, 4, part, None) == first
    texts = draw(3, D, dtype=torch.float32)
    assert digest(HEADER, 3, part, texts) != first
    part.facts[0] = part.facts[0]._replace(key="other")
    assert digest(HEADER, 3, part, None) != first


def test_what_comes_along_too_late_is_counted(part):
    part.facts[1] = part.facts[1]._replace(extra={"json": {"uid": "u1", "height": 3, "again": "a cat"}})
    part.facts[0] = part.facts[0]._replace(extra={"again": "a cat"})
    metadata = schema.table_of(HEADER, 0, part, None).schema.metadata
    assert schema.misfits_of(metadata) == {"height": 1, "again": 1}


def test_images_alone_and_texts_alone(part, draw):
    images = schema.table_of(replace(HEADER, what="images"), 0, part, None)
    assert images["modality"].to_pylist() == ["image"] * 3
    part.blocks = []
    texts = schema.table_of(replace(HEADER, what="texts"), 0, part, draw(3, D))
    assert texts["modality"].to_pylist() == ["text"] * 3
    assert texts["number"].to_pylist() == [0, 5, 5]


def test_a_part_without_a_good_sample_is_a_table_too(draw):
    empty = Part.empty()
    for what in ("both", "images", "texts"):
        made = schema.table_of(replace(HEADER, what=what), 0, empty, None if what == "images" else draw(0, D))
        assert made.num_rows == 0
        assert schema.mean_trace_of(made).mean.shape == (0, D)


def test_half_precision_is_of_the_means_alone(part):
    header = replace(HEADER, precision="float16")
    made = schema.table_of(header, 0, part, None)
    assert made.schema.field("mean").type == pa.list_(pa.float16(), D)
    whole = Gaussian.cat(part.blocks)
    back = schema.gaussian_of(made)
    assert torch.equal(back.mean, whole.mean.half().float())
    assert not torch.equal(back.mean, whole.mean)
    assert torch.equal(back.log_var, whole.log_var)


def test_the_trace_alone_is_enough_for_csd_and_not_for_inclusion(part):
    made = schema.table_of(replace(HEADER, variances="trace"), 0, part, None)
    assert "log_var" not in made.schema.names
    whole = Gaussian.cat(part.blocks)
    found = schema.mean_trace_of(made)
    assert torch.equal(found.mean, whole.mean)
    assert torch.equal(found.uncertainty, whole.uncertainty)
    with pytest.raises(ValueError, match="embed with variances full"):
        schema.gaussian_of(made)


def test_points_have_no_uncertainty(part):
    part.blocks = [Gaussian.point(Gaussian.cat(part.blocks).mean)]
    made = schema.table_of(HEADER, 3, part, None)
    assert made["uncertainty"].to_pylist() == [0.0] * 3
    assert torch.isneginf(schema.gaussian_of(made).log_var).all()


def test_a_matrix_of_slices_and_chunks():
    """What was filtered or joined has offsets and chunks."""
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)
    chunked = pa.chunked_array([column.slice(1, 2), column.slice(4, 2)])
    assert schema.matrix(chunked).tolist() == values[[1, 2, 4, 5]].tolist()


def test_names_that_are_no_utf8(part):
    part.facts[0] = part.facts[0]._replace(key="half \udc80")
    part.stamps[0] = ("pic/\udcff.png", 1, 1)
    made = schema.table_of(HEADER, 3, part, None)
    assert made["id"][0].as_py() == "half \\udc80"
    assert made["path"][0].as_py() == "pic/\\udcff.png"
