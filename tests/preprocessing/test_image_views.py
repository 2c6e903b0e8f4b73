"""Laws of image views: areas within their range, hidden what was asked for, fractions met, a function of the seed."""

import math
from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from PIL import Image

from prolip.preprocessing.image_views import (
    ImageViews,
    compute_mean_color,
    crop_image,
    draw_image_view,
    draw_view_kind,
    keep_patches,
    make_image_view,
    occlude_box,
)
from prolip.preprocessing.images import ImagePreprocessing, normalize, pil_to_tensor

VIEWS = ImageViews()
FILL = (1, 2, 3)
"""A color that `picture` does not have."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def picture(width, height):
    """Red is the column, green the row, blue is 255: each pixel says where it was, up to 256 pixels."""
    rows, columns = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([columns, rows, np.full_like(rows, 255)], axis=-1).astype(np.uint8))


def is_hidden(image):
    return (np.asarray(image) == FILL).all(-1)


# Crops


@given(st.integers(12, 256), st.integers(12, 256), st.integers(0, 999))
def test_a_crop_is_a_rectangle_of_an_area_and_ratio_within_the_limits(width, height, seed):
    crop = crop_image(picture(width, height), VIEWS, seeded(seed))
    left, top = np.asarray(crop)[0, 0, :2].tolist()
    expected = np.asarray(picture(width, height))[top : top + crop.height, left : left + crop.width]
    assert np.array_equal(np.asarray(crop), expected)
    # each side is rounded to a whole pixel
    low_area = (crop.width - 0.5) * (crop.height - 0.5) / (width * height)
    high_area = (crop.width + 0.5) * (crop.height + 0.5) / (width * height)
    assert low_area <= VIEWS.max_area
    assert high_area >= VIEWS.min_area
    own_ratio = width / height
    assert (crop.width - 0.5) / (crop.height + 0.5) <= own_ratio * VIEWS.max_aspect_jitter
    assert (crop.width + 0.5) / (crop.height - 0.5) >= own_ratio / VIEWS.max_aspect_jitter


@pytest.mark.parametrize("size", [(600, 570), (1500, 200), (100, 3000)])
def test_areas_of_crops_are_uniform_whatever_the_ratio_of_the_image(size, generator):
    image = Image.new("RGB", size)
    crops = [crop_image(image, VIEWS, generator) for _ in range(600)]
    areas = np.array([crop.width * crop.height / (size[0] * size[1]) for crop in crops])
    ratios = np.log([crop.width / crop.height * size[1] / size[0] for crop in crops])
    assert (areas.min() > 0.045, areas.max() < 0.605) == (True, True)
    five_sigma = 5 / (12 * 600) ** 0.5
    assert abs(areas.mean() - 0.325) < 0.55 * five_sigma
    assert abs(areas.std() - 0.55 / 12**0.5) < 0.015
    assert np.abs(ratios).max() < math.log(4 / 3) + 0.02
    assert abs(ratios.mean()) < 2 * math.log(4 / 3) * five_sigma


def test_a_crop_is_mirrored_only_if_asked_and_then_half_of_the_time():
    image = picture(64, 48)
    flipping = replace(VIEWS, flip=True)
    mirrored = 0
    for seed in range(200):
        crop = np.asarray(crop_image(image, VIEWS, seeded(seed)))
        other = np.asarray(crop_image(image, flipping, seeded(seed)))
        is_mirrored = not np.array_equal(other, crop)
        assert np.array_equal(other, crop[:, ::-1] if is_mirrored else crop)
        mirrored += is_mirrored
    assert 65 < mirrored < 135


def test_the_narrowest_side_bounds_all_crops(generator):
    image = Image.new("RGB", (1000, 700))
    crops = [crop_image(image, VIEWS, generator) for _ in range(300)]
    assert min(crop.width / 1000 for crop in crops) > VIEWS.narrowest_side - 0.001
    assert min(crop.height / 700 for crop in crops) > VIEWS.narrowest_side - 0.001


def test_an_image_of_one_pixel_stays_whole():
    assert crop_image(picture(1, 1), VIEWS, seeded(0)).size == (1, 1)


# Masks


@given(st.integers(1, 256), st.integers(1, 256), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_box_hides_the_fraction_within_rounding(width, height, fraction, x, y):
    image = picture(width, height)
    occluded = occlude_box(image, fraction, FILL, (x, y))
    hidden = is_hidden(occluded)
    assert hidden.mean() == pytest.approx(fraction, abs=0.5 * (1 / width + 1 / height))
    assert np.array_equal(np.asarray(occluded)[~hidden], np.asarray(image)[~hidden])
    rows, columns = np.nonzero(hidden)
    if len(rows):
        assert hidden[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
        free = width - (columns.max() - columns.min() + 1)
        assert columns.min() == int(free * x)


@pytest.mark.parametrize(("width", "height", "grid"), [(224, 224, 7), (48, 48, 6), (50, 33, 7), (3, 2, 7)])
@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.6, 1.0])
def test_patches_are_whole_cells_of_the_grid_as_many_as_asked(width, height, grid, fraction, generator):
    image = picture(width, height)
    kept = keep_patches(image, fraction, grid, FILL, generator)
    visible = ~is_hidden(kept)
    assert np.array_equal(np.asarray(kept)[visible], np.asarray(image)[visible])
    cells, columns = Counter(), min(grid, width)
    for row in range(height):  # a cell holds the pixels with the same floor(position * number / side)
        for column in range(width):
            cell = row * min(grid, height) // height, column * columns // width
            cells[cell] += bool(visible[row, column])
    sizes = Counter(
        (row * min(grid, height) // height, column * columns // width)
        for row in range(height)
        for column in range(width)
    )
    assert all(cells[cell] in (0, size) for cell, size in sizes.items())
    assert sum(count > 0 for count in cells.values()) == max(1, round(fraction * len(sizes)))


@pytest.mark.parametrize("kind", ["box", "patches"])
def test_visible_areas_of_masks_lie_within_the_limits_and_are_uniform(kind, generator):
    image = picture(224, 224)
    areas = np.array(
        [1 - is_hidden(make_image_view(image, kind, VIEWS, FILL, generator)).mean() for _ in range(300)]
    )
    tolerance = 1 / 224 if kind == "box" else 0.5 / 49
    assert areas.min() > VIEWS.min_area - tolerance
    assert areas.max() < VIEWS.max_area + tolerance
    assert abs(areas.mean() - 0.325) < 5 * 0.55 / (12 * 300) ** 0.5
    assert make_image_view(image, "whole", VIEWS, FILL, generator) is image


def test_the_mean_color_becomes_zero():
    preprocessing = ImagePreprocessing(size=8)
    image = Image.new("RGB", (8, 8), compute_mean_color(preprocessing))
    assert normalize(pil_to_tensor(image), preprocessing).abs().max() < 0.5 / 255 / 0.26


# Chance


def test_kinds_come_in_their_fractions(generator):
    views = ImageViews(crop_fraction=0.2, mask_fraction=0.3)
    kinds = Counter(draw_view_kind(views, generator) for _ in range(4000))
    for kind, fraction in {"crop": 0.2, "box": 0.15, "patches": 0.15, "whole": 0.5}.items():
        assert abs(kinds[kind] / 4000 - fraction) < 5 * (fraction * (1 - fraction) / 4000) ** 0.5


def test_a_view_is_a_function_of_the_seed():
    views = ImageViews(crop_fraction=0.5, mask_fraction=0.5)
    one, same = (
        [draw_image_view(picture(40, 30), views, FILL, seeded(seed)).tobytes() for seed in range(30)]
        for _ in range(2)
    )
    assert one == same
    assert len(set(one)) == 30


def test_the_image_is_left_alone():
    image = picture(40, 30)
    for seed in range(30):
        draw_image_view(image, ImageViews(crop_fraction=0.5, mask_fraction=0.5), FILL, seeded(seed))
    assert image.tobytes() == picture(40, 30).tobytes()


# Bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop_fraction": 1.5}, "crop_fraction must be a fraction"),
        ({"crop_fraction": 0.7, "mask_fraction": 0.7}, "at most 1"),
        ({"min_area": 0.0}, "min_area must be a fraction above 0"),
        ({"min_area": 0.5, "max_area": 0.4}, "min_area 0.5 must be at most max_area 0.4"),
        ({"max_aspect_jitter": 0.5}, "max_aspect_jitter must be a factor of at least 1"),
        ({"max_area": 0.9, "max_aspect_jitter": 1.5}, "may not fit"),
        ({"flip": 1}, "flip must be true or false"),
        ({"grid": 0}, "grid must be a whole number"),
    ],
)
def test_impossible_views_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ImageViews(**fields)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.1, FILL), "must be in 0"),
        ((float("nan"), FILL), "must be in 0"),
        ((0.5, (0, 0, 256)), "three levels in 0..255"),
        ((0.5, FILL, (0.5, 2.0)), "two numbers in 0..1"),
    ],
)
def test_impossible_boxes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        occlude_box(picture(8, 8), *arguments)


@pytest.mark.parametrize("kind", ["whole", "crop", "box", "patches"])
def test_images_that_are_not_rgb_are_refused(kind):
    with pytest.raises(ValueError, match="not L"):
        make_image_view(Image.new("L", (8, 8)), kind, VIEWS, FILL, seeded(0))
