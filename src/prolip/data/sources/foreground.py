"""Images with a part hidden: the background of COCO's annotated objects, or a box in the center."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path

import numpy as np
from PIL import Image

from prolip.checks import require_positive_int
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.coco import SegmentedImage, decode_mask, read_instances
from prolip.data.sources.columns import require_image_file
from prolip.preprocessing.image_views import occlude_box
from prolip.preprocessing.images import read_image

GRAY = 128
"""Gray level of what is hidden."""


class ForegroundImages(SingleChunkSource):
    """The images of a COCO instances file that have segments, in its order; whole, or their objects alone.

    Args:
        annotations: the instances file.
        images: the folder of its images.
        canvas: gray level, 0 to 255, of everything outside the union of the segments (crowds too: they are annotated);
            None: the whole images.
        limit: largest number of images, the first of the file; None: all.

    Raises:
        FileNotFoundError: If the folder or the file does not exist.
        ValueError: If no image has segments, or if an argument is out of range.
    """

    def __init__(
        self,
        annotations: str | Path,
        images: str | Path,
        *,
        canvas: int | None = None,
        limit: int | None = None,
    ) -> None:
        self.path, self.images, self.canvas = Path(annotations), Path(images), canvas
        _require_canvas(canvas)
        if limit is not None:
            require_positive_int(limit, "limit", maximum=2**40)
        if not self.images.is_dir():
            raise FileNotFoundError(f"{self.images}: no such folder")
        entries = read_instances(self.path)
        self.entries: Sequence[SegmentedImage] = [entry for entry in entries if entry.segments][:limit]
        if not self.entries:
            raise ValueError(
                f"{self.path}: none of the {len(entries)} images has a segment. Give an instances file of COCO."
            )

    def __len__(self) -> int:
        return len(self.entries)

    def with_canvas(self, canvas: int | None) -> ForegroundImages:
        """The same images with another canvas.

        Args:
            canvas: See the class.

        Returns:
            A new source; the annotations are not read again.
        """
        _require_canvas(canvas)
        other = copy(self)
        other.canvas = canvas
        return other

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`; `extra["object_fraction"]` is the fraction of its area in segments."""
        require_index(index, len(self))
        entry = self.entries[index]
        location = f"{self.path}: image {entry.id} ({entry.file_name})"
        path = require_image_file(self.images / entry.file_name, location)
        mask = self._decode_foreground_mask(entry, location)
        extra = {"object_fraction": float(mask.mean())}
        if self.canvas is None:
            return Sample(str(entry.id), location, path, (), extra)
        try:
            pixels = np.asarray(read_image(path))
        except ValueError as error:
            raise BadSampleError("unreadable image", location, str(error)) from None
        if pixels.shape[:2] != mask.shape:
            size = f"{pixels.shape[1]} x {pixels.shape[0]}, but {entry.width} x {entry.height} in the annotations"
            raise BadSampleError("unreadable image", location, f"the image is {size}")
        foreground = np.where(mask[..., None], pixels, np.uint8(self.canvas))
        return Sample(str(entry.id), location, Image.fromarray(foreground), (), extra)

    def fingerprint(self) -> str:
        return compute_fingerprint("objects", self.canvas, ascii(self.entries))

    def files(self) -> list[Path]:
        """Return the paths of the annotations and of the images that exist; a missing one is a bad sample."""
        paths = (self.images / entry.file_name for entry in self.entries)
        return [self.path, *(path for path in paths if path.is_file())]

    def _decode_foreground_mask(self, entry: SegmentedImage, location: str) -> np.ndarray:
        """The union of the masks of all segments, bool (H, W); BadSampleError if one is malformed or all are empty."""
        try:
            masks = [decode_mask(segment, entry.height, entry.width) for segment in entry.segments]
        except ValueError as error:
            raise BadSampleError("unreadable image", location, str(error)) from None
        union: np.ndarray = np.logical_or.reduce(masks)
        if not union.any():
            raise BadSampleError("unreadable image", location, "the segments have no pixels")
        return union


def _require_canvas(canvas: int | None) -> None:
    """Raise ValueError unless this is None or a gray level."""
    if canvas is not None and (not isinstance(canvas, int) or not 0 <= canvas <= 255):
        raise ValueError(f"canvas must be a gray level from 0 to 255, not {canvas!r}")


def occlude_center(image: Image.Image, fraction: float, level: int = GRAY) -> Image.Image:
    """Hide the center of an image, as the paper's occlusion test does.

    Args:
        image: an RGB image; not changed.
        fraction: fraction of the area that is hidden, 0 to 1, by a box of the image's aspect ratio.
        level: gray level of the box, 0 to 255.

    Returns:
        A copy of the image with a gray box in its center.

    Raises:
        TypeError, ValueError: If it is not an RGB image, or if an argument is out of range.
    """
    if not isinstance(level, int) or not 0 <= level <= 255:
        raise ValueError(f"the gray level of the box must be in 0..255, not {level!r}")
    return occlude_box(image, fraction, (level, level, level))
