"""Image preprocessing: reading any image source, resizing, cropping, normalizing to (3, S, S)."""

from __future__ import annotations

import errno
import io
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, get_args

import numpy as np
import torch
from PIL import ExifTags, Image
from torch import Tensor

from prolip.checks import require_choice, require_positive_int
from prolip.tensor_checks import describe_type

ResizeMode = Literal["shortest", "squash"]
"""`shortest`: the short side to `size`, then a center crop (CLIP). `squash`: both sides to `size` (SigLIP)."""

Interpolation = Literal["bicubic", "bilinear"]
ImageSource = str | Path | bytes | Image.Image | np.ndarray | Tensor
"""What `read_image` reads; bytes are the content of an image file."""

MAX_PIXELS = 100_000_000
"""Largest image that is decoded: 300 MB of RGB. A file of a few bytes can claim any size."""

MAX_SIDE = 65_535
"""Longest side that is decoded, that of a JPEG: rows of millions of pixels cost seconds."""

MAX_ASPECT_RATIO = 32
"""Long side / short side up to which an image is resized before it is cropped; beyond it, memory would explode."""

EXIF_TRANSPOSES = {  # what undoes each EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
URL = re.compile(r"[a-z][a-z0-9+.-]*://|data:", re.IGNORECASE)
"""Matches the beginning of an address, which is not a path."""


class TooManyPixelsError(ValueError):
    """An image that is larger than `max_pixels`."""


class EmptyImageError(ValueError):
    """A file of no bytes, or an image of no pixels."""


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """How an image becomes pixels. The defaults are those of the ProLIP release, which are CLIP's.

    Attributes:
        size: Side of the square that the tower sees, in pixels.
        mean: Mean of the red, green and blue channels, as fractions of full scale (0 to 1).
        std: Standard deviation of the red, green and blue channels, as fractions of full scale.
        resize_mode: "shortest" resizes the short side to `size` and crops the center of the long side;
            "squash" resizes both sides to `size` whatever the aspect ratio, as SigLIP does.
        interpolation: Pillow's filter of that name, on 8 bits, with antialiasing when an image shrinks.
    """

    size: int = 224
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)
    resize_mode: ResizeMode = "shortest"
    interpolation: Interpolation = "bicubic"

    def __post_init__(self) -> None:
        """Raise an error if a field is out of range; turn mean and std into tuples of floats."""
        require_positive_int(self.size, "size", maximum=4096)
        object.__setattr__(self, "mean", _check_rgb_fractions(self.mean, "mean"))
        object.__setattr__(self, "std", _check_rgb_fractions(self.std, "std"))
        if min(self.std) == 0:
            raise ValueError(f"std must be above zero in each channel, not {self.std}")
        require_choice(self.resize_mode, get_args(ResizeMode), "resize_mode")
        require_choice(self.interpolation, get_args(Interpolation), "interpolation")


def preprocess(source: ImageSource, preprocessing: ImagePreprocessing) -> Tensor:
    """Read, resize, crop and normalize an image.

    Args:
        source: A path, bytes, PIL image, array or tensor, see `read_image`.
        preprocessing: Preprocessing of the model.

    Returns:
        Pixels (3, S, S), float32, where S is `preprocessing.size`.

    Raises:
        FileNotFoundError, TypeError, ValueError, OSError: As `read_image`.
    """
    return normalize(resize_and_crop(read_image(source), preprocessing), preprocessing)


def read_image(
    source: ImageSource, *, max_pixels: int = MAX_PIXELS, min_short_side: int | None = None
) -> Image.Image:
    """Read an image as upright 8-bit RGB. A PIL image that is one already is returned as it is, not copied.

    | source                        | becomes                                                                      |
    |-------------------------------|------------------------------------------------------------------------------|
    | animation, several pages      | its first frame (of a PIL image: the frame it stands on)                      |
    | EXIF orientation              | applied, then dropped; unreadable EXIF counts as none                         |
    | 1, L, P, CMYK, YCbCr, HSV, LAB | RGB, before anything is resized (the release resizes palette indices)        |
    | LA, PA, RGBA                  | RGB: alpha is dropped, the color under it kept, as the release does           |
    | 16-bit gray (I;16)            | divided by 257                                                               |
    | mode I                        | 0..255 unchanged, 0..65535 divided by 257, else an error                     |
    | mode F                        | 0..1 times 255, 0..255 rounded, else an error                                |
    | numpy (H, W[, 1, 3 or 4])     | uint8 unchanged, uint16 divided by 257, floats in 0..1 times 255             |
    | tensor ([1, 3 or 4,] H, W)    | the same, from any device                                                    |

    Color profiles are ignored, as the release does.

    Args:
        source: A path, bytes, PIL image, array or tensor.
        max_pixels: Larger images are refused before they are decoded.
        min_short_side: For training: a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, at a fraction of the
            cost, as long as its short side has so many pixels. The pixels differ slightly from a full decoding.

    Returns:
        An RGB image.

    Raises:
        FileNotFoundError: If there is no such file.
        TypeError: If the source is of another type.
        ValueError: If it can't be decoded; the message names the source.
        OSError: If the disk or network fails (permission, I/O error): the image itself may be valid.
    """
    if isinstance(source, str | Path):
        return _read_path(source, max_pixels, min_short_side)
    if isinstance(source, bytes):
        return _read_file(io.BytesIO(source), "image bytes", max_pixels, min_short_side)
    if isinstance(source, Image.Image):
        return _to_upright_rgb(source, f"PIL image of mode {source.mode}", max_pixels)
    if isinstance(source, np.ndarray | Tensor):
        return _read_array(source, max_pixels)
    raise TypeError(f"an image is a path, bytes, PIL image, array or tensor, not {type(source).__name__}")


def resize_and_crop(image: Image.Image, preprocessing: ImagePreprocessing) -> Tensor:
    """Resize and crop an image, without normalizing it.

    Args:
        image: RGB, of any size.
        preprocessing: Its size, resize mode and interpolation are read.

    Returns:
        Pixels (3, S, S), uint8, where S is `preprocessing.size`.

    Raises:
        TypeError, ValueError: If it is not an RGB image; `read_image` makes one.
    """
    require_rgb(image)
    size, resampling = preprocessing.size, Image.Resampling[preprocessing.interpolation.upper()]
    if preprocessing.resize_mode == "squash":
        return pil_to_tensor(image.resize((size, size), resampling))
    short_side = min(image.size)
    width, height = (int(size * side / short_side) for side in image.size)  # after resizing, before the crop
    left, top = (round((side - size) / 2) for side in (width, height))  # to even: 37.5 -> 38, 36.5 -> 36
    if max(width, height) > MAX_ASPECT_RATIO * size:
        # A line of 10000 x 1 pixels would be 2 GB once 224 high: resample only what the crop shows. Up to Pillow's
        # rounding of the box to float32 these are the same pixels; ordinary images take the exact path below.
        x_scale, y_scale = image.width / width, image.height / height  # from resized to original coordinates
        right = min((left + size) * x_scale, image.width)
        bottom = min((top + size) * y_scale, image.height)
        box = (left * x_scale, top * y_scale, right, bottom)
        return pil_to_tensor(image.resize((size, size), resampling, box=box))
    if (width, height) != image.size:
        image = image.resize((width, height), resampling)
    if width != height:
        image = image.crop((left, top, left + size, top + size))
    return pil_to_tensor(image)


def normalize(pixels: Tensor, preprocessing: ImagePreprocessing) -> Tensor:
    """(pixels / 255 - mean) / std.

    Args:
        pixels: (..., 3, H, W), uint8.
        preprocessing: Its mean and std are read.

    Returns:
        A float32 tensor of the same shape, on the same device.

    Raises:
        TypeError: If the pixels are not uint8.
        ValueError: If the third axis from the end is not 3.
    """
    if not isinstance(pixels, Tensor) or pixels.dtype != torch.uint8:
        raise TypeError(f"pixels to normalize must be a torch.uint8 tensor, not {describe_type(pixels)}")
    if pixels.ndim < 3 or pixels.shape[-3] != 3:
        raise ValueError(f"pixels to normalize must have the shape (..., 3, H, W), not {tuple(pixels.shape)}")
    scale, shift = _compute_scale_and_shift(preprocessing, pixels.device)
    return pixels.float().mul_(scale).add_(shift)


@lru_cache(maxsize=64)
def _compute_scale_and_shift(
    preprocessing: ImagePreprocessing, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(scale, shift), float32 (3, 1, 1) each: scale * pixels + shift is (pixels / 255 - mean) / std.

    Cached, because copying them to a GPU waits for it.
    """
    mean, std = torch.tensor([preprocessing.mean, preprocessing.std], dtype=torch.float64)[..., None, None]
    return (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)


def pil_to_tensor(image: Image.Image) -> Tensor:
    """Copy the values of an RGB image to a tensor; nothing is resized or scaled.

    Args:
        image: An RGB image of H x W pixels.

    Returns:
        Pixels (3, H, W), uint8.
    """
    return torch.from_numpy(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)))


def tensor_to_pil(pixels: Tensor) -> Image.Image:
    """Copy pixels to an image, the inverse of `pil_to_tensor`.

    Args:
        pixels: (3, H, W), uint8, on the CPU.

    Returns:
        An RGB image of H x W pixels.
    """
    return Image.fromarray(pixels.movedim(0, 2).contiguous().numpy())


def require_rgb(image: Image.Image) -> None:
    """Raise unless this is an RGB image of at least one pixel.

    Args:
        image: The image to check.

    Raises:
        TypeError: If it is not a PIL image.
        ValueError: If it is of another mode or has no pixels.
    """
    if not isinstance(image, Image.Image):
        raise TypeError(f"the image must be a PIL image, not {describe_type(image)}; read_image makes one")
    if image.mode != "RGB" or 0 in image.size:
        raise ValueError(
            f"the image must be RGB, not {image.mode} of size {image.size}; read_image makes one"
        )


def _check_rgb_fractions(values: object, name: str) -> tuple[float, ...]:
    """Return three values (red, green, blue) as floats; ValueError unless they are three numbers in 0..1."""
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    if len(numbers) != 3 or not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"{name} must be three numbers, for red, green and blue, not {values!r}")
    if not all(0 <= n <= 1 for n in numbers):
        raise ValueError(f"{name} must be in 0..1, not {values!r}; divide 8-bit values by 255")
    return tuple(float(n) for n in numbers)


def _read_path(source: str | Path, max_pixels: int, min_short_side: int | None) -> Image.Image:
    """`read_image` of a file on disk. ValueError for a URL or a folder; the disk's own OSErrors pass through."""
    if isinstance(source, str) and URL.match(source):
        raise ValueError(f"{source[:200]} is a URL; download it first, then pass its path or its bytes")
    try:
        file = open(source, "rb")  # noqa: SIM115 (an error of the `with` body is not one of opening)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{source} does not exist") from error
    except OSError as error:
        if Path(source).is_dir():
            raise ValueError(f"{source} is a folder, not an image; pass the path of a file in it") from error
        raise
    with file:
        return _read_file(file, str(source), max_pixels, min_short_side)


def _read_file(file: IO[bytes], name: str, max_pixels: int, min_short_side: int | None) -> Image.Image:
    """`read_image` of an open file, `name` for messages. Its size is checked before any pixels are decoded."""
    with _as_value_error(name):
        image = _open_image(file)
    _check_size(image.size, name, max_pixels)
    if min_short_side is not None:
        image.draft(None, (min_short_side, min_short_side))  # no effect but for JPEG
    return _to_upright_rgb(image, name, max_pixels)


def _open_image(file: IO[bytes]) -> Image.Image:
    """Open an image as `Image.open` does, but without Pillow's limit of pixels, which would act before `max_pixels`.

    That limit is a global: lifting it for a moment would lift it for other threads too. Pixels are not decoded yet.
    ValueError if no plugin knows the format, EmptyImageError if the file has no bytes.
    """
    if not (first_bytes := file.read(16)):
        raise EmptyImageError("the file is empty")
    skipped = {"EPS"}  # PostScript is a program, which Pillow would hand to Ghostscript
    for load_plugins in (Image.preinit, Image.init):  # the common formats, then all
        load_plugins()
        for format_name in [name for name in Image.ID if name not in skipped]:
            skipped.add(format_name)
            factory, accept = Image.OPEN[format_name]
            accepted = accept is None or accept(first_bytes)
            if not accepted or isinstance(accepted, str):  # a string names a missing library
                continue
            file.seek(0)
            with suppress(SyntaxError, IndexError, TypeError, struct.error):  # not the format of this plugin
                return factory(file, "")
    raise ValueError("the format is unknown, or the first bytes are damaged")


@contextmanager
def _as_value_error(name: str) -> Iterator[None]:
    """Turn whatever Pillow raises for a corrupt file (OSError, SyntaxError, struct.error, ...) into ValueError.

    `name` of the image begins the message. EmptyImageError keeps its type; errors of the disk pass through.
    """
    try:
        yield
    except Exception as error:
        # The system's own OSErrors have an errno, and stay; but EINVAL is a seek to where a corrupt header points.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = str(error) or type(error).__name__
        error_type = EmptyImageError if isinstance(error, EmptyImageError) else ValueError
        raise error_type(f"{name} can't be read as an image: {reason}") from error


def _check_size(size: tuple[int, int], name: str, max_pixels: int) -> None:
    """Raise EmptyImageError or TooManyPixelsError unless an image of (width, height) has 1 to `max_pixels` pixels.

    No side may have more than MAX_SIDE."""
    width, height = size
    if width < 1 or height < 1:
        raise EmptyImageError(f"{name}: the image is {width} x {height} and has no pixels")
    if max(size) > MAX_SIDE:
        raise TooManyPixelsError(
            f"{name}: the image claims {width} x {height} pixels; no side may have more than {MAX_SIDE:,}"
        )
    if width * height > max_pixels:
        raise TooManyPixelsError(
            f"{name}: the image claims {width} x {height} pixels; max_pixels is {max_pixels:,}. "
            "Make the image smaller, or raise max_pixels if you trust its source"
        )


def _to_upright_rgb(image: Image.Image, name: str, max_pixels: int) -> Image.Image:
    """Decode an opened image, convert it to RGB and undo its EXIF orientation; ValueError if it is corrupt."""
    _check_size(image.size, name, max_pixels)
    with _as_value_error(name):
        image.load()
        transpose = None
        with suppress(Exception):  # corrupt EXIF raises errors of any type; the pixels are valid all the same
            transpose = EXIF_TRANSPOSES.get(image.getexif().get(ExifTags.Base.Orientation, 1))
        image = image if image.mode == "RGB" else _to_rgb(image)
        if transpose is None:
            return image
        image = image.transpose(transpose)
        # Metadata about the orientation must go, or a second read would rotate the image again.
        for key in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):
            image.info.pop(key, None)
        return image


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any other mode to RGB, by the table of `read_image`."""
    if image.mode[0] in "IF":  # I, I;16 (and its byte orders), F: one channel of more than 8 bits
        values = np.asarray(image)
        levels = _to_uint8(values if image.mode.startswith("I;16") else _infer_value_range(values))
        return Image.fromarray(levels).convert("RGB")
    if image.mode == "La":  # premultiplied gray, the one mode that Pillow can't convert to RGB in one step
        image = image.convert("LA")
    if "transparency" in image.info:  # Pillow would warn, or look for a color to replace it
        image = image.copy()
        del image.info["transparency"]
    return image.convert("RGB")


def _infer_value_range(values: np.ndarray) -> np.ndarray:
    """Infer the range of the values of mode I (int32) or F (float32), and cast them to a dtype that `_to_uint8` takes.

    The ranges are those of the table of `read_image`; ValueError if the values are in none of them.
    """
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "i":
        if low < 0 or high > 65535:
            raise ValueError(f"mode I must hold 0 to 255 or 0 to 65535, not {low:g} to {high:g}")
        return values.astype(np.uint8 if high <= 255 else np.uint16)
    if not (low >= 0 and high <= 255):
        raise ValueError(f"mode F must hold 0 to 1 or 0 to 255, not {low:g} to {high:g}")
    return values if high <= 1 else np.rint(values).astype(np.uint8)


def _to_uint8(values: np.ndarray) -> np.ndarray:
    """Convert uint8, uint16 or floats in 0..1, of any shape, to the nearest uint8; ValueError for anything else."""
    kind = (values.dtype.kind, values.dtype.itemsize)
    if kind == ("u", 1):
        return values
    if kind == ("u", 2):
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 / 257 = 255
    if kind[0] != "f":
        raise ValueError(f"an image must be uint8, uint16 or float in 0..1, not {values.dtype}")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"floats must be in 0..1, not {low:g} to {high:g}; scale or clip them")
    return np.rint(values.astype(np.float32) * 255).astype(np.uint8)


def _read_array(source: np.ndarray | Tensor, max_pixels: int) -> Image.Image:
    """`read_image` of an array (H, W[, C]) or a tensor ([C,] H, W), C = 1, 3 or 4 channels; alpha is dropped."""
    is_tensor = isinstance(source, Tensor)
    name = f"{'tensor' if is_tensor else 'array'} of shape {tuple(source.shape)}"
    if source.ndim == 2:
        source = source[None] if is_tensor else source[..., None]
    if source.ndim != 3 or source.shape[0 if is_tensor else 2] not in (1, 3, 4):
        expected = "(C, H, W)" if is_tensor else "(H, W, C)"
        raise ValueError(f"{name}: an image must have the shape (H, W) or {expected}, C = 1, 3 or 4")
    if isinstance(source, Tensor):
        source = source.detach().cpu().movedim(0, 2)
        # NumPy has no bfloat16
        source = (source.float() if source.dtype == torch.bfloat16 else source).numpy()
    _check_size((source.shape[1], source.shape[0]), name, max_pixels)
    with _as_value_error(name):
        levels = _to_uint8(source)
        if levels.shape[2] == 1:
            return Image.fromarray(levels[..., 0]).convert("RGB")
        return Image.fromarray(levels[..., :3])
