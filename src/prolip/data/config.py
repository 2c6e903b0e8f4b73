"""CheckConfig, HierarImgsBuildConfig: options of functions and commands on data; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.checks import require_positive_int
from prolip.configs import Advanced, make_tuples, require_field_types

MIN_PIXELS = 5000
"""All segments of an image of HierarImgs must have more pixels than this."""
LEVELS = 3
"""Number of images of HierarImgs that are made of one original."""
WHITE = 255
"""Gray level of the blank canvas."""


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """How data is read once, as in training."""

    captions: tuple[str, ...] | None = None
    """Fields of a tar (txt, txt:lines, json:caption) or columns of a table; (): captions are not checked. None: the
    usual ones."""
    image: str | None = None
    """Field or column of the image, or COCO's folder of images."""
    image_size: int = 224
    """Height and width in pixels to which images are resized."""
    workers: int = 0
    """Processes that read and decode; 0: this one does."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        make_tuples(self)
        require_field_types(self)
        require_positive_int(self.image_size, "image_size")
        if self.workers < 0:
            raise ValueError(f"workers must be at least 0, not {self.workers}")


@dataclass(frozen=True, kw_only=True)
class HierarImgsBuildConfig:
    """Which images HierarImgs is made of."""

    min_pixels: int = MIN_PIXELS
    """Use an image if its smallest segment has more pixels."""
    levels: int = LEVELS
    """Levels per image: the largest segment, the two largest, ..."""
    canvas: int = WHITE
    """Gray level of the blank canvas, 0 to 255."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        check_min_pixels(self.min_pixels)
        check_levels_and_canvas(self.levels, self.canvas)
        require_field_types(self)


def check_min_pixels(min_pixels: object) -> None:
    """Raise ValueError unless it is an integer of at least 0."""
    if not isinstance(min_pixels, int) or isinstance(min_pixels, bool) or min_pixels < 0:
        raise ValueError(f"min_pixels must be an integer of at least 0, not {min_pixels!r}")


def check_levels_and_canvas(levels: int, canvas: int) -> None:
    """Raise ValueError unless there are 1 to 100 levels and the canvas is a gray level from 0 to 255."""
    require_positive_int(levels, "levels", maximum=100)
    if not isinstance(canvas, int) or not 0 <= canvas <= 255:
        raise ValueError(f"canvas must be an integer, a gray level from 0 to 255, not {canvas!r}")
