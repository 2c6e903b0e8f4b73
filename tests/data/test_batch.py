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
from prolip.data.sample import BadSampleError, Sample
from prolip.preprocessing.augmentation import Augmentation, augment
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
