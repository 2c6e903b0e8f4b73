"""Laws of the augmentation: draws inside their bounds and fair, each color operation against its definition."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from PIL import Image

from prolip.preprocessing import augmentation as module
from prolip.preprocessing.augmentation import (
    Augmentation,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augment,
    draw_crop,
    draw_jitter,
    required_short_side,
    to_grayscale,
)
from prolip.preprocessing.images import ImagePreprocessing, resize_and_crop

STILL = Augmentation(scale=(1, 1), ratio=(1, 1), jitter_probability=0, grayscale_probability=0)
"""Changes nothing of a square image."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def noise(height, width, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def smooth(size):
    """Colours of all hues without greys, at which a hue is well defined."""
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    return Image.fromarray(np.stack([255 * x, 255 * y, 255 * (1 - x)], axis=-1).round().astype(np.uint8))


def floats(image):
    return np.asarray(image).astype(np.float64)


def luma(values):
    return (values @ np.array([0.299, 0.587, 0.114]))[..., None]


# The crop


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 99))
def test_a_crop_lies_inside_the_image(width, height, seed):
    left, top, wide, high = draw_crop(width, height, Augmentation(scale=(0.1, 1.0)), seeded(seed))
    assert left >= 0
    assert top >= 0
    assert 1 <= wide <= width - left
    assert 1 <= high <= height - top


def test_areas_and_ratios_are_inside_their_bounds_and_uniform(generator):
    augmentation = Augmentation(scale=(0.2, 0.4), ratio=(0.5, 2.0))
    crops = torch.tensor([draw_crop(2000, 1900, augmentation, generator) for _ in range(1500)]).double()
    _, _, wide, high = crops.T
    area, log_ratio = wide * high / (2000 * 1900), (wide / high).log()
    assert (area.min() > 0.199, area.max() < 0.401) == (True, True)
    assert log_ratio.abs().max() < math.log(2.0) + 0.002
    five_sigma = 5 / (12 * 1500) ** 0.5
    assert abs(area.mean() - 0.3) < 0.2 * five_sigma
    assert abs(log_ratio.mean()) < 2 * math.log(2) * five_sigma
    assert abs(area.std() - 0.2 / 12**0.5) < 0.004
    assert abs(log_ratio.std() - 2 * math.log(2) / 12**0.5) < 0.03
    assert abs(np.corrcoef(area, log_ratio)[0, 1]) < 0.13


def test_crop_positions_are_uniform_with_both_ends(generator):
    augmentation = Augmentation(scale=(0.25, 0.25), ratio=(1, 1))
    crops = torch.tensor([draw_crop(8, 8, augmentation, generator) for _ in range(2500)])
    assert (crops[:, 2:] == 4).all()
    for offset in crops.T[:2]:
        share = torch.bincount(offset, minlength=5) / 2500
        assert len(share) == 5
        assert (share - 0.2).abs().max() < 5 * (0.16 / 2500) ** 0.5
    assert abs(np.corrcoef(crops[:, 0], crops[:, 1])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("size", "crop"),
    [
        ((1000, 10), (493, 0, 13, 10)),  # ratio 4/3 of height 10
        ((10, 1000), (0, 493, 10, 13)),  # 10 / (3/4)
        ((10000, 1), (4999, 0, 1, 1)),
        ((1, 10000), (0, 4999, 1, 1)),
    ],
)
def test_image_that_fits_no_crop_gives_its_center(size, crop):
    assert draw_crop(*size, Augmentation(), seeded(0)) == crop


def test_draw_crop_without_a_fitting_try_gives_the_full_image(monkeypatch):
    monkeypatch.setattr(module, "CROP_TRIES", 0)
    assert draw_crop(100, 90, Augmentation(), seeded(0)) == (0, 0, 100, 90)


def test_ten_tries_are_made():
    generator, other = seeded(0), seeded(0)
    draw_crop(1000, 10, Augmentation(), generator)
    for _ in range(10 * 2):  # an area and a ratio a try
        torch.rand((), generator=other, dtype=torch.float64)
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=other))


# The color operations


@given(st.floats(0.0, 2.0))
def test_brightness_multiplies_and_clips(factor):
    image = noise(9, 8)
    wanted = (factor * floats(image)).clip(0, 255)
    assert np.abs(floats(adjust_brightness(image, factor)) - wanted).max() <= 0.5 + 1e-9


@given(st.floats(0.0, 2.0))
def test_contrast_stretches_about_the_mean_luma(factor):
    image = noise(9, 8).point(lambda level: level // 3 + 20)
    gray = luma(floats(image)).mean()
    wanted = (gray + factor * (floats(image) - gray)).clip(0, 255)
    assert np.abs(floats(adjust_contrast(image, factor)) - wanted).max() <= 0.5 + 1.0 * abs(1 - factor) + 1e-9


@given(st.floats(0.0, 2.0))
def test_saturation_stretches_about_the_luma_of_each_pixel(factor):
    image = noise(9, 8)
    gray = luma(floats(image))
    wanted = (gray + factor * (floats(image) - gray)).clip(0, 255)
    assert (
        np.abs(floats(adjust_saturation(image, factor)) - wanted).max() <= 1.0 + 0.5 * abs(1 - factor) + 1e-9
    )


@pytest.mark.parametrize("change", [adjust_brightness, adjust_contrast, adjust_saturation])
def test_a_factor_of_one_changes_nothing(change):
    assert np.array_equal(floats(change(noise(9, 8), 1.0)), floats(noise(9, 8)))


@pytest.mark.parametrize("shift", [0.0, 1.0, -1.0, 2.0, 0.001])
def test_hue_shift_of_0_and_1_changes_nothing(shift):
    assert np.abs(floats(adjust_hue(noise(20, 20), shift)) - floats(noise(20, 20))).max() <= 1


@pytest.mark.parametrize("turns", [2, 3, 5, 17])
def test_small_hue_shifts_add_up(turns):
    image = smooth(32)
    turned = image
    for _ in range(turns):
        turned = adjust_hue(turned, 1 / turns)
    assert np.abs(floats(turned) - floats(image)).mean() < 3 * turns**0.5


@pytest.mark.parametrize(
    ("shift", "wanted"),
    [(1 / 3, (0, 200, 0)), (-1 / 3, (0, 0, 200)), (1 / 2, (0, 200, 200)), (1 / 6, (200, 200, 0))],
)
def test_hue_shift_rotates_red(shift, wanted):
    red = Image.new("RGB", (2, 2), (200, 0, 0))
    assert np.abs(floats(adjust_hue(red, shift)) - wanted).max() <= 3


def test_hue_shift_keeps_value_and_grays():
    image = smooth(32)
    for shift in (-0.08, 0.03, 0.4):
        turned = floats(adjust_hue(image, shift))
        assert np.abs(turned.max(-1) - floats(image).max(-1)).max() <= 1
        assert np.abs(turned.min(-1) - floats(image).min(-1)).max() <= 2
    gray = to_grayscale(noise(8, 8))
    assert np.array_equal(floats(adjust_hue(gray, 0.3)), floats(gray))


def test_grayscale_is_the_luma_three_times():
    values = floats(to_grayscale(noise(9, 8)))
    assert (values == values[..., :1]).all()
    assert np.abs(values - luma(floats(noise(9, 8)))).max() <= 1


# The draws of the jitter


def test_factors_are_uniform_and_orders_all_occur(generator):
    augmentation = Augmentation(brightness=0.3, contrast=0.5, saturation=1.5, hue=0.1)
    draws = [draw_jitter(augmentation, generator) for _ in range(1500)]
    assert len({tuple(name for name, _ in draw) for draw in draws}) == 24
    bounds = {"brightness": (0.7, 1.3), "contrast": (0.5, 1.5), "saturation": (0.0, 2.5), "hue": (-0.1, 0.1)}
    amounts = {name: np.array([dict(draw)[name] for draw in draws]) for name in bounds}
    for name, (low, high) in bounds.items():
        unit = (amounts[name] - low) / (high - low)
        assert (unit.min() >= 0, unit.max() <= 1) == (True, True)
        assert abs(unit.mean() - 0.5) < 5 / (12 * 1500) ** 0.5
        assert abs(unit.std() - 12**-0.5) < 0.02
    assert np.abs(np.corrcoef(list(amounts.values())) - np.eye(4)).max() < 0.13
    first = [draw[0][0] for draw in draws]
    assert all(abs(first.count(name) / 1500 - 0.25) < 0.06 for name in bounds)


# All of it


def test_augmentation_without_randomness_is_the_plain_resize():
    assert torch.equal(
        augment(noise(50, 50), ImagePreprocessing(size=32), STILL, seeded(0)),
        resize_and_crop(noise(50, 50), ImagePreprocessing(size=32)),
    )


def test_augment_shows_the_drawn_crop():
    image = smooth(256)
    augmentation = Augmentation(scale=(0.1, 0.3), jitter_probability=0, grayscale_probability=0)
    left, top, wide, high = draw_crop(256, 256, augmentation, seeded(3))
    seen = augment(image, ImagePreprocessing(size=64), augmentation, seeded(3)).double()
    assert abs(seen[0, :, 0].mean() - (left + 0.5 * wide / 64)) < 2  # red is x, green is y, in pixels
    assert abs(seen[0, :, -1].mean() - (left + wide * 63.5 / 64)) < 2
    assert abs(seen[1, 0].mean() - (top + 0.5 * high / 64)) < 2
    assert abs(seen[1, -1].mean() - (top + high * 63.5 / 64)) < 2


def test_operations_run_in_the_order_drawn_with_their_amounts(monkeypatch):
    seen = []
    for name in module.COLOR_OPERATIONS:
        monkeypatch.setitem(
            module.COLOR_OPERATIONS,
            name,
            lambda image, amount, name=name: seen.append((name, amount)) or image,
        )
    monkeypatch.setattr(
        module, "draw_jitter", lambda *_: [("hue", 0.1), ("contrast", 2.0), ("brightness", 0.5)]
    )
    augment(noise(8, 8), ImagePreprocessing(size=8), Augmentation(jitter_probability=1), seeded(0))
    assert seen == [("hue", 0.1), ("contrast", 2.0), ("brightness", 0.5)]


def test_each_name_is_its_own_operation():
    image = noise(9, 8)
    for name, change in module.COLOR_OPERATIONS.items():
        amount = 0.3 if name == "hue" else 0.5
        own = {"brightness": adjust_brightness, "contrast": adjust_contrast, "saturation": adjust_saturation}
        assert np.array_equal(floats(change(image, amount)), floats(own.get(name, adjust_hue)(image, amount)))


def test_probabilities_are_frequencies(generator):
    image, preprocessing = smooth(8), ImagePreprocessing(size=8)
    plain = augment(image, preprocessing, STILL, generator)
    common = {"scale": (1, 1), "ratio": (1, 1)}
    jitter = Augmentation(**common, jitter_probability=0.3, grayscale_probability=0)
    changed = sum(
        not torch.equal(augment(image, preprocessing, jitter, generator), plain) for _ in range(1000)
    )
    assert abs(changed / 1000 - 0.3) < 5 * (0.21 / 1000) ** 0.5
    gray = Augmentation(**common, jitter_probability=0, grayscale_probability=0.2)
    outputs = [augment(image, preprocessing, gray, generator) for _ in range(1000)]
    grays = [out for out in outputs if not torch.equal(out, plain)]
    assert all(torch.equal(out[0], out[1]) and torch.equal(out[0], out[2]) for out in grays)
    assert abs(len(grays) / 1000 - 0.2) < 5 * (0.16 / 1000) ** 0.5


def test_augment_depends_on_the_generator_only():
    image, preprocessing, generator = noise(60, 80), ImagePreprocessing(size=32), seeded(7)
    state = generator.get_state()
    draws = [augment(image, preprocessing, Augmentation(), generator) for _ in range(8)]
    torch.manual_seed(1)
    np.random.seed(1)
    generator.set_state(state)
    again = [augment(image, preprocessing, Augmentation(), generator) for _ in range(8)]
    assert all(torch.equal(a, b) for a, b in zip(draws, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(draws))
    assert all(out.shape == (3, 32, 32) and out.dtype == torch.uint8 for out in draws)


@pytest.mark.parametrize("size", [(10000, 1), (1, 1), (3, 4000)])
def test_odd_sizes_are_augmented_too(size):
    assert augment(Image.new("RGB", size), ImagePreprocessing(size=16), Augmentation(), seeded(0)).shape == (
        3,
        16,
        16,
    )


def test_only_rgb_is_augmented():
    with pytest.raises(ValueError, match=r"must be RGB, not L of size \(4, 4\)"):
        augment(Image.new("L", (4, 4)), ImagePreprocessing(), Augmentation(), seeded(0))


def test_the_defaults_are_those_of_the_paper_and_json_will_do():
    defaults = Augmentation()
    assert defaults.scale == (0.8, 1.0)
    assert defaults.ratio == pytest.approx((0.75, 4 / 3))
    assert (defaults.brightness, defaults.contrast, defaults.saturation, defaults.hue) == (
        0.32,
        0.32,
        0.32,
        0.08,
    )
    assert (defaults.jitter_probability, defaults.grayscale_probability) == (0.8, 0.2)
    assert Augmentation(scale=[0.9, 1]) == Augmentation(scale=(0.9, 1.0))
    assert hash(Augmentation(scale=[0.9, 1])) == hash(Augmentation(scale=(0.9, 1.0)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scale": (0.0, 1.0)}, r"scale must be .* above 0 and at most 1, not"),
        ({"scale": (0.8, 1.1)}, r"scale must be \(smallest, largest\)"),
        ({"scale": (0.9, 0.8)}, r"scale must be \(smallest, largest\)"),
        ({"scale": 0.8}, "scale must be two numbers"),
        ({"ratio": (1.0,)}, "ratio must be two numbers"),
        ({"ratio": "ab"}, "ratio must be two numbers"),
        ({"ratio": (2.0, 1.0)}, r"ratio must be .* above 0, not"),
        ({"ratio": (1.0, math.inf)}, r"ratio must be \(smallest, largest\)"),
        ({"brightness": -0.1}, "brightness must be a number at least 0, not -0.1"),
        ({"contrast": math.inf}, "contrast must be a number at least 0"),
        ({"saturation": math.nan}, "saturation must be a number at least 0"),
        ({"hue": 0.6}, "hue must be a number in 0..0.5, not 0.6"),
        ({"hue": "x"}, "hue must be a number"),
        ({"jitter_probability": 1.1}, "jitter_probability must be a number in 0..1"),
        ({"grayscale_probability": -0.1}, "grayscale_probability must be a number in 0..1"),
    ],
)
def test_augmentation_rejects_invalid_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**wrong)


@pytest.mark.parametrize("scale", [(0.8, 1.0), (0.08, 1.0), (0.3, 0.5)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.5, 1.2), (1.0, 3.0)])
def test_with_the_short_side_no_crop_is_enlarged(scale, ratio, generator):
    preprocessing, augmentation = ImagePreprocessing(size=64), Augmentation(scale=scale, ratio=ratio)
    side = required_short_side(preprocessing, augmentation)
    smallest = min(
        min(draw_crop(*size, augmentation, generator)[2:])
        for size in ((side, side), (side, 2 * side), (3 * side, side))
        for _ in range(300)
    )
    assert smallest >= preprocessing.size - 1  # crops are whole pixels
    if ratio == (3 / 4, 4 / 3):
        assert smallest < 1.35 * preprocessing.size, "not more than is needed"
