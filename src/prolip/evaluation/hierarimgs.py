"""HierarImgs: inclusion of an image in the images of only some of its segments.

The paper's test is H(original in level k) > 0. The sign of H depends on the variances only; the distance of the means
only scales it. So two more things are measured: the same test for untrained models, and whether a measure separates an
image's own level from those of other images (negatives).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, describe_bad_samples, format_number, format_percent, make_table
from prolip.data.source import evenly_spaced
from prolip.data.sources.folder import ImageList
from prolip.data.sources.hierarimgs import HierarImgs
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.metrics.selective import auroc
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian
from prolip.measures import public

BINS = 40
"""Bins of a histogram."""
MAX_NEGATIVES = 1000
"""Images, evenly spaced in the data, whose levels are compared with each other."""

PairedMeasure = Callable[[Gaussian, Gaussian], Tensor]
"""Two Gaussians (N, D) -> one value per row, (N,)."""


def evaluate_hierarimgs(
    embedder: BaseEmbedder,
    data: HierarImgs,
    *,
    untrained: int = 3,
) -> dict[str, Any]:
    """Evaluate a model on HierarImgs, and untrained models of the same config on the paper's test.

    Args:
        embedder: The model, and how to embed with it.
        data: The originals and their levels.
        untrained: Number of untrained models, with the seeds 0, 1, ...; their embeddings are not cached.

    Returns:
        The dict of `compute_inclusion_metrics`, and
        data: path of the data.
        levels: number of levels.
        bad: number of images of which the original or a level could not be used.
        untrained: None without untrained models or without uncertainty; else seeds, and included: for each level
            {by_seed, mean} of the fraction of originals that are included.
    """
    controls = untrained_embedders(embedder, untrained)  # checks the number before any work
    original, levels, indices = _embed_levels(embedder, data)
    result = compute_inclusion_metrics(original, levels, indices)
    untrained_result = None
    if untrained and result["by_level"][0]["included"] is not None:
        untrained_result = _group_by_level([
            _included_fractions(*_embed_levels(control, data)[:2])
            for control in controls
        ])  # fmt: skip
    return {
        "data": str(data.path),
        "levels": len(data.levels),
        "bad": len(data.originals) - len(indices),
        **result,
        "untrained": untrained_result,
    }


def compute_inclusion_metrics(
    original: Gaussian, levels: Sequence[Gaussian], indices: Tensor | None = None
) -> dict[str, Any]:
    """Measure whether originals are included in their levels, and whether a measure finds an image's own level.

    Args:
        original: The original images, (N, D).
        levels: The images of each level, (N, D) each, in the order of the originals.
        indices: Index of each image in its data, int64 (N,); None: 0 to N - 1.

    Returns:
        images: N.
        uncertainty: mean of the originals; None for a deterministic model.
        by_level: a list of dicts, all but own_level_auroc_csd None for a deterministic model:
            uncertainty: mean of the level.
            difference, difference_histogram: mean and histogram of uncertainty(level) - uncertainty(original).
            more_uncertain: fraction of images whose difference is above 0.
            included: fraction with H(original in level) > 0, the paper's test.
            inverse: fraction with H(level in original) > 0.
            H: mean, median and histogram of H(original in level). (Those of the inverse are mirrored: H is
                antisymmetric.)
            log_inclusion, log_containment: medians of {original_in_level, level_in_original}.
            own_level_auroc: {H, log_inclusion, log_containment}: AUROC of (original i, level i) against the negatives
                (original i, level j).
            own_level_auroc_csd: the same by CSD, which deterministic models have too.
        failures: indices of the images whose original is not included in level 0, the worst first.
    """
    indices = torch.arange(len(original)) if indices is None else indices
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (original, *levels))
    return {
        "images": len(original),
        "uncertainty": original.uncertainty.double().mean().item() if probabilistic else None,
        "by_level": [_level_metrics(original, level, probabilistic) for level in levels],
        "failures": _find_failures(original, levels[0], indices) if probabilistic else None,
    }


def hierarimgs_tables(result: Mapping[str, Any]) -> list[Table]:
    """Make the table of a HierarImgs evaluation: by level, the paper's test, untrained models, AUROCs.

    Args:
        result: What `evaluate_hierarimgs` returned.

    Returns:
        One table.
    """
    title = (
        f"{result['images']} images (paper: over {100 * paper_numbers.HIERARIMGS_INCLUDED:.0f} % included)"
    )
    aurocs = (f"AUROC by {name}" for name in ("H", "log inclusion", "containment", "CSD"))
    headings = ("included %", "untrained %, range", "uncertainty", "difference", *aurocs)
    table = make_table(title, ["level"], headings, caption=describe_bad_samples(result["bad"]))
    for level, row in enumerate(result["by_level"]):
        auroc_by = row["own_level_auroc"] or {}
        table.add_row(
            str(level), format_percent(row["included"]), _format_range(result["untrained"], level),
            *(format_number(row[key]) for key in ("uncertainty", "difference")),
            *(format_number(auroc_by.get(key)) for key in ("H", "log_inclusion", "log_containment")),
            format_number(row["own_level_auroc_csd"]),
        )  # fmt: skip
    return [table]


def _level_metrics(original: Gaussian, level: Gaussian, probabilistic: bool) -> dict[str, Any]:
    """The entry of `compute_inclusion_metrics` for one level: original and level are (N, D), row i being image i.

    Most values are None unless `probabilistic`. AUROCs compare at most MAX_NEGATIVES images with each other.
    """
    rows = torch.from_numpy(evenly_spaced(len(original), MAX_NEGATIVES))
    originals, candidates = original[rows], level[rows]  # (n, D) each
    by_csd = _own_level_auroc(-public.csd_matrix(originals, candidates))
    if not probabilistic:
        missing = dict.fromkeys((
            "uncertainty", "difference", "difference_histogram", "more_uncertain", "included", "inverse", "H",
            "log_inclusion", "log_containment", "own_level_auroc",
        ))  # fmt: skip
        return {**missing, "own_level_auroc_csd": by_csd}
    h = public.inclusion(original, level).double()
    difference = (level.uncertainty - original.uncertainty).double()
    return {
        "uncertainty": level.uncertainty.double().mean().item(),
        "difference": difference.mean().item(),
        "difference_histogram": _histogram(difference),
        "more_uncertain": (difference > 0).double().mean().item(),
        "included": (h > 0).double().mean().item(),
        "inverse": (h < 0).double().mean().item(),
        "H": {"mean": h.mean().item(), "median": h.median().item(), "histogram": _histogram(h)},
        "log_inclusion": _medians_both_directions(public.log_inclusion, original, level),
        "log_containment": _medians_both_directions(public.log_containment, original, level),
        "own_level_auroc": {
            "H": _own_level_auroc(public.inclusion_matrix(originals, candidates)),
            "log_inclusion": _own_level_auroc(public.log_inclusion_matrix(originals, candidates)),
            "log_containment": _own_level_auroc(public.log_containment_matrix(originals, candidates)),
        },
        "own_level_auroc_csd": by_csd,
    }


def _medians_both_directions(measure: PairedMeasure, original: Gaussian, level: Gaussian) -> dict[str, float]:
    """Medians of a measure of (original in level) and of (level in original), over the N images."""
    pairs = {"original_in_level": measure(original, level), "level_in_original": measure(level, original)}
    return {name: values.double().median().item() for name, values in pairs.items()}


def _own_level_auroc(scores: Tensor) -> float | None:
    """AUROC of the diagonal (an image's own level) against the rest (negatives) of (n, n); None for one image."""
    is_own_level = torch.eye(len(scores), dtype=torch.bool)
    return auroc(is_own_level.flatten(), scores.double().flatten())


def _find_failures(original: Gaussian, level: Gaussian, indices: Tensor) -> list[int]:
    """Data indices of the images with H(original in level) <= 0, the smallest H first."""
    h = public.inclusion(original, level)
    order = h.argsort(stable=True)
    return [int(indices[row]) for row in order[h[order] <= 0]]


def _histogram(values: Tensor) -> dict[str, list[float] | list[int]]:
    """Histogram {edges, counts} of BINS (at most one more) bins of equal width that cover all values; 0 is an edge."""
    low, high = min(0.0, values.min().item()), max(0.0, values.max().item())
    width = (high - low) / BINS or 1.0
    # numbers of bins below and above 0; at least one in all, also if every value is 0
    num_below, num_above = math.ceil(-low / width), max(math.ceil(high / width), 1 if low == 0 else 0)
    edges = torch.arange(-num_below, num_above + 1, dtype=torch.float64) * width
    edges[0], edges[-1] = min(edges[0].item(), low), max(edges[-1].item(), high)  # despite rounding
    return {"edges": edges.tolist(), "counts": [int(count) for count in torch.histogram(values, edges).hist]}


def _embed_levels(embedder: BaseEmbedder, data: HierarImgs) -> tuple[Gaussian, list[Gaussian], Tensor]:
    """Embed the originals and every level; drop the images whose original or a level could not be read.

    Returns the originals (N, D), the levels (N, D) each, and the indices of the N images in the data, int64 (N,).
    """
    encoded = [embedder.embed_images(ImageList(data.path, files)) for files in (data.originals, *data.levels)]
    indices = encoded[0].indices
    for encoded_level in encoded[1:]:
        indices = indices[torch.isin(indices, encoded_level.indices)]
    original, *levels = [images.images[torch.isin(images.indices, indices)] for images in encoded]
    return original, levels, indices


def _included_fractions(original: Gaussian, levels: Sequence[Gaussian]) -> list[float]:
    """Fraction of originals with H(original in level) > 0, the paper's test, for each level."""
    return [float((public.inclusion(original, level) > 0).double().mean()) for level in levels]


def _group_by_level(by_seed: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Transpose fractions [seed][level] into {seeds, included: for each level {by_seed, mean}}."""
    columns = [list(column) for column in zip(*by_seed, strict=True)]
    return {
        "seeds": list(range(len(by_seed))),
        "included": [{"by_seed": column, "mean": sum(column) / len(column)} for column in columns],
    }


def _format_range(untrained: Mapping[str, Any] | None, level: int) -> str:
    """Format the smallest and largest fraction included in a level over the untrained models, in percent.

    A range, not a mean: the fractions may lie far apart. untrained: `untrained` of `evaluate_hierarimgs`.
    """
    fractions = [] if untrained is None else untrained["included"][level]["by_seed"]
    return f"{format_percent(min(fractions))} – {format_percent(max(fractions))}" if fractions else MISSING
