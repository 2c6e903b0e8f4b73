"""The draw of twins: a function of the seed, the step and the row, however the batch is shared and padded."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.training import masked_views as twins_module
from prolip.training.config import MaskingConfig
from prolip.training.masked_views import BatchSlice, draw_masked_views, require_mask_token

PAD, MASK, START, END = 0, 1, 2, 3
RULES = TokenizerConfig(
    vocab_size=100, context_length=24, pad_id=PAD, mask_id=MASK, start_id=START, end_id=END
)
PATCHES = 16
BATCH = 48


def texts(rows=BATCH, width=24):
    """A start, 0 to 15 ordinary tokens, of which none is like another, an end, padding."""
    ids = torch.full((rows, width), PAD)
    for row in range(rows):
        length = row % 16
        ids[row, : length + 2] = torch.tensor([START, *range(10, 10 + length), END])
    return ids


def draw(ids=None, masking=None, rules=RULES, *, seed=0, step=0, batch=BATCH, first=0):
    ids = texts(batch) if ids is None else ids
    masking = MaskingConfig() if masking is None else masking
    return draw_masked_views(ids, BatchSlice(seed, step, batch, first), masking, rules, PATCHES)


def images_of(twins, first=0):
    """Row of the global batch -> patches that its twin sees."""
    pairs = zip(twins.image_rows.tolist(), twins.patch_indices.tolist(), strict=True)
    return {first + row: tuple(keep) for row, keep in pairs}


def texts_of(twins, first=0):
    """Row of the global batch -> its masked ids, without padding."""
    pairs = zip(twins.text_rows.tolist(), twins.masked_ids.tolist(), strict=True)
    return {first + row: tuple(i for i in ids if i != PAD) for row, ids in pairs}


# -- which rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "share", "count"),
    [(48, 0.125, 6), (16384, 0.125, 2048), (12, 0.125, 2), (1, 0.125, 1), (3, 0.1, 1), (8, 1.0, 8), (20, 0.375, 8)],
)  # fmt: skip
def test_a_share_of_the_whole_batch_has_twins_and_at_least_one(batch, share, count):
    """1.5 -> 2 and 7.5 -> 8: the nearest, halves to even."""
    twins = draw(texts(batch, 24), MaskingConfig(image_fraction=share, text_fraction=share), batch=batch)
    assert (twins.total_images, twins.total_texts) == (count, count)
    for rows in (twins.image_rows, twins.text_rows):
        assert len(set(rows.tolist())) == len(rows) == count
        assert rows.tolist() == sorted(rows.tolist())
        assert 0 <= rows.min() <= rows.max() < batch
    assert twins.patch_indices.shape == (count, 4)


def test_equal_shares_of_images_and_texts_are_the_same_samples():
    twins = draw()
    assert torch.equal(twins.image_rows, twins.text_rows)


@pytest.mark.parametrize(("images", "texts"), [(0.125, 0.5), (0.5, 0.125), (0.01, 1.0)])
def test_the_smaller_set_is_part_of_the_larger(images, texts):
    twins = draw(masking=MaskingConfig(image_fraction=images, text_fraction=texts))
    assert (twins.total_images, twins.total_texts) == tuple(
        max(1, round(BATCH * share)) for share in (images, texts)
    )
    smaller, larger = sorted((set(twins.image_rows.tolist()), set(twins.text_rows.tolist())), key=len)
    assert smaller < larger


@pytest.mark.parametrize(("images", "texts"), [(0.0, 0.5), (0.5, 0.0)])
def test_a_fraction_of_zero_draws_no_views(images, texts):
    views = draw(masking=MaskingConfig(image_fraction=images, text_fraction=texts))
    assert (views.total_images, views.total_texts) == (round(BATCH * images), round(BATCH * texts))
    assert (len(views.image_rows), len(views.text_rows)) == (views.total_images, views.total_texts)


def test_every_row_has_its_turn_as_often_as_another():
    """600 draws of 6 of 48: 75 times each on average; 8.1 is one deviation, five of them are allowed."""
    ids, counts = texts(), torch.zeros(BATCH)
    for step in range(600):
        counts[draw(ids, step=step).image_rows] += 1
    assert counts.sum() == 600 * 6
    assert (counts - 75).abs().max() < 5 * (600 * 0.125 * 0.875) ** 0.5


# -- on whom it depends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [(0, 48), (0, 24, 48), (0, 16, 32, 48), (0, 1, 30, 48), tuple(range(0, 49, 2)), (0, 0, 7, 48, 48)],
)
@pytest.mark.parametrize("how", ["mask", "drop", "crop"])
def test_ranks_together_draw_what_one_draws(bounds, how):
    """Also ranks with few rows or none, and so with no twin; each cuts its texts to its longest."""
    ids, masking = texts(), MaskingConfig(image_fraction=0.125, text_fraction=0.25, method=how)
    one = draw(ids, masking, seed=5, step=7)
    images, masked = {}, {}
    for first, stop in pairwise(bounds):
        own = ids[first:stop]
        width = int((own != PAD).sum(1).max()) if len(own) else 1
        twins = draw(own[:, :width], masking, seed=5, step=7, first=first)
        assert (twins.total_images, twins.total_texts) == (one.total_images, one.total_texts), (
            "the number is the whole batch's"
        )
        assert twins.patch_indices.shape[1] == 4, "even of no twin"
        assert twins.masked_ids.shape == (len(twins.text_rows), width)
        found_images, found_texts = images_of(twins, first), texts_of(twins, first)
        assert all(first <= row < stop for row in (*found_images, *found_texts))
        images |= found_images
        masked |= found_texts
    assert images == images_of(one)
    assert masked == texts_of(one)


def test_the_same_seed_and_step_give_the_same_draw_whatever_was_drawn_before():
    before = draw(seed=3, step=9)
    torch.rand(7)
    draw(seed=3, step=8)
    again = draw(seed=3, step=9)
    assert images_of(again) == images_of(before)
    assert texts_of(again) == texts_of(before)


@pytest.mark.parametrize("other", [{"seed": 1}, {"step": 1}, {"seed": 2**63 - 1}, {"step": 10**9}])
def test_another_seed_or_step_gives_another_draw(other):
    """All have a twin here, so that their masks can be compared row by row."""
    everyone = MaskingConfig(image_fraction=1.0, text_fraction=1.0)
    here, there = draw(masking=everyone), draw(masking=everyone, **other)
    changed = sum(images_of(here)[row] != images_of(there)[row] for row in range(BATCH))
    assert changed > 0.9 * BATCH
    long = [row for row in range(BATCH) if row % 16 >= 8]
    assert sum(texts_of(here)[row] != texts_of(there)[row] for row in long) > 0.8 * len(long)
    assert draw().image_rows.tolist() != draw(**other).image_rows.tolist()


def test_random_generators_of_others_are_left_alone():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    draw()
    assert torch.equal(torch.rand(3), wanted)


# -- what a twin loses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "kept"), [(0.75, 4), (0.5, 8), (0.99, 1), (0.0, 16)])
def test_an_images_twin_sees_so_many_patches_each_its_own(share, kept):
    twins = draw(masking=MaskingConfig(image_fraction=1.0, patch_mask_ratio=share))
    assert twins.patch_indices.shape == (BATCH, kept)
    assert all(row == sorted(set(row)) for row in twins.patch_indices.tolist())
    assert (twins.patch_indices.min(), twins.patch_indices.max()) == (0, PATCHES - 1)
    if kept in (4, 8):
        assert len(set(images_of(twins).values())) > 0.9 * BATCH, "each image has its own draw"


@pytest.mark.parametrize("share", [0.75, 0.5, 0.1])
def test_a_texts_twin_loses_exactly_the_share_of_its_ordinary_tokens_and_no_special_one(share):
    ids = texts()
    twins = draw(ids, MaskingConfig(text_fraction=1.0, token_mask_ratio=share))
    for row, masked in zip(twins.text_rows.tolist(), twins.masked_ids, strict=True):
        ordinary = row % 16
        lost = masked != ids[row]
        assert lost.sum() == (max(1, round(share * ordinary)) if ordinary else 0)
        assert (masked[lost] == MASK).all()
        assert (ids[row][lost] >= 10).all(), "start, end and padding stay"


def test_each_text_has_its_own_draw():
    ids = texts(16)[15:].repeat(BATCH, 1)  # one text in all rows
    found = set(texts_of(draw(ids, MaskingConfig(text_fraction=1.0))).values())
    assert len(found) > 0.9 * BATCH


def test_each_patch_and_each_token_is_lost_as_often_as_another():
    ids = texts(16)[15:].repeat(BATCH, 1)
    seen, kept = torch.zeros(PATCHES), torch.zeros(15)
    for step in range(40):
        twins = draw(ids, MaskingConfig(image_fraction=1.0, text_fraction=1.0), step=step)
        seen += torch.bincount(twins.patch_indices.flatten(), minlength=PATCHES)
        kept += (twins.masked_ids[:, 1:16] != MASK).sum(0)
    count = 40 * BATCH
    assert (seen / count - 0.25).abs().max() < 5 * (0.25 * 0.75 / count) ** 0.5
    assert (kept / count - 4 / 15).abs().max() < 5 * (4 * 11 / 225 / count) ** 0.5


@pytest.mark.parametrize("how", ["mask", "drop", "crop"])
@pytest.mark.parametrize("width", [17, 20, 24])
def test_padding_changes_nothing(width, how):
    masking = MaskingConfig(image_fraction=0.5, text_fraction=1.0, method=how)
    narrow, wide = draw(texts(width=17), masking), draw(texts(width=width), masking)
    assert torch.equal(wide.masked_ids[:, :17], narrow.masked_ids)
    assert (wide.masked_ids[:, 17:] == PAD).all()
    assert torch.equal(wide.patch_indices, narrow.patch_indices)


def test_dropping_leaves_the_others_in_order_and_then_padding():
    ids = texts()
    masked, dropped = (draw(ids, MaskingConfig(text_fraction=1.0, method=how)) for how in ("mask", "drop"))
    assert torch.equal(dropped.text_rows, masked.text_rows)
    for there, here in zip(masked.masked_ids.tolist(), dropped.masked_ids.tolist(), strict=True):
        left = [i for i in there if i not in (MASK, PAD)]
        assert here == left + [PAD] * (len(here) - len(left))


@pytest.mark.parametrize("share", [0.75, 0.5, 0.1])
def test_a_crop_keeps_special_tokens_and_a_span_of_the_others(share):
    ids = texts()
    views = draw(ids, MaskingConfig(text_fraction=1.0, token_mask_ratio=share, method="crop"))
    for row, tokens in texts_of(views).items():
        ordinary = row % 16
        kept = ordinary - min(max(1, round(share * ordinary)), ordinary)
        assert (tokens[0], tokens[-1], len(tokens)) == (START, END, kept + 2)
        assert list(tokens[1:-1]) == list(range(tokens[1], tokens[1] + kept))
        assert set(tokens[1:-1]) <= set(range(10, 10 + ordinary))


def test_all_spans_of_a_crop_are_equally_likely():
    """Of 15 tokens 11 are lost: a span of 4 begins at one of 12."""
    ids = texts(16)[15:].repeat(BATCH, 1)
    begins = torch.zeros(12)
    for step in range(40):
        views = draw(ids, MaskingConfig(text_fraction=1.0, method="crop"), step=step)
        begins += torch.bincount(views.masked_ids[:, 1] - 10, minlength=12)
    count = 40 * BATCH
    assert (begins / count - 1 / 12).abs().max() < 5 * (11 / 144 / count) ** 0.5


def test_without_a_mask_token_masking_is_an_error_and_dropping_is_not():
    rules = replace(RULES, mask_id=None)
    with pytest.raises(ValueError, match="no mask token"):
        require_mask_token(MaskingConfig(), rules)
    require_mask_token(MaskingConfig(), RULES)
    require_mask_token(MaskingConfig(method="drop"), rules)
    require_mask_token(MaskingConfig(method="crop"), rules)
    dropped = draw(masking=MaskingConfig(method="drop"), rules=rules)
    assert texts_of(dropped) == texts_of(draw(masking=MaskingConfig(method="drop")))


def test_the_batchs_ids_are_left_alone():
    ids = texts()
    for how in ("mask", "drop", "crop"):
        draw(ids, MaskingConfig(text_fraction=1.0, method=how))
    assert torch.equal(ids, texts())


def test_patches_and_tokens_have_draws_of_their_own(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        twins_module,
        "derive_seed",
        lambda *parts, mix=twins_module.derive_seed: seeds.append(mix(*parts)) or seeds[-1],
    )
    draw()
    assert len(seeds) > 2
    assert len(set(seeds)) == len(seeds)


# -- more general captions ---------------------------------------------------------------------------------------------


def with_general(rows=BATCH):
    """Every third row has none; the others' are their number."""
    general = torch.full((rows, 24), PAD)
    for row in range(rows):
        if row % 3:
            general[row, :3] = torch.tensor([START, 40 + row, END])
    return general


def test_the_twin_is_the_more_general_caption_where_there_is_one():
    masking = MaskingConfig(method="general", text_fraction=0.5)
    rows = BatchSlice(seed=0, step=2, batch_size=BATCH)
    twins = draw_masked_views(texts(), rows, masking, RULES, PATCHES, with_general())
    masked = draw(masking=replace(masking, method="mask"), step=2)
    assert twins.total_texts == masked.total_texts == 24
    assert twins.text_rows.tolist() == [row for row in masked.text_rows.tolist() if row % 3]
    assert twins.masked_ids[:, 1].tolist() == [40 + row for row in twins.text_rows.tolist()]
    assert torch.equal(twins.patch_indices, masked.patch_indices)


def test_general_twins_do_not_depend_on_how_the_batch_is_shared():
    masking, general = MaskingConfig(method="general", text_fraction=0.5), with_general()
    batch = BatchSlice(seed=1, step=3, batch_size=BATCH)
    whole = texts_of(draw_masked_views(texts(), batch, masking, RULES, PATCHES, general))
    parts = {}
    for first in range(0, BATCH, 12):
        rows = slice(first, first + 12)
        drawn = draw_masked_views(
            texts()[rows], batch._replace(first_row=first), masking, RULES, PATCHES, general[rows]
        )
        parts |= texts_of(drawn, first)
    assert parts == whole


def test_data_without_general_captions_says_what_to_do():
    with pytest.raises(ValueError, match=r"masking\.method is general.*--masking\.method mask"):
        draw(masking=MaskingConfig(method="general"))
