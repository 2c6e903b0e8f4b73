"""Background removal: image uncertainty with the background and with the objects alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import describe_bad_samples, format_number, make_table
from prolip.data.sources.foreground import ForegroundImages
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.configs import BackgroundConfig
from prolip.evaluation.result import Mean, Proportion, Result
from prolip.evaluation.uncertainty import require_uncertainty
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian

NUM_EXAMPLES = 6
"""Images with the largest increase and decrease that the result lists."""


@dataclass(frozen=True, kw_only=True)
class BackgroundComparison:
    """Images compared with their objects alone, by one model."""

    n: int
    """Number of images."""
    before: float
    """Mean uncertainty of the images."""
    after: float
    """Mean uncertainty of the objects alone."""
    difference: Mean
    """after - before, over images."""
    fraction_increased: Proportion
    """Fraction of images whose uncertainty increases."""
    cosine: Mean
    """Cosine of the means of an image and of its own objects."""
    cosine_negatives: float | None
    """Mean cosine of objects and other images; None for one image."""


@dataclass(frozen=True, kw_only=True)
class BackgroundResult(Result):
    """Uncertainty with and without background; `n` is the number of images. `num_bad` of them could not be read."""

    task: ClassVar[str] = "background"

    canvas: int
    """Gray level that replaces the background."""
    foreground_fraction: float
    """Mean fraction of the area that segments cover."""
    indices: tuple[int, ...]
    """Index of each image in its source."""
    before: tuple[float, ...]
    """Uncertainty of each image."""
    after: tuple[float, ...]
    """Uncertainty of its objects alone."""
    model: BackgroundComparison
    """The comparison by the model."""
    untrained: tuple[BackgroundComparison, ...]
    """The comparison by each untrained model: what blanking does without any training."""
    largest_increases: tuple[int, ...]
    """Rows of the images whose uncertainty rises most, the largest rise first."""
    largest_decreases: tuple[int, ...]
    """Rows of the images whose uncertainty falls most, the largest fall first."""

    def tables(self) -> list[Table]:
        """One table: the model, untrained models, the paper's one image."""
        foreground = f"{100 * self.foreground_fraction:.0f} % of the area is foreground"
        title = f"Background removed: {self.n:,} images, {foreground}"
        headings = ("uncertainty before", "after", "fraction increased", "cosine, own image", "other images")
        table = make_table(title, [""], headings, caption=describe_bad_samples(self.num_bad))
        rows = {"this model": self.model}
        rows |= {f"untrained, seed {seed}": values for seed, values in enumerate(self.untrained)}
        for name, row in rows.items():
            numbers = (
                row.before, row.after, row.fraction_increased.value, row.cosine.value, row.cosine_negatives
            )  # fmt: skip
            table.add_row(name, *map(format_number, numbers))
        table.add_row(
            "paper, one image", *map(format_number, (*paper_numbers.BACKGROUND_REMOVED, None, None, None))
        )
        return [table]


def evaluate_background(
    embedder: BaseEmbedder, data: ForegroundImages, config: BackgroundConfig | None = None
) -> BackgroundResult:
    """Compare the uncertainty of images with and without their background, for a model and for untrained ones.

    Args:
        embedder: The model, and how to embed with it. Embeddings of untrained models are not cached.
        data: Images with annotated objects; its canvas does not matter.
        config: The options; None: the defaults.

    Returns:
        The result.

    Raises:
        ValueError: The model is deterministic, or no image could be read.
    """
    config = config or BackgroundConfig()
    require_uncertainty(embedder)
    controls = untrained_embedders(embedder, config.controls)  # checks the number before any work
    sources = [data.with_canvas(canvas) for canvas in (None, config.canvas)]
    originals, objects, area, indices = _embed_with_and_without_background(embedder, sources)
    before, after = originals.uncertainty.double(), objects.uncertainty.double()
    order = (after - before).argsort(stable=True)
    return BackgroundResult(
        data=str(data.path),
        n=len(indices),
        num_bad=len(data) - len(indices),
        canvas=config.canvas,
        foreground_fraction=float(area.mean()),
        indices=tuple(indices.tolist()),
        before=tuple(before.tolist()),
        after=tuple(after.tolist()),
        model=compare_backgrounds(originals, objects),
        untrained=tuple(
            compare_backgrounds(*_embed_with_and_without_background(control, sources)[:2])
            for control in controls
        ),
        largest_increases=tuple(order.flip(0)[:NUM_EXAMPLES].tolist()),
        largest_decreases=tuple(order[:NUM_EXAMPLES].tolist()),
    )


def compare_backgrounds(originals: Gaussian, objects: Gaussian) -> BackgroundComparison:
    """Compare images with their objects alone.

    Args:
        originals: The images, (N, D).
        objects: The same images without background, (N, D).

    Returns:
        The comparison.
    """
    before, after = originals.uncertainty.double(), objects.uncertainty.double()
    # means have unit length, so dot products are cosines
    own = (originals.mean.double() * objects.mean.double()).sum(-1)
    count = len(own)
    total = originals.mean.double().sum(0) @ objects.mean.double().sum(0)  # the sum over all N x N pairs
    return BackgroundComparison(
        n=count,
        before=float(before.mean()),
        after=float(after.mean()),
        difference=Mean.from_values(after - before),
        fraction_increased=Proportion.from_mean(float((after > before).double().mean()), count),
        cosine=Mean.from_values(own),
        cosine_negatives=float((total - own.sum()) / (count * (count - 1))) if count > 1 else None,
    )


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
