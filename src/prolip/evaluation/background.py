"""Background removed: how uncertain a picture is before and after all but its annotated objects is blanked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.sources.foreground import ForegroundImages
from prolip.data.sources.hierarimgs_builder import WHITE
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.controls import untrained_models
from prolip.evaluation.formatting import describe_bad_samples, format_number, table
from prolip.evaluation.uncertainty import require_uncertainty
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP

SHOWN = 6


def evaluate_background(
    model: ProLIP,
    annotations: str | Path,
    images: str | Path,
    *,
    canvas: int = WHITE,
    limit: int | None = None,
    controls: int = 3,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Uncertainty with and without the background, of this model and of untrained ones.

    controls: models of the same config with fresh weights, of the seeds 0, 1, ...: what blanking does by itself.

    cache, batch_size, max_bad_fraction, progress: as in `encode_images`; what the untrained models make is not kept.

    Returns {data, canvas, bad, foreground_fraction, numbers, before, after, model, controls: [...], paper, largest_increases,
    largest_decreases}.
    bad: pictures that could not be used, whole or without their background. foreground_fraction: mean share that segments cover.
    before, after: uncertainties, image by image; numbers: of the images among those with segments. model, and each of
    the controls: `compare`. largest_increases, largest_decreases: rows of the images to look at.
    """
    require_uncertainty(model)
    fresh_models = untrained_models(model, controls)
    sources = [ForegroundImages(annotations, images, canvas=level, limit=limit) for level in (None, canvas)]
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    whole, objects, area, numbers = _both(embedder, sources)
    before, after = whole.uncertainty.double(), objects.uncertainty.double()
    order = (after - before).argsort(stable=True)
    return {
        "data": str(annotations),
        "canvas": canvas,
        "bad": len(sources[0]) - len(numbers),
        "foreground_fraction": float(area.mean()),
        "numbers": numbers.tolist(),
        "before": before.tolist(),
        "after": after.tolist(),
        "model": compare_backgrounds(whole, objects),
        "controls": [
            compare_backgrounds(*_both(replace(embedder, model=fresh, cache=None), sources)[:2]) for fresh in fresh_models
        ],
        "paper": dict(zip(("before", "after"), paper_numbers.BACKGROUND_REMOVED, strict=True)),
        "largest_increases": order.flip(0)[:SHOWN].tolist(),
        "largest_decreases": order[:SHOWN].tolist(),
    }


def compare_backgrounds(whole: Gaussian, objects: Gaussian) -> dict[str, Any]:
    """Pictures as they are against their objects alone, row by row. Both (N, D).

    before, after, difference: mean uncertainties. rises: share of pictures whose uncertainty grows. cosine: mean cosine
    of a picture's two means; cosine_negatives: of the objects' with other pictures' means (None for one picture): the
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
        "cosine_negatives": float((total - own.sum()) / (count * (count - 1))) if count > 1 else None,
    }


def _both(embedder: Embedder, sources: Sequence[ForegroundImages]) -> tuple[Gaussian, Gaussian, Tensor, Tensor]:
    """Whole pictures, their objects, the share of the area that objects cover, and numbers: of those good in both."""
    whole, objects = (embedder.embed_images(source) for source in sources)
    first, second = (torch.isin(a.indices, b.indices) for a, b in ((whole, objects), (objects, whole)))
    if not bool(first.any()):
        raise ValueError(f"{whole.name}: no picture of it can be used both whole and without its background")
    area = torch.tensor([fact.extra["kept"] for fact in objects.metadata], dtype=torch.float64)[second]
    return whole.images[first], objects.images[second], area, whole.indices[first]


def background_tables(result: dict[str, Any]) -> list[Table]:
    """What people read: this model, untrained ones, the paper's picture."""
    names = ("before", "after", "rises", "cosine", "cosine_negatives")
    title = (
        f"Background removed: {result['model']['images']:,} images, "
        f"{100 * result['foreground_fraction']:.0f} % of the area is kept"
    )
    headings = ("uncertainty before", "after", "share that rises", "cosine, own", "others'")
    drawn = table(title, [""], headings, caption=describe_bad_samples(result["bad"]))
    rows = [("this model", result["model"])]
    rows += [(f"untrained, seed {seed}", found) for seed, found in enumerate(result["controls"])]
    for title, found in rows:
        drawn.add_row(title, *(format_number(found[name]) for name in names))
    drawn.add_row("paper, one image", *(format_number(result["paper"].get(name)) for name in names))
    return [drawn]
