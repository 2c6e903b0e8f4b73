"""Laws of masking: exact counts, each draw fresh and fair, what must not change does not."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from prolip.preprocessing.masking import draw_patch_indices, mask_tokens

PAD, START, END, MASK = 0, 1, 2, 99
SPECIAL = {PAD, START, END}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# Patches


@given(st.integers(0, 5), st.integers(1, 60), st.floats(0.001, 1.0), st.integers(0, 9))
def test_patch_indices_are_sorted_and_distinct(batch, patches, keep_fraction, seed):
    kept = draw_patch_indices(batch, patches, keep_fraction, seeded(seed))
    assert kept.dtype == torch.int64
    assert kept.shape == (batch, max(1, round(keep_fraction * patches)))
    assert (kept.diff(dim=1) > 0).all()
    assert ((kept >= 0) & (kept < patches)).all()


@pytest.mark.parametrize(
    ("patches", "keep_fraction", "count"), [(196, 0.25, 49), (10, 0.25, 2), (14, 0.25, 4), (3, 0.1, 1)]
)
def test_the_count_is_rounded_half_to_even_and_at_least_one(patches, keep_fraction, count):
    assert draw_patch_indices(2, patches, keep_fraction, seeded(0)).shape == (2, count)


def test_every_patch_is_as_likely_and_images_differ(generator):
    kept = draw_patch_indices(4000, 20, 0.25, generator)
    mask_fraction = torch.bincount(kept.flatten(), minlength=20) / 4000
    assert (mask_fraction - 0.25).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5
    assert len(kept.unique(dim=0)) > 3000  # of 15504 possible rows


def test_kept_patches_come_from_the_generator():
    again = draw_patch_indices(3, 50, 0.5, seeded(1))
    assert torch.equal(draw_patch_indices(3, 50, 0.5, seeded(1)), again)
    assert not torch.equal(draw_patch_indices(3, 50, 0.5, seeded(2)), again)


@pytest.mark.parametrize("keep_fraction", [0.0, -0.1, 1.01, float("nan")])
def test_draw_patch_indices_rejects_invalid_fractions(keep_fraction):
    with pytest.raises(ValueError, match="keep_fraction must be a fraction above 0 and at most 1, not"):
        draw_patch_indices(2, 4, keep_fraction, seeded(0))


@pytest.mark.parametrize(("batch", "patches"), [(-1, 4), (2, 0)])
def test_draw_patch_indices_rejects_empty_grids(batch, patches):
    with pytest.raises(ValueError, match=f"not {batch} and {patches}"):
        draw_patch_indices(batch, patches, 0.5, seeded(0))


# Tokens


def mask(ids, generator, **options):
    return mask_tokens(ids, mask_id=MASK, special_ids=SPECIAL, generator=generator, **options)


@given(
    st.integers(1, 6).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 12), min_size=width, max_size=width), min_size=1, max_size=5
        )
    ),
    st.floats(0.001, 1.0),
    st.integers(0, 9),
)
def test_mask_tokens_masks_exactly_the_fraction(rows, mask_fraction, seed):
    ids = torch.tensor(rows)
    before = ids.clone()
    masked = mask(ids, seeded(seed), mask_fraction=mask_fraction)
    assert torch.equal(ids, before)
    assert masked.dtype == torch.int64
    for row, new in zip(rows, masked.tolist(), strict=True):
        ordinary = sum(token not in SPECIAL for token in row)
        assert new.count(MASK) == (max(1, round(mask_fraction * ordinary)) if ordinary else 0)
        assert all(b in (a, MASK) and (a not in SPECIAL or b == a) for a, b in zip(row, new, strict=True))


@pytest.mark.parametrize(("ordinary", "count"), [(1, 1), (2, 2), (4, 3), (6, 4), (10, 8), (14, 10), (60, 45)])
def test_three_quarters_are_rounded_half_to_even(ordinary, count):
    """0.75 x 6 = 4.5 -> 4 and 0.75 x 10 = 7.5 -> 8."""
    ids = torch.full((3, 64), PAD)
    ids[:, 1 : 1 + ordinary] = 7
    ids[:, 0], ids[:, 1 + ordinary] = START, END
    assert ((mask(ids, seeded(0)) == MASK).sum(1) == count).all()


def test_mask_tokens_is_uniform_and_independent_per_text(generator):
    ids = torch.tensor([START, 5, 6, PAD, 7, 8, 9, 10, 11, 12, END]).expand(4000, -1)
    masked = mask(ids, generator, mask_fraction=0.5) == MASK
    mask_fraction = masked.double().mean(0)
    ordinary = torch.tensor([0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0], dtype=torch.bool)
    assert (mask_fraction[ordinary] - 0.5).abs().max() < 5 * (0.25 / 4000) ** 0.5
    assert mask_fraction[~ordinary].max() == 0
    assert len(masked.unique(dim=0)) == 70  # all ways to choose 4 of 8


def test_masks_come_from_the_generator():
    ids = torch.arange(3, 43).view(2, 20)
    again = mask(ids, seeded(1))
    assert torch.equal(mask(ids, seeded(1)), again)
    assert not torch.equal(mask(ids, seeded(2)), again)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_empty_batches_stay_empty(shape):
    ids = torch.zeros(shape, dtype=torch.int64)
    assert mask(ids, seeded(0)).shape == shape


def test_without_special_ids_all_tokens_are_ordinary():
    ids = torch.tensor([[PAD, START, END, 3]])
    masked = mask_tokens(ids, mask_id=MASK, special_ids=(), mask_fraction=1.0, generator=seeded(0))
    assert masked.tolist() == [[MASK] * 4]


@pytest.mark.parametrize("mask_fraction", [0.0, -1.0, 1.5, float("nan")])
def test_mask_tokens_rejects_invalid_fractions(mask_fraction):
    with pytest.raises(ValueError, match="mask_fraction must be a fraction above 0 and at most 1, not"):
        mask(torch.ones(2, 3, dtype=torch.int64), seeded(0), mask_fraction=mask_fraction)


def test_ids_are_a_batch_of_long_integers():
    with pytest.raises(TypeError, match=r"ids must be a torch\.int64 tensor, not a torch\.int32 tensor"):
        mask(torch.ones(2, 3, dtype=torch.int32), seeded(0))
    with pytest.raises(ValueError, match=r"ids must have the shape \(B, T\), not \(3,\)"):
        mask(torch.ones(3, dtype=torch.int64), seeded(0))
