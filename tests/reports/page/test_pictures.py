"""Pictures inside the page."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from prolip.reports.page.pictures import LARGEST, inline


def back(picture):
    return Image.open(io.BytesIO(base64.b64decode(picture.uri.partition(",")[2])))


def test_a_small_picture_is_kept_to_the_pixel():
    noise = np.random.default_rng(0).integers(0, 256, (48, 32, 3), dtype=np.uint8)
    made = inline(Image.fromarray(noise), "noise")
    assert made.small
    assert made.uri.startswith("data:image/png;base64,")
    assert (np.asarray(back(made)) == noise).all()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_a_large_one_is_made_smaller_and_keeps_its_shape(mode):
    image = Image.new(mode, (1000, 500))
    made = inline(image, "large")
    assert not made.small
    assert back(made).size == (LARGEST, LARGEST // 2)
    assert image.size == (1000, 500)  # the caller's own is not touched
