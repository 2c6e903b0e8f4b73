"""The Embedder's cache: only complete parts that fit are read."""

import pytest
import torch

from prolip.data.sample import SampleError
from prolip.embeddings.embedder_cache import (
    read_image_part,
    read_text_part,
    write_image_part,
    write_text_part,
)
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata


@pytest.fixture
def part(draw):
    """Samples 4 to 7, of which 6 is bad."""
    metadata = [SampleMetadata(str(index), ("a", "b"), {"cls": index}) for index in (4, 5, 7)]
    errors = {6: SampleError("unreadable image", "here", "why")}
    return EncodedPart([draw(2, 3), draw(1, 3)], [4, 5, 7], metadata, [None] * 3, errors)


def test_write_and_read_image_part(part, tmp_path):
    write_image_part(tmp_path, 4, part)
    found = read_image_part(tmp_path, range(4, 8))
    assert (found.indices, found.metadata, found.file_stamps, found.errors) == (
        part.indices,
        part.metadata,
        part.file_stamps,
        part.errors,
    )
    assert torch.equal(
        torch.cat([z.mean for z in found.gaussians]), torch.cat([z.mean for z in part.gaussians])
    )


def test_image_part_with_more_metadata_than_a_safetensors_header_holds(part, tmp_path):
    """A header may have 100 MB; 4096 samples with much JSON have more."""
    part.metadata[1] = part.metadata[1]._replace(extra={"words": "x" * 101_000_000})
    write_image_part(tmp_path, 4, part)
    assert read_image_part(tmp_path, range(4, 8)).metadata == part.metadata


@pytest.mark.parametrize("indices", [range(4, 7), range(4, 9), range(5, 8)])
def test_read_image_part_of_other_indices_returns_none(part, tmp_path, indices):
    write_image_part(tmp_path, 4, part)
    assert read_image_part(tmp_path, indices) is None


@pytest.mark.parametrize("short", ["metadata", "file_stamps", "gaussians"])
def test_read_image_part_with_missing_rows_returns_none(part, tmp_path, short):
    getattr(part, short).pop()
    write_image_part(tmp_path, 4, part)
    assert read_image_part(tmp_path, range(4, 8)) is None


def test_read_text_part_of_another_count_returns_none(draw, tmp_path):
    write_text_part(tmp_path, "name", draw(3, 4))
    assert read_text_part(tmp_path, "name", 2) is None
    assert len(read_text_part(tmp_path, "name", 3)) == 3


def test_read_text_part_with_nan_returns_none(draw, tmp_path):
    z = draw(3, 4)
    z.mean[1, 2] = torch.nan
    write_text_part(tmp_path, "name", z)
    assert read_text_part(tmp_path, "name", 3) is None
