"""HierarImgs: pictures whose segments appear one by one. Is the original included in what shows less of it?

H(original in level k) > 0 is the paper's test. H compares widths and nothing else: a distance of the means only scales
it. So two more questions are asked: the same of untrained models, which know nothing of pictures; and whether a measure
tells a picture's own level from those of other pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.sources.hierarimgs import HierarImgs
from prolip.data.sources.image_list import ImageList
from prolip.data.subset import evenly_spaced
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import paper_numbers
from prolip.evaluation.controls import untrained_models
from prolip.evaluation.formatting import MISSING, describe_bad_samples, format_number, format_percent, table
from prolip.evaluation.metrics.selective import auroc
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.model.prolip import ProLIP

BINS = 40
MAX_NEGATIVES = 1000
"""Pictures, evenly spread over the set, whose levels are compared with each other."""

Paired = Callable[[Gaussian, Gaussian], Tensor]


def evaluate_hierarimgs(
    model: ProLIP,
    data: HierarImgs,
    *,
    controls: int = 3,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """`judge` of a model, and beside it what fresh models of the same config give.

    controls: how many fresh models, of the seeds 0, 1, ...
    Layout: data, levels; that of `judge`; control: None without controls or uncertainty, else seeds and, by level, the
    shares of `included` by seed and their mean. bad: pictures that could not be used, they or one of their levels.
    cache, batch_size, max_bad_fraction, progress: as in `encode_images`; what the fresh models make is not kept.
    """
    fresh_models = untrained_models(model, controls)
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    original, levels, numbers = _encoded(embedder, data)
    result = compute_inclusion_metrics(original, levels, numbers)
    control = None
    if controls and result["by_level"][0]["included"] is not None:
        control = _control([
            _included(*_encoded(replace(embedder, model=fresh, cache=None), data)[:2])
            for fresh in fresh_models
        ])  # fmt: skip
    return {
        "data": str(data.path),
        "levels": len(data.levels),
        "bad": len(data.originals) - len(numbers),
        **result,
        "control": control,
    }


def compute_inclusion_metrics(original: Gaussian, levels: Sequence[Gaussian], numbers: Tensor | None = None) -> dict[str, Any]:
    """original: (N, D). levels: (N, D) each. numbers: of the pictures in their data, by default 0 to N - 1.

    images:   N.
    uncertainty: mean of the originals; None for a deterministic model.
    by_level: for each level,
      uncertainty: its mean; difference: mean of (level - original), with its histogram; more_uncertain: share above 0.
      included:  share with H(original in level) > 0, the paper's test; inverse: with H(level in original) > 0.
      H:         its mean, median and histogram; that of the inverse is the mirror image, H being antisymmetric.
      log_inclusion, log_containment: medians of original in level, and of the inverse.
      own_level_auroc: AUROC by which original i in level i is told from original i in level j.
      own_level_auroc_csd: the same by CSD, which deterministic models have too.
    failures: numbers of the pictures whose original is not included in level 0, the worst first.
    """
    numbers = torch.arange(len(original)) if numbers is None else numbers
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (original, *levels))
    return {
        "images": len(original),
        "uncertainty": original.uncertainty.double().mean().item() if probabilistic else None,
        "by_level": [_level(original, level, probabilistic) for level in levels],
        "failures": _failures(original, levels[0], numbers) if probabilistic else None,
    }


def hierarimgs_tables(result: Mapping[str, Any]) -> list[Table]:
    """For people: by level, the paper's test beside its control, and what tells a picture's own level from others'."""
    title = (
        f"{result['images']} images (paper: over {100 * paper_numbers.HIERARIMGS_INCLUDED:.0f} % included)"
    )
    by = (f"own/others by {name}" for name in ("H", "log inclusion", "containment", "CSD"))
    headings = ("included %", "untrained %, from to", "uncertainty", "difference", *by)
    made = table(title, ["level"], headings, caption=describe_bad_samples(result["bad"]))
    for level, row in enumerate(result["by_level"]):
        others = row["own_level_auroc"] or {}
        made.add_row(
            str(level), format_percent(row["included"]), _range_of_seeds(result["control"], level),
            *(format_number(row[key]) for key in ("uncertainty", "difference")),
            *(format_number(others.get(key)) for key in ("H", "log_inclusion", "log_containment")),
            format_number(row["own_level_auroc_csd"]),
        )  # fmt: skip
    return [made]


def _level(original: Gaussian, level: Gaussian, probabilistic: bool) -> dict[str, Any]:
    few = torch.from_numpy(evenly_spaced(len(original), MAX_NEGATIVES))
    some, others = original[few], level[few]
    by_csd = _own_against_others(-public.csd_matrix(some, others))
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
        "log_inclusion": _both_ways(public.log_inclusion, original, level),
        "log_containment": _both_ways(public.log_containment, original, level),
        "own_level_auroc": {
            "H": _own_against_others(public.inclusion_matrix(some, others)),
            "log_inclusion": _own_against_others(public.log_inclusion_matrix(some, others)),
            "log_containment": _own_against_others(public.log_containment_matrix(some, others)),
        },
        "own_level_auroc_csd": by_csd,
    }


def _both_ways(measure: Paired, original: Gaussian, level: Gaussian) -> dict[str, float]:
    pairs = {"original_in_level": measure(original, level), "level_in_original": measure(level, original)}
    return {name: values.double().median().item() for name, values in pairs.items()}


def _own_against_others(scores: Tensor) -> float | None:
    """AUROC of the diagonal against the rest of (n, n); None for a single picture."""
    own = torch.eye(len(scores), dtype=torch.bool)
    return auroc(own.flatten(), scores.double().flatten())


def _failures(original: Gaussian, level: Gaussian, numbers: Tensor) -> list[int]:
    h = public.inclusion(original, level)
    order = h.argsort(stable=True)
    return [int(numbers[row]) for row in order[h[order] <= 0]]


def _histogram(values: Tensor) -> dict[str, list[float] | list[int]]:
    """Counts between even edges from the least to the largest value; 0 is one of the edges."""
    low, high = min(0.0, values.min().item()), max(0.0, values.max().item())
    width = (high - low) / BINS or 1.0
    below, above = math.ceil(-low / width), max(math.ceil(high / width), 1 if low == 0 else 0)
    edges = torch.arange(-below, above + 1, dtype=torch.float64) * width
    edges[0], edges[-1] = min(edges[0].item(), low), max(edges[-1].item(), high)  # whatever was rounded
    return {"edges": edges.tolist(), "counts": [int(count) for count in torch.histogram(values, edges).hist]}


def _encoded(embedder: Embedder, data: HierarImgs) -> tuple[Gaussian, list[Gaussian], Tensor]:
    """The originals and each level, of the pictures that could be read in all of them, and their numbers."""
    encoded = [embedder.embed_images(ImageList(data.path, files)) for files in (data.originals, *data.levels)]
    numbers = encoded[0].indices
    for one in encoded[1:]:
        numbers = numbers[torch.isin(numbers, one.indices)]
    rows = [one.images[torch.isin(one.indices, numbers)] for one in encoded]
    return rows[0], rows[1:], numbers


def _included(original: Gaussian, levels: Sequence[Gaussian]) -> list[float]:
    """The paper's test, level by level: the share of originals that are included."""
    return [float((public.inclusion(original, level) > 0).double().mean()) for level in levels]


def _control(by_seed: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The paper's test of models with fresh weights, turned about: by level, then by seed."""
    columns = [list(column) for column in zip(*by_seed, strict=True)]
    return {
        "seeds": list(range(len(by_seed))),
        "included": [{"by_seed": column, "mean": sum(column) / len(column)} for column in columns],
    }


def _range_of_seeds(control: Mapping[str, Any] | None, level: int) -> str:
    """The least and the largest of the seeds: they may lie far apart, and then a mean would say little."""
    shares = [] if control is None else control["included"][level]["by_seed"]
    return f"{format_percent(min(shares))} – {format_percent(max(shares))}" if shares else MISSING
