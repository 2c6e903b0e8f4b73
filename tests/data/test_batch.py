"""Items against the transforms they are made of, the choice of captions, and every way a picture is bad."""

import errno
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import prolip.data.batch as batch_module
from prolip.data.batch import Preprocessor
from prolip.data.loader import Loader
from prolip.data.open import open_data
from prolip.data.order import derive_seed
from prolip.data.sample import BadSampleError, Sample
from prolip.preprocessing.augmentation import Augmentation, augment
from prolip.preprocessing.image_views import ImageViews, compute_mean_color, crop_image, draw_view_kind
from prolip.preprocessing.images import (
    EmptyImageError,
    ImagePreprocessing,
    TooManyPixelsError,
    read_image,
    resize_and_crop,
)
from prolip.preprocessing.tokenizer_builders import train_word_level

RULES = ImagePreprocessing(size=8)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8))


def png(image=PICTURE):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def sample(image=PICTURE, captions=("a red circle",), key="k"):
    return Sample(key, f"shard.tar: {key}", image, tuple(captions))


@pytest.fixture
def plain(tokenizer):
    return Preprocessor(pixels=RULES, tokenizer=tokenizer)


def reason_of(preprocessor, bad_sample, seed=0):
    with pytest.raises(BadSampleError) as error:
        preprocessor.process(bad_sample, seed)
    assert error.value.record.location == bad_sample.location
    return error.value.record.reason


# Pictures


@pytest.mark.parametrize("form", ["bytes", "path", "picture"])
def test_without_augmentation_it_is_the_evaluation_transform(plain, form, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    image = {"bytes": png(), "path": tmp_path / "a.png", "picture": PICTURE}[form]
    assert torch.equal(plain.process(sample(image), 1).pixels, resize_and_crop(PICTURE, RULES))


def test_augmentation_depends_on_the_seed_alone(plain):
    lively = replace(plain, augmentation=Augmentation())
    one, same, other = (lively.process(sample(), seed).pixels for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(one, augment(PICTURE, RULES, Augmentation(), torch.Generator().manual_seed(5)))


def test_the_global_generator_is_left_alone(plain):
    before = torch.get_rng_state()
    replace(plain, augmentation=Augmentation()).process(sample(captions=["a", "b"]), 2**64 - 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "empty image"),
        (b"not an image at all", "unreadable image"),
        (png()[:-40], "unreadable image"),
        (Image.new("RGB", (0, 5)), "empty image"),
        (Image.new("F", (2, 2), 1e9), "unreadable image"),
    ],
)
def test_process_raises_bad_sample_error_with_its_reason(plain, image, reason):
    assert reason_of(plain, sample(image)) == reason


def test_a_path_that_leads_nowhere_is_a_missing_file(plain, tmp_path):
    assert reason_of(plain, sample(tmp_path / "none.png")) == "missing file"
    assert reason_of(plain, sample(tmp_path)) == "unreadable image"


def test_large_images_are_refused_before_decoding(plain):
    small = replace(plain, max_pixels=12 * 16 - 1)
    assert reason_of(small, sample(png()[:60])) == "image too large"  # a header is all there is
    replace(plain, max_pixels=12 * 16).process(sample(png()), 0)


def test_a_failing_disk_is_not_the_samples_fault(plain, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("prolip.data.batch.read_image", fail)
    with pytest.raises(OSError, match="Input/output"):
        plain.process(sample(), 0)


def test_read_image_has_exceptions_for_empty_and_large_images():
    with pytest.raises(EmptyImageError, match=r"image bytes .*the file is empty"):
        read_image(b"")
    with pytest.raises(EmptyImageError, match="no pixels"):
        read_image(np.zeros((0, 3, 3), np.uint8))
    with pytest.raises(TooManyPixelsError, match="claims 16 x 12 pixels"):
        read_image(png(), max_pixels=100)


# Captions


def test_the_first_and_the_longest_caption(plain):
    many = sample(captions=("a thing", "a small green square", "a small white square"))
    assert replace(plain, caption="first").process(many, 3).caption == "a thing"
    assert replace(plain, caption="longest").process(many, 3).caption == "a small green square"


def test_a_random_caption_is_any_with_the_same_chance(plain):
    captions = ("a thing", "a star", "a circle")
    counts = [0, 0, 0]
    for seed in range(900):
        counts[captions.index(plain.process(sample(captions=captions), seed).caption)] += 1
    assert all(abs(count - 300) < 5 * (900 * 2 / 9) ** 0.5 for count in counts)


@pytest.mark.parametrize("choice", ["random", "first", "longest"])
def test_a_caption_of_which_nothing_is_left_gives_way_to_another(plain, choice):
    preprocessor = replace(plain, caption=choice)
    for seed in range(5):
        item = preprocessor.process(sample(captions=("!!!!!!!!!!!", "a star", "???????????")), seed)
        assert item.caption == "a star"
    assert reason_of(preprocessor, sample(captions=("!!!", "???"))) == "empty caption"


def test_no_caption_is_bad_unless_there_is_no_tokenizer(plain):
    assert reason_of(plain, sample(captions=())) == "no caption"
    silent = replace(plain, tokenizer=None)
    items = [silent.process(sample(captions=()), 0), silent.process(sample(captions=("!!!",)), 0)]
    batch = silent.collate(items, [0, 1])
    assert batch.token_ids.shape == (2, 0)
    assert batch.token_ids.dtype == torch.int64
    assert batch.captions == ("", "!!!")


# Batches


@pytest.mark.parametrize("pad_to", ["longest", "context"])
def test_a_batch_is_its_items_and_its_ids_the_tokenizers(tokenizer, pad_to):
    tokens = type(tokenizer)(tokenizer.copy_backend(), replace(tokenizer.config, pad_to=pad_to))
    preprocessor = Preprocessor(pixels=RULES, tokenizer=tokens)
    captions = ["a thing", "A small, green square!", "two yellow stars and a circle " * 5]
    items = [preprocessor.process(sample(captions=[c], key=f"k{i}"), 0) for i, c in enumerate(captions)]
    batch = preprocessor.collate(items, [7, 2**40, 0])
    assert torch.equal(batch.token_ids, tokens(captions))
    assert batch.pixels.dtype == torch.uint8
    assert torch.equal(batch.pixels, torch.stack([item.pixels for item in items]))
    assert batch.captions == tuple(captions)
    assert batch.keys == ("k0", "k1", "k2")
    assert batch.sample_indices.tolist() == [7, 2**40, 0]
    assert len(batch) == 3


def test_moving_a_batch_moves_pixels_and_ids(plain):
    batch = plain.collate([plain.process(sample(), 0)], [5]).to("meta")
    assert batch.pixels.device.type == batch.token_ids.device.type == "meta"
    assert batch.sample_indices.device.type == "cpu"
    assert batch.keys == ("k",)


@pytest.mark.parametrize(("name", "value"), [("caption", "last"), ("max_pixels", 0)])
def test_settings_are_checked(plain, name, value):
    with pytest.raises(ValueError, match=name):
        replace(plain, **{name: value})


def test_short_ids_are_filled_up_with_the_pad(plain):
    short = plain.collate([plain.process(sample(captions=["star"]), 0)], [0])
    long = plain.collate([plain.process(sample(captions=["a red circle and a blue star"]), 0)], [1])
    width = short.token_ids.shape[1]
    made = batch_module.concat_batches([short, long], pad_id=77)
    assert made.token_ids[0, width:].tolist() == [77] * (long.token_ids.shape[1] - width) != []


def test_training_decodes_no_more_than_its_crops_need_and_evaluation_everything(plain, monkeypatch):
    asked = []

    def spy(source, **settings):
        asked.append(settings["min_short_side"])
        return read_image(source, **settings)

    monkeypatch.setattr(batch_module, "read_image", spy)
    plain.process(sample(), 0)
    replace(plain, augmentation=Augmentation(scale=(0.25, 1.0), ratio=(1.0, 1.0))).process(sample(), 0)
    assert asked == [None, 2 * plain.pixels.size]


def test_fingerprint_depends_on_whatever_changes_a_batch():
    words, same_size = ["a red star", "a blue circle"], ["a red moon", "a blue circle"]
    base = Preprocessor(
        pixels=ImagePreprocessing(size=4), tokenizer=train_word_level(words, context_length=16),
        augmentation=Augmentation()
    )  # fmt: skip
    others = [
        replace(base, pixels=ImagePreprocessing(size=5)),
        replace(base, augmentation=None),
        replace(base, caption="first"),
        replace(base, max_pixels=99),
        replace(base, tokenizer=None),
        replace(base, tokenizer=train_word_level(words, context_length=15)),
        replace(base, tokenizer=train_word_level(same_size, context_length=16)),
    ]
    assert (
        replace(base, tokenizer=train_word_level(words, context_length=16)).fingerprint()
        == base.fingerprint()
    )
    assert len({one.fingerprint() for one in [base, *others]}) == 8


# More general captions


def test_a_general_caption_is_that_of_the_caption_that_was_taken(plain, tokenizer):
    both = replace(sample(captions=("a red circle", "a blue star")), general_captions=("a circle", ""))
    taken = {
        item.caption: item.general_token_ids for item in (plain.process(both, seed) for seed in range(20))
    }
    assert taken == {"a red circle": tokenizer.encode("a circle"), "a blue star": []}
    assert plain.process(sample(), 0).general_token_ids is None


def test_general_captions_of_a_batch_are_as_wide_as_its_ids(plain, tokenizer):
    pad = tokenizer.config.pad_id
    long = "a small red circle above a blue star"
    items = [
        plain.process(replace(sample(captions=("a star",)), general_captions=(long,)), 0),
        plain.process(replace(sample(captions=("a star",)), general_captions=("",)), 0),
        plain.process(sample(captions=("a star",)), 0),
    ]
    batch = plain.collate(items, [0, 1, 2])
    assert batch.general_token_ids.shape == batch.token_ids.shape == (3, len(tokenizer.encode(long)))
    assert batch.general_token_ids[0].tolist() == tokenizer.encode(long)
    assert (batch.general_token_ids[1:] == pad).all()
    assert plain.collate(items[2:], [2]).general_token_ids is None
    moved = batch.to("cpu")
    assert torch.equal(moved.general_token_ids, batch.general_token_ids)


def test_concat_batches_keeps_their_general_captions(plain, tokenizer):
    pad = tokenizer.config.pad_id
    with_general = plain.collate([plain.process(replace(sample(), general_captions=("a circle",)), 0)], [0])
    without_general = plain.collate(
        [plain.process(sample(captions=("a small red circle above a blue star",)), 0)], [1]
    )
    one = batch_module.concat_batches([with_general, without_general], pad)
    assert one.general_token_ids.shape == one.token_ids.shape
    assert (
        one.general_token_ids[0].tolist()[: with_general.general_token_ids.shape[1]]
        == with_general.general_token_ids[0].tolist()
    )
    assert (one.general_token_ids[1] == pad).all()
    assert batch_module.concat_batches([without_general, without_general], pad).general_token_ids is None


# Captions that lose words


def test_some_captions_lose_some_words_and_keep_their_order(plain, tokenizer):
    whole = "a small red circle above a blue star"
    ids = tokenizer.encode(whole)
    lossy = replace(plain, drop_words=0.5)
    found = [lossy.process(sample(captions=(whole,)), seed) for seed in range(200)]
    assert all(item.caption == whole for item in found)
    lengths = [len(item.token_ids) for item in found]
    assert 0.4 < lengths.count(len(ids)) / 200 < 0.7  # half of them, and a few that lost none
    assert min(lengths) == round(0.25 * len(ids))
    for item in found:
        rest = iter(ids)
        assert all(token in rest for token in item.token_ids)  # a subsequence
    assert lossy.process(sample(captions=("star",)), 3).token_ids == tokenizer.encode("star")
    assert lossy.fingerprint() != plain.fingerprint()


def test_words_are_dropped_by_the_seed_alone_and_change_no_pixel(plain):
    whole = sample(captions=("a small red circle above a blue star",))
    lossy = replace(plain, drop_words=1.0, augmentation=Augmentation())
    one, same = lossy.process(whole, 4), lossy.process(whole, 4)
    assert one.token_ids == same.token_ids
    assert torch.equal(one.pixels, replace(lossy, drop_words=0.0).process(whole, 4).pixels)


@pytest.mark.parametrize("fraction", [-0.1, 1.5])
def test_preprocessor_refuses_drop_words_out_of_range(plain, fraction):
    with pytest.raises(ValueError, match="drop_words must be a fraction from 0 to 1"):
        replace(plain, drop_words=fraction)


# Text crops and image views

LONG = "a small red circle above a blue star"
EVERY_CROP, EVERY_MASK = (
    ImageViews(crop_fraction=1.0, mask_fraction=0.0),
    ImageViews(crop_fraction=0.0, mask_fraction=1.0),
)


def test_a_cropped_caption_is_a_span_of_its_words_and_the_text_that_is_tokenized(plain, tokenizer):
    cropping, words = replace(plain, text_crops=0.5), LONG.split()
    found = [cropping.process(sample(captions=(LONG,)), seed) for seed in range(300)]
    assert 0.35 < sum(item.caption != LONG for item in found) / 300 < 0.65
    spans = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    assert {item.caption for item in found} <= spans
    assert all(item.token_ids == tokenizer.encode(item.caption) for item in found)
    assert len({item.caption for item in found}) > 20


def test_crops_change_neither_the_chosen_caption_nor_a_pixel_nor_dropped_words(plain):
    lossy = replace(plain, augmentation=Augmentation(), drop_words=0.5)
    captions = (LONG, "one two three four five", "white square with dots")
    for seed in range(60):
        whole = lossy.process(sample(captions=captions), seed)
        cropped = replace(lossy, text_crops=0.5).process(sample(captions=captions), seed)
        assert cropped.caption in whole.caption
        assert torch.equal(cropped.pixels, whole.pixels)
        assert cropped.caption != whole.caption or cropped.token_ids == whole.token_ids


def test_views_change_no_caption_and_leave_other_images_as_they_are(plain):
    lively = replace(plain, augmentation=Augmentation(), text_crops=0.5)
    views = ImageViews(crop_fraction=0.25, mask_fraction=0.25)
    changed = 0
    for seed in range(100):
        whole = lively.process(sample(captions=(LONG, "b c")), seed)
        seen = replace(lively, image_views=views).process(sample(captions=(LONG, "b c")), seed)
        assert (seen.caption, seen.token_ids) == (whole.caption, whole.token_ids)
        generator = torch.Generator().manual_seed(derive_seed(seed, "image view"))
        is_whole = draw_view_kind(views, generator) == "whole"
        assert torch.equal(seen.pixels, whole.pixels) or not is_whole
        changed += not is_whole
    assert 30 < changed < 70


def test_a_crop_is_preprocessed_as_an_image_is(plain):
    generator = torch.Generator().manual_seed(derive_seed(9, "image view"))
    draw_view_kind(EVERY_CROP, generator)
    crop = crop_image(PICTURE, EVERY_CROP, generator)
    pixels = replace(plain, image_views=EVERY_CROP).process(sample(), 9).pixels
    assert torch.equal(pixels, resize_and_crop(crop, RULES))


def test_a_mask_hides_pixels_of_the_preprocessed_image_behind_the_mean_color(tokenizer):
    rules = ImagePreprocessing(size=56)
    masking = Preprocessor(pixels=rules, tokenizer=tokenizer, image_views=EVERY_MASK)
    whole = resize_and_crop(PICTURE, rules)
    fill = torch.tensor(compute_mean_color(rules), dtype=torch.uint8)[:, None, None]
    areas = []
    for seed in range(60):
        pixels = masking.process(sample(), seed).pixels
        hidden = (pixels == fill).all(0)
        assert torch.equal(pixels[:, ~hidden], whole[:, ~hidden])
        areas.append(1 - hidden.double().mean().item())
    assert min(areas) > 0.05 - 1 / 49
    assert max(areas) < 0.6 + 1 / 49
    assert abs(np.mean(areas) - 0.325) < 5 * 0.55 / (12 * 60) ** 0.5


def test_a_crop_has_no_more_general_caption(plain):
    both = replace(sample(captions=(LONG,)), general_captions=("a circle",))
    found = [replace(plain, text_crops=0.5).process(both, seed) for seed in range(40)]
    assert {item.caption == LONG for item in found} == {True, False}
    for item in found:
        assert (item.general_token_ids == []) == (item.caption != LONG)


def test_a_crop_that_cleaning_empties_leaves_the_caption_whole(plain):
    """&amp; has letters, and is punctuation."""
    text = "&amp; &amp; &amp; dog"
    found = {
        replace(plain, text_crops=1.0).process(sample(captions=(text,)), seed).caption for seed in range(80)
    }
    assert found == {text, "dog", "&amp; dog", "&amp; &amp; dog"}


def test_without_a_tokenizer_the_text_is_cropped_too():
    cropping = Preprocessor(pixels=RULES, tokenizer=None, text_crops=1.0)
    assert cropping.process(sample(captions=(LONG,)), 3).caption != LONG
    assert cropping.process(sample(captions=()), 3).caption == ""


def test_of_a_large_jpeg_crops_are_decoded_at_a_size_that_needs_no_enlarging(monkeypatch, tokenizer):
    asked = []

    def spy(source, *, max_pixels, min_short_side):
        asked.append(min_short_side)
        return read_image(source, max_pixels=max_pixels, min_short_side=min_short_side)

    monkeypatch.setattr(batch_module, "read_image", spy)
    lively = Preprocessor(pixels=RULES, tokenizer=tokenizer, augmentation=Augmentation())
    for views in (None, EVERY_MASK, EVERY_CROP):
        replace(lively, image_views=views).process(sample(), 0)
    assert asked[0] == asked[1]
    assert asked[2] >= asked[0] / (0.05 / (4 / 3)) ** 0.5
    asked.clear()
    replace(lively, augmentation=None, image_views=EVERY_CROP).process(sample(), 0)
    assert asked == [None]


def test_fingerprints_count_crops_and_views_only_if_they_are_used(plain):
    assert replace(plain, text_crops=0.0, image_views=None).fingerprint() == plain.fingerprint()
    others = [
        replace(plain, drop_words=0.4),
        replace(plain, text_crops=0.4),
        replace(plain, text_crops=0.5),
        replace(plain, image_views=EVERY_CROP),
        replace(plain, image_views=EVERY_MASK),
    ]
    assert len({preprocessor.fingerprint() for preprocessor in (plain, *others)}) == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_crops_and_views_are_the_same_for_any_number_of_workers_and_after_resuming(plain, workers):
    viewed = replace(
        plain, text_crops=0.5, image_views=ImageViews(crop_fraction=0.3, mask_fraction=0.3), drop_words=0.3
    )
    source = open_data("scenes:simple,size=32,length=40,captions=2")

    def load(num_workers):
        return Loader(source, viewed, global_batch_size=8, seed=2, num_workers=num_workers)

    alone, resumed = list(load(0)), load(0)
    together = load(workers)
    iterator = iter(together)
    found = [next(iterator), next(iterator)]
    resumed.load_state_dict(together.state_dict())
    iterator.close()
    found += list(resumed)
    assert len(found) == len(alone) == 5
    for one, other in zip(alone, found, strict=True):
        assert torch.equal(one.pixels, other.pixels)
        assert torch.equal(one.token_ids, other.token_ids)
        assert one.captions == other.captions


def test_preprocessor_refuses_text_crops_out_of_range(plain):
    with pytest.raises(ValueError, match="text_crops must be a fraction from 0 to 1"):
        replace(plain, text_crops=1.1)
