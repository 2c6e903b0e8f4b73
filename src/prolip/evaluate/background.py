"""Background removed: how uncertain a picture is before and after all but its annotated objects is blanked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.table import Table
from torch import Tensor

from prolip.checks import require_count
from prolip.data.cells import present_image
from prolip.data.coco import SegmentedImage, mask_of, read_instances
from prolip.data.sample import BadSampleError, Sample
from prolip.data.segments import WHITE
from prolip.data.source import OneChunk, fingerprint_of, require_index
from prolip.embed.encode import encode_images
from prolip.evaluate import paper
from prolip.evaluate.controls import untrained
from prolip.evaluate.tell import bad_samples, number
from prolip.evaluate.uncertainty import require_uncertainty
from prolip.gaussian import Gaussian
from prolip.inputs.images import read_image
from prolip.model.prolip import ProLIP

SHOWN = 6


class Objects(OneChunk):
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
            require_count(limit, "limit", most=2**40)
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
        path = present_image(self.images / entry.file_name, where)
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
        return fingerprint_of("objects", self.canvas, ascii(self.entries))

    def files(self) -> list[Path]:
        """The annotations and the pictures that are there; one that is missing is a bad sample."""
        pictures = (self.images / entry.file_name for entry in self.entries)
        return [self.path, *(picture for picture in pictures if picture.is_file())]

    def _mask(self, entry: SegmentedImage, where: str) -> np.ndarray:
        try:
            masks = [mask_of(segment, entry.height, entry.width) for segment in entry.segments]
        except ValueError as error:
            raise BadSampleError("unreadable image", where, str(error)) from None
        union: np.ndarray = np.logical_or.reduce(masks)
        if not union.any():
            raise BadSampleError("unreadable image", where, "its segments have no pixels")
        return union


def evaluate(
    model: ProLIP,
    annotations: str | Path,
    images: str | Path,
    *,
    canvas: int = WHITE,
    limit: int | None = None,
    controls: int = 3,
    cache: Path | None = None,
    batch_size: int = 64,
    bad_limit: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Uncertainty with and without the background, of this model and of untrained ones.

    controls: models of the same config with fresh weights, of the seeds 0, 1, ...: what blanking does by itself.

    cache, batch_size, bad_limit, progress: as in `encode_images`; what the untrained models make is not kept.

    Returns {data, canvas, bad, kept_area, numbers, before, after, model, controls: [...], paper, largest_rises,
    largest_falls}.
    bad: pictures that could not be used, whole or without their background. kept_area: mean share that segments cover.
    before, after: uncertainties, image by image; numbers: of the images among those with segments. model, and each of
    the controls: `compare`. largest_rises, largest_falls: rows of the images to look at.
    """
    require_uncertainty(model)
    if not isinstance(controls, int) or controls < 0:
        raise ValueError(f"controls must be a whole number of at least 0, not {controls!r}")
    sources = [Objects(annotations, images, canvas=level, limit=limit) for level in (None, canvas)]

    def both(encoder: ProLIP, kept: Path | None) -> tuple[Gaussian, Gaussian, Tensor, Tensor]:
        return _both(encoder, sources, kept, batch_size, bad_limit, progress)

    whole, objects, area, numbers = both(model, cache)
    before, after = whole.uncertainty.double(), objects.uncertainty.double()
    order = (after - before).argsort(stable=True)
    return {
        "data": str(annotations),
        "canvas": canvas,
        "bad": len(sources[0]) - len(numbers),
        "kept_area": float(area.mean()),
        "numbers": numbers.tolist(),
        "before": before.tolist(),
        "after": after.tolist(),
        "model": compare(whole, objects),
        "controls": [compare(*both(untrained(model, seed), None)[:2]) for seed in range(controls)],
        "paper": dict(zip(("before", "after"), paper.BACKGROUND_REMOVED, strict=True)),
        "largest_rises": order.flip(0)[:SHOWN].tolist(),
        "largest_falls": order[:SHOWN].tolist(),
    }


def compare(whole: Gaussian, objects: Gaussian) -> dict[str, Any]:
    """Pictures as they are against their objects alone, row by row. Both (N, D).

    before, after, difference: mean uncertainties. rises: share of pictures whose uncertainty grows. cosine: mean cosine
    of a picture's two means; cosine_others: of the objects' with other pictures' means (None for one picture): the
    paper's new embedding stays near the original.
    """
    before, after = whole.uncertainty.double(), objects.uncertainty.double()
    own = (whole.mean.double() * objects.mean.double()).sum(-1)
    count = len(own)
    total = whole.mean.double().sum(0) @ objects.mean.double().sum(0)
    return {
        "images": count,
        "before": float(before.mean()),
        "after": float(after.mean()),
        "difference": float((after - before).mean()),
        "rises": float((after > before).double().mean()),
        "cosine": float(own.mean()),
        "cosine_others": float((total - own.sum()) / (count * (count - 1))) if count > 1 else None,
    }


def _both(
    model: ProLIP,
    sources: Sequence[Objects],
    cache: Path | None,
    batch_size: int,
    bad_limit: float,
    progress: bool | None,
) -> tuple[Gaussian, Gaussian, Tensor, Tensor]:
    """Whole pictures, their objects, the share of the area that objects cover, and numbers: of those good in both."""
    whole, objects = (
        encode_images(
            model, source, cache=cache, batch_size=batch_size, bad_limit=bad_limit, progress=progress
        )
        for source in sources
    )
    first, second = (torch.isin(a.numbers, b.numbers) for a, b in ((whole, objects), (objects, whole)))
    if not bool(first.any()):
        raise ValueError(f"{whole.name}: no picture of it can be used both whole and without its background")
    area = torch.tensor([fact.extra["kept"] for fact in objects.facts], dtype=torch.float64)[second]
    return whole.images[first], objects.images[second], area, whole.numbers[first]


def tables(result: dict[str, Any]) -> list[Table]:
    """What people read: this model, untrained ones, the paper's picture."""
    names = ("before", "after", "rises", "cosine", "cosine_others")
    drawn = Table(
        "", "uncertainty before", "after", "share that rises", "cosine, own", "others'",
        title=f"Background removed: {result['model']['images']:,} images, "
        f"{100 * result['kept_area']:.0f} % of the area is kept",
        caption=bad_samples(result["bad"]),
    )  # fmt: skip
    rows = [("this model", result["model"])]
    rows += [(f"untrained, seed {seed}", found) for seed, found in enumerate(result["controls"])]
    for title, found in rows:
        drawn.add_row(title, *(number(found[name]) for name in names))
    drawn.add_row("paper, one image", *(number(result["paper"].get(name)) for name in names))
    return [drawn]
