"""Foreign preprocessing: transformers' own processor is the reference; what we can't do exactly is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.preprocessing.images import ImagePreprocessing, preprocess
from prolip.weights.formats.preprocessing import from_open_clip, from_transformers

CLIP, SIGLIP = (
    ImagePreprocessing(size=24),
    ImagePreprocessing(size=24, mean=(0.5,) * 3, std=(0.5,) * 3, resize_mode="squash"),
)


@pytest.mark.parametrize(
    ("values", "fit"),
    [
        ({}, "shortest"),
        ({"size": {"shortest_edge": 24}}, "shortest"),
        ({"size": 24, "crop_size": 24}, "shortest"),
        (
            {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "do_center_crop": True},
            "shortest",
        ),
        ({"size": {"height": 24, "width": 24}, "do_center_crop": False}, "squash"),
        ({"size": {"height": 24, "width": 24}}, "squash"),
    ],
)
def test_resize_mode_of_transformers(values, fit):
    assert from_transformers(values, 24, CLIP).resize_mode == fit


def test_absent_keys_take_the_defaults_of_the_class():
    assert from_transformers({}, 24, SIGLIP) == SIGLIP
    assert from_transformers({}, 24, CLIP) == CLIP
    values = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "resample": 2}
    rules = from_transformers(values, 24, CLIP)
    assert (rules.mean, rules.std, rules.interpolation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"resample": 0}, "resample 0"),
        ({"do_normalize": False}, "do_normalize false"),
        ({"do_rescale": False}, "do_rescale false"),
        ({"do_resize": False}, "do_resize false"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"rescale_factor": 1 / 512}, "rescale_factor"),
        ({"size": {"shortest_edge": 32}, "crop_size": 24}, "don't give images of 24 pixels"),
        ({"size": {"shortest_edge": 24}, "crop_size": 20}, "don't give images of 24 pixels"),
        ({"size": {"shortest_edge": 24}, "do_center_crop": False}, "don't give images of 24 pixels"),
        ({"size": {"height": 32, "width": 32}}, "don't give images of 24 pixels"),
        (
            {"size": {"height": 24, "width": 24}, "crop_size": 20, "do_center_crop": True},
            "don't give images of 24 pixels",
        ),
        ({"do_center_crop": "false"}, "do_center_crop 'false'"),
    ],
)
def test_unsupported_settings_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(values, 24, CLIP)


@pytest.mark.parametrize("saved", [{}, {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 2}])
def test_pixels_are_those_of_transformers(saved):
    transformers = pytest.importorskip("transformers")
    try:
        theirs = transformers.CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size=24, **saved)
    except (AttributeError, ImportError):
        pytest.skip("this transformers has no Pillow image processor")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 72, 3), dtype=np.uint8))
    wanted = torch.as_tensor(np.asarray(theirs(image)["pixel_values"][0]))
    found = preprocess(image, from_transformers(saved, 24, CLIP))
    assert (found - wanted).abs().max() < 1.01 / 255 / 0.25  # a grey level


def test_from_open_clip():
    assert from_open_clip({}, 24) == CLIP
    values = {
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "interpolation": "bilinear",
        "resize_mode": "squash",
    }
    assert from_open_clip(values, 24) == ImagePreprocessing(
        size=24, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), interpolation="bilinear", resize_mode="squash"
    )
