"""Laws of masking: exact counts, each draw fresh and fair, what must not change does not."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from prolip.preprocessing.masking import kept_patches, mask_tokens

PAD, START, END, MASK = 0, 1, 2, 99
SPECIAL = {PAD, START, END}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# Patches


@given(st.integers(0, 5), st.integers(1, 60), st.floats(0.001, 1.0), st.integers(0, 9))
def test_kept_patches_are_so_many_sorted_and_different(batch, patches, keep, seed):
    kept = kept_patches(batch, patches, keep, seeded(seed))
    assert kept.dtype == torch.int64
    assert kept.shape == (batch, max(1, round(keep * patches)))
    assert (kept.diff(dim=1) > 0).all()
    assert ((kept >= 0) & (kept < patches)).all()


@pytest.mark.parametrize(
    ("patches", "keep", "count"), [(196, 0.25, 49), (10, 0.25, 2), (14, 0.25, 4), (3, 0.1, 1)]
)
def test_the_count_is_rounded_half_to_even_and_at_least_one(patches, keep, count):
    assert kept_patches(2, patches, keep, seeded(0)).shape == (2, count)


def test_every_patch_is_as_likely_and_images_differ(generator):
    kept = kept_patches(4000, 20, 0.25, generator)
    share = torch.bincount(kept.flatten(), minlength=20) / 4000
    assert (share - 0.25).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5
    assert len(kept.unique(dim=0)) > 3000  # of 15504 possible rows


def test_kept_patches_come_from_the_generator():
    again = kept_patches(3, 50, 0.5, seeded(1))
    assert torch.equal(kept_patches(3, 50, 0.5, seeded(1)), again)
    assert not torch.equal(kept_patches(3, 50, 0.5, seeded(2)), again)


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.01, float("nan")])
def test_keep_is_a_share(keep):
    with pytest.raises(ValueError, match="keep must be a share above 0 and at most 1, not"):
        kept_patches(2, 4, keep, seeded(0))


@pytest.mark.parametrize(("batch", "patches"), [(-1, 4), (2, 0)])
def test_there_must_be_patches(batch, patches):
    with pytest.raises(ValueError, match=f"needs a batch and at least one patch, not {batch} x {patches}"):
        kept_patches(batch, patches, 0.5, seeded(0))


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
def test_the_count_is_exact_and_all_else_stays(rows, share, seed):
    ids = torch.tensor(rows)
    before = ids.clone()
    masked = mask(ids, seeded(seed), share=share)
    assert torch.equal(ids, before)
    assert masked.dtype == torch.int64
    for row, new in zip(rows, masked.tolist(), strict=True):
        ordinary = sum(token not in SPECIAL for token in row)
        assert new.count(MASK) == (max(1, round(share * ordinary)) if ordinary else 0)
        assert all(b in (a, MASK) and (a not in SPECIAL or b == a) for a, b in zip(row, new, strict=True))


@pytest.mark.parametrize(("ordinary", "count"), [(1, 1), (2, 2), (4, 3), (6, 4), (10, 8), (14, 10), (60, 45)])
def test_three_quarters_are_rounded_half_to_even(ordinary, count):
    """0.75 x 6 = 4.5 -> 4 and 0.75 x 10 = 7.5 -> 8."""
    ids = torch.full((3, 64), PAD)
    ids[:, 1 : 1 + ordinary] = 7
    ids[:, 0], ids[:, 1 + ordinary] = START, END
    assert ((mask(ids, seeded(0)) == MASK).sum(1) == count).all()


def test_every_ordinary_token_is_as_likely_and_texts_differ(generator):
    ids = torch.tensor([START, 5, 6, PAD, 7, 8, 9, 10, 11, 12, END]).expand(4000, -1)
    masked = mask(ids, generator, share=0.5) == MASK
    share = masked.double().mean(0)
    ordinary = torch.tensor([0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0], dtype=torch.bool)
    assert (share[ordinary] - 0.5).abs().max() < 5 * (0.25 / 4000) ** 0.5
    assert share[~ordinary].max() == 0
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
    masked = mask_tokens(ids, mask_id=MASK, special_ids=(), share=1.0, generator=seeded(0))
    assert masked.tolist() == [[MASK] * 4]


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_share_is_a_share(share):
    with pytest.raises(ValueError, match="share must be a share above 0 and at most 1, not"):
        mask(torch.ones(2, 3, dtype=torch.int64), seeded(0), share=share)


def test_ids_are_a_batch_of_long_integers():
    with pytest.raises(TypeError, match=r"ids must be a torch\.int64 tensor, not a torch\.int32 tensor"):
        mask(torch.ones(2, 3, dtype=torch.int32), seeded(0))
    with pytest.raises(ValueError, match=r"ids must have the shape \(B, T\), not \(3,\)"):
        mask(torch.ones(3, dtype=torch.int64), seeded(0))
