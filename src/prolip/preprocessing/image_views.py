"""Image views: crops, boxes and patches that show a part of an image, used as ordinary images of the same caption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image

from prolip.checks import require_fraction, require_positive_int
from prolip.preprocessing.augmentation import Augmentation, draw_bool, draw_crop, draw_uniform
from prolip.preprocessing.images import ImagePreprocessing, require_rgb
from prolip.preprocessing.masking import draw_patch_indices

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
ViewKind = Literal["whole", "crop", "box", "patches"]
"""whole: the image itself. crop: a part of it. box: all but a hidden box. patches: some cells of a grid."""


@dataclass(frozen=True, kw_only=True)
class ImageViews:
    """Which fraction of the images is shown in part, and how large the visible part is.

    Attributes:
        crop_fraction: Fraction of the images that become a crop.
        mask_fraction: Fraction that become a mask: half of them lose a box, half keep some patches.
        min_area: Smallest fraction of an image's area that a view shows.
        max_area: Largest fraction; visible areas are uniform between the two.
        max_aspect_jitter: Largest factor between the aspect ratios of crop and image; log-uniform up to it, either way.
        flip: Whether every second crop is mirrored. The paper doesn't flip.
        grid: Patches per side of an image.
    """

    crop_fraction: float = 0.15
    mask_fraction: float = 0.15
    min_area: float = 0.05
    max_area: float = 0.6
    max_aspect_jitter: float = 4 / 3
    flip: bool = False
    grid: int = 7

    def __post_init__(self) -> None:
        """Raise ValueError if a field is out of range."""
        for name in ("crop_fraction", "mask_fraction"):
            require_fraction(getattr(self, name), name)
        if self.crop_fraction + self.mask_fraction > 1:
            raise ValueError(
                "crop_fraction and mask_fraction are of the same images: their sum must be at most 1, not "
                f"{self.crop_fraction} + {self.mask_fraction}"
            )
        for name in ("min_area", "max_area"):
            require_fraction(getattr(self, name), name, exclude_zero=True)
        if self.min_area > self.max_area:
            raise ValueError(f"min_area {self.min_area} must be at most max_area {self.max_area}")
        jitter = self.max_aspect_jitter
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 1 <= jitter < math.inf:
            raise ValueError(f"max_aspect_jitter must be a factor of at least 1, not {jitter!r}")
        if self.max_area * jitter > 1:
            raise ValueError(
                f"a crop of max_area {self.max_area} with max_aspect_jitter {jitter:g} may not fit into the image: "
                "their product must be at most 1"
            )
        if not isinstance(self.flip, bool):
            raise ValueError(f"flip must be true or false, not {self.flip!r}")
        require_positive_int(self.grid, "grid", maximum=1024)

    @property
    def narrowest_side(self) -> float:
        """The shortest side of a crop, as a fraction of that side of the image."""
        return math.sqrt(self.min_area / self.max_aspect_jitter)


def draw_image_view(
    image: Image.Image, views: ImageViews, color: Color, generator: torch.Generator
) -> Image.Image:
    """Crop or mask an image or leave it whole, by chance.

    Args:
        image: RGB, of any size.
        views: Fractions and areas.
        color: Fills what is hidden: `compute_mean_color` of the model's preprocessing.
        generator: CPU generator, from which all random numbers are drawn.

    Returns:
        A new RGB image, of the size of `image` unless it is a crop; the image itself if it stays whole.
    """
    return make_image_view(image, draw_view_kind(views, generator), views, color, generator)


def draw_view_kind(views: ImageViews, generator: torch.Generator) -> ViewKind:
    """Draw what becomes of an image.

    Args:
        views: Its fractions are read.
        generator: CPU generator; one number is drawn from it.

    Returns:
        The kind of the view.
    """
    chance = draw_uniform(0.0, 1.0, generator)
    if chance < views.crop_fraction:
        return "crop"
    if chance < views.crop_fraction + views.mask_fraction:
        return "box" if chance < views.crop_fraction + views.mask_fraction / 2 else "patches"
    return "whole"


def make_image_view(
    image: Image.Image, kind: ViewKind, views: ImageViews, color: Color, generator: torch.Generator
) -> Image.Image:
    """Make a view of a given kind; its area and place are drawn.

    Args:
        image: RGB, of any size.
        kind: Kind of the view.
        views: Areas, jitter, flip and grid are read.
        color: Fills what is hidden.
        generator: CPU generator, from which all random numbers are drawn.

    Returns:
        A new RGB image; for "whole" the image itself.
    """
    require_rgb(image)
    if kind == "whole":
        return image
    if kind == "crop":
        return crop_image(image, views, generator)
    area = draw_uniform(views.min_area, views.max_area, generator)
    if kind == "box":
        place = draw_uniform(0.0, 1.0, generator), draw_uniform(0.0, 1.0, generator)
        return occlude_box(image, 1 - area, color, place)
    return keep_patches(image, area, views.grid, color, generator)


def crop_image(image: Image.Image, views: ImageViews, generator: torch.Generator) -> Image.Image:
    """Crop an image to a random rectangle.

    The aspect ratio is the image's times a factor. So every drawn crop fits, and its area is the drawn one but for the
    rounding of its sides to whole pixels. (Of an image of a few pixels, of which the crop would be less than one, the
    whole is returned.)

    Args:
        image: RGB, of any size.
        views: Areas, jitter and flip are read.
        generator: CPU generator, from which all random numbers are drawn.

    Returns:
        A new RGB image of the crop's size.
    """
    require_rgb(image)
    own_ratio, jitter = image.width / image.height, views.max_aspect_jitter
    limits = Augmentation(
        scale=(views.min_area, views.max_area), ratio=(own_ratio / jitter, own_ratio * jitter)
    )
    left, top, width, height = draw_crop(image.width, image.height, limits, generator)
    crop = image.crop((left, top, left + width, top + height))
    if views.flip and draw_bool(0.5, generator):
        return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return crop


def occlude_box(
    image: Image.Image, fraction: float, color: Color, place: tuple[float, float] = (0.5, 0.5)
) -> Image.Image:
    """Hide a box of an image's aspect ratio.

    Args:
        image: RGB; not changed.
        fraction: Fraction of the area that is hidden, 0 to 1.
        color: Color of the box.
        place: Where the box is, from (0, 0), top left, to (1, 1), bottom right; (0.5, 0.5) is the center.

    Returns:
        A copy of the image with the box.
    """
    require_rgb(image)
    if not 0 <= fraction <= 1:
        raise ValueError(f"the hidden fraction must be in 0..1, not {fraction!r}")
    if not all(0 <= coordinate <= 1 for coordinate in place):
        raise ValueError(f"the place of the box must be two numbers in 0..1, not {place!r}")
    occluded = image.copy()
    width, height = (round(side * math.sqrt(fraction)) for side in image.size)
    if width and height:
        left, top = int((image.width - width) * place[0]), int((image.height - height) * place[1])
        occluded.paste(_require_color(color), (left, top, left + width, top + height))
    return occluded


def keep_patches(
    image: Image.Image, fraction: float, grid: int, color: Color, generator: torch.Generator
) -> Image.Image:
    """Hide all but some random patches of an image.

    Args:
        image: RGB; not changed.
        fraction: Fraction of the patches that stay visible, above 0 and at most 1: max(1, round(fraction * number)).
        grid: Patches per side; at most the pixels of that side.
        color: Fills the others.
        generator: CPU generator, from which the patches are drawn.

    Returns:
        A copy of the image of which only these patches are left.
    """
    require_rgb(image)
    require_positive_int(grid, "grid", maximum=1024)
    num_columns, num_rows = min(grid, image.width), min(grid, image.height)
    visible = np.zeros(num_rows * num_columns, dtype=bool)
    visible[draw_patch_indices(1, len(visible), fraction, generator)[0].numpy()] = True
    row_of, column_of = (
        np.arange(side) * number // side
        for side, number in ((image.height, num_rows), (image.width, num_columns))
    )
    is_visible = visible.reshape(num_rows, num_columns)[row_of][:, column_of, None]  # (H, W, 1)
    fill = np.array(_require_color(color), dtype=np.uint8)
    return Image.fromarray(np.where(is_visible, np.asarray(image), fill))


def compute_mean_color(preprocessing: ImagePreprocessing) -> Color:
    """Compute the mean color of a model's images, which becomes about 0 when pixels are normalized.

    Args:
        preprocessing: Preprocessing of the model.

    Returns:
        The color.
    """
    red, green, blue = (round(255 * fraction) for fraction in preprocessing.mean)
    return red, green, blue


def _require_color(color: Color) -> Color:
    """Return the color; ValueError unless it is three integers from 0 to 255."""
    if len(color) != 3 or not all(isinstance(level, int) and 0 <= level <= 255 for level in color):
        raise ValueError(f"a color must be three levels in 0..255, not {color!r}")
    return color
