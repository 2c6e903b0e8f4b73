"""Parts on disk: only whole ones that fit are read again."""

import pytest
import torch

from prolip.data.sample import Bad
from prolip.embeddings.cache import Part, keep, keep_texts, kept, kept_texts
from prolip.embeddings.sample_metadata import Facts


@pytest.fixture
def part(draw):
    """Samples 4 to 7, of which 6 is bad."""
    facts = [Facts(str(number), ("a", "b"), {"cls": number}) for number in (4, 5, 7)]
    bads = {6: Bad("unreadable image", "here", "why")}
    return Part([draw(2, 3), draw(1, 3)], [4, 5, 7], facts, [None] * 3, bads)


def test_what_was_kept_comes_back(part, tmp_path):
    keep(tmp_path, 4, part)
    found = kept(tmp_path, range(4, 8))
    assert (found.numbers, found.facts, found.stamps, found.bads) == (
        part.numbers,
        part.facts,
        part.stamps,
        part.bads,
    )
    assert torch.equal(torch.cat([z.mean for z in found.blocks]), torch.cat([z.mean for z in part.blocks]))


@pytest.mark.parametrize("numbers", [range(4, 7), range(4, 9), range(5, 8)])
def test_a_part_of_other_numbers_is_none(part, tmp_path, numbers):
    keep(tmp_path, 4, part)
    assert kept(tmp_path, numbers) is None


@pytest.mark.parametrize("short", ["facts", "stamps", "blocks"])
def test_a_part_that_lacks_rows_is_none(part, tmp_path, short):
    getattr(part, short).pop()
    keep(tmp_path, 4, part)
    assert kept(tmp_path, range(4, 8)) is None


def test_texts_of_another_count_are_none(draw, tmp_path):
    keep_texts(tmp_path, "name", draw(3, 4))
    assert kept_texts(tmp_path, "name", 2) is None
    assert len(kept_texts(tmp_path, "name", 3)) == 3


def test_numbers_that_are_none_are_not_read_again(draw, tmp_path):
    z = draw(3, 4)
    z.mean[1, 2] = torch.nan
    keep_texts(tmp_path, "name", z)
    assert kept_texts(tmp_path, "name", 3) is None
