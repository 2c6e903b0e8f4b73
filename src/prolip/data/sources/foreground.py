"""The pictures of a COCO instances file, whole, or with all but their annotated objects blanked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from prolip.checks import require_positive_int
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.coco import SegmentedImage, decode_mask, read_instances
from prolip.data.sources.columns import require_image_file
from prolip.preprocessing.images import read_image


class ForegroundImages(SingleChunkSource):
    """The pictures of a COCO instances file that have segments, in its order; whole, or their objects alone.

    annotations: the instances file. images: the folder of its pictures.
    canvas: the grey level, 0 to 255, of everything outside the union of the segments (crowds too: they are annotated);
            None: the pictures as they are.
    limit:  only the first so many; None: all.
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
        if canvas is not None and (not isinstance(canvas, int) or not 0 <= canvas <= 255):
            raise ValueError(f"canvas must be a grey level from 0 to 255, not {canvas!r}")
        if limit is not None:
            require_positive_int(limit, "limit", maximum=2**40)
        if not self.images.is_dir():
            raise FileNotFoundError(f"{self.images}: there is no such folder")
        entries = read_instances(self.path)
        self.entries: Sequence[SegmentedImage] = [entry for entry in entries if entry.segments][:limit]
        if not self.entries:
            raise ValueError(
                f"{self.path}: none of its {len(entries)} images has a segment; is it an instances file?"
            )

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, index: int) -> Sample:
        """Its extra holds `kept`, the share of its area that segments cover."""
        require_index(index, len(self))
        entry = self.entries[index]
        where = f"{self.path}: image {entry.id} ({entry.file_name})"
        path = require_image_file(self.images / entry.file_name, where)
        mask = self._mask(entry, where)
        kept = {"kept": float(mask.mean())}
        if self.canvas is None:
            return Sample(str(entry.id), where, path, (), kept)
        try:
            picture = np.asarray(read_image(path))
        except ValueError as error:
            raise BadSampleError("unreadable image", where, str(error)) from None
        if picture.shape[:2] != mask.shape:
            size = (
                f"{picture.shape[1]} x {picture.shape[0]}, its annotations say {entry.width} x {entry.height}"
            )
            raise BadSampleError("unreadable image", where, f"it is {size}")
        blanked = np.where(mask[..., None], picture, np.uint8(self.canvas))
        return Sample(str(entry.id), where, Image.fromarray(blanked), (), kept)

    def fingerprint(self) -> str:
        return compute_fingerprint("objects", self.canvas, ascii(self.entries))

    def files(self) -> list[Path]:
        """The annotations and the pictures that are there; one that is missing is a bad sample."""
        pictures = (self.images / entry.file_name for entry in self.entries)
        return [self.path, *(picture for picture in pictures if picture.is_file())]

    def _mask(self, entry: SegmentedImage, where: str) -> np.ndarray:
        try:
            masks = [decode_mask(segment, entry.height, entry.width) for segment in entry.segments]
        except ValueError as error:
            raise BadSampleError("unreadable image", where, str(error)) from None
        union: np.ndarray = np.logical_or.reduce(masks)
        if not union.any():
            raise BadSampleError("unreadable image", where, "its segments have no pixels")
        return union
