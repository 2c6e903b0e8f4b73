"""Background removal: image uncertainty with the background and with the objects alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import describe_bad_samples, format_number, make_table
from prolip.data.config import WHITE
from prolip.data.sources.foreground import ForegroundImages
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.uncertainty import require_uncertainty
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian

NUM_EXAMPLES = 6
"""Images with the largest increase and decrease that the result lists."""


def evaluate_background(
    embedder: BaseEmbedder,
    annotations: str | Path,
    images: str | Path,
    *,
    canvas: int = WHITE,
    limit: int | None = None,
    untrained: int = 3,
) -> dict[str, Any]:
    """Compare the uncertainty of images with and without their background, for a model and for untrained ones.

    Args:
        embedder: The model, and how to embed with it.
        annotations: COCO's instances JSON, or one like it.
        images: The folder of images.
        canvas: Gray level (0 to 255) that replaces the background.
        limit: Use only this many images, the first ones; None: all.
        untrained: Number of untrained models, with the seeds 0, 1, ...; they show what blanking does without any
            training. Their embeddings are not cached.

    Returns:
        data, canvas;
        bad: number of images that could not be read with or without background;
        foreground_fraction: mean fraction of the area that segments cover;
        indices (of the images in the source), before and after (uncertainty of each image);
        model and untrained [...]: `compare_backgrounds` of the model and of each untrained one; paper {before, after};
        largest_increases and largest_decreases: rows of the images whose uncertainty changes most.
    """
    require_uncertainty(embedder)
    controls = untrained_embedders(embedder, untrained)  # checks the number before any work
    sources = [ForegroundImages(annotations, images, canvas=level, limit=limit) for level in (None, canvas)]
    originals, objects, area, indices = _embed_with_and_without_background(embedder, sources)
    before, after = originals.uncertainty.double(), objects.uncertainty.double()
    order = (after - before).argsort(stable=True)
    return {
        "data": str(annotations),
        "canvas": canvas,
        "bad": len(sources[0]) - len(indices),
        "foreground_fraction": float(area.mean()),
        "indices": indices.tolist(),
        "before": before.tolist(),
        "after": after.tolist(),
        "model": compare_backgrounds(originals, objects),
        "untrained": [
            compare_backgrounds(*_embed_with_and_without_background(control, sources)[:2])
            for control in controls
        ],
        "paper": dict(zip(("before", "after"), paper_numbers.BACKGROUND_REMOVED, strict=True)),
        "largest_increases": order.flip(0)[:NUM_EXAMPLES].tolist(),
        "largest_decreases": order[:NUM_EXAMPLES].tolist(),
    }


def compare_backgrounds(originals: Gaussian, objects: Gaussian) -> dict[str, Any]:
    """Compare images with their objects alone.

    Args:
        originals: The images, (N, D).
        objects: The same images without background, (N, D).

    Returns:
        images: N.
        before, after, difference: mean uncertainty of the originals and of the objects, and mean of their difference.
        fraction_increased: fraction of images whose uncertainty increases.
        cosine: mean cosine of an original and its own objects (of the means of their Gaussians).
        cosine_negatives: mean cosine of objects and the originals of other images; None for one image.
    """
    before, after = originals.uncertainty.double(), objects.uncertainty.double()
    # means have unit length, so dot products are cosines
    own = (originals.mean.double() * objects.mean.double()).sum(-1)
    count = len(own)
    total = originals.mean.double().sum(0) @ objects.mean.double().sum(0)  # the sum over all N x N pairs
    return {
        "images": count,
        "before": float(before.mean()),
        "after": float(after.mean()),
        "difference": float((after - before).mean()),
        "fraction_increased": float((after > before).double().mean()),
        "cosine": float(own.mean()),
        "cosine_negatives": float((total - own.sum()) / (count * (count - 1))) if count > 1 else None,
    }


def _embed_with_and_without_background(
    embedder: BaseEmbedder, sources: Sequence[ForegroundImages]
) -> tuple[Gaussian, Gaussian, Tensor, Tensor]:
    """Embed the images with and without background; drop those that could not be read in both sources.

    sources: the original images, and the same images with their background replaced.
    Returns images (N, D), objects (N, D), the fraction of the area that objects cover (N,), and source indices (N,).
    Raises ValueError if no image is left.
    """
    originals, objects = (embedder.embed_images(source) for source in sources)
    # rows of each source whose image is also in the other one
    original_rows = torch.isin(originals.indices, objects.indices)
    object_rows = torch.isin(objects.indices, originals.indices)
    if not bool(original_rows.any()):
        raise ValueError(
            f"{originals.name}: of no image could both the original and the objects alone be read "
            f"({len(originals.errors)} and {len(objects.errors)} bad samples). Check the annotations and the images"
        )
    area = torch.tensor(
        [sample.extra["object_fraction"] for sample in objects.metadata], dtype=torch.float64
    )[object_rows]
    return (
        originals.images[original_rows],
        objects.images[object_rows],
        area,
        originals.indices[original_rows],
    )


def background_tables(result: dict[str, Any]) -> list[Table]:
    """Make the table of a background evaluation: the model, untrained models, the paper's one image.

    Args:
        result: What `evaluate_background` returned.

    Returns:
        One table.
    """
    keys = ("before", "after", "fraction_increased", "cosine", "cosine_negatives")
    title = (
        f"Background removed: {result['model']['images']:,} images, "
        f"{100 * result['foreground_fraction']:.0f} % of the area is foreground"
    )
    headings = ("uncertainty before", "after", "fraction increased", "cosine, own image", "other images")
    table = make_table(title, [""], headings, caption=describe_bad_samples(result["bad"]))
    rows = [("this model", result["model"])]
    rows += [(f"untrained, seed {seed}", values) for seed, values in enumerate(result["untrained"])]
    for name, values in rows:
        table.add_row(name, *(format_number(values[key]) for key in keys))
    table.add_row("paper, one image", *(format_number(result["paper"].get(key)) for key in keys))
    return [table]
