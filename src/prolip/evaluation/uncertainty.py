"""The uncertainty report: how uncertain images and captions are, which are most, and what it goes together with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.data.source import Source
from prolip.evaluation import regression
from prolip.evaluation.captions import EmbeddedPairs, embed_pairs
from prolip.evaluation.formatting import describe_bad_samples, format_number, format_percent, table
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.samples import Samples
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.scenes import World

SHOWN = 12
BINS = 60
POINTS = 4000
"""Captions that a figure draws as points."""
MIN_BIN_SIZE, MIN_LENGTH_GROUP = 20, 50
"""Captions in a bin of lengths; captions of one length whose correlation with the truth is worth telling."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def require_uncertainty(model: ProLIP) -> None:
    """An error for a model whose Gaussians are points."""
    if "none" in (model.config.image.uncertainty, model.config.text.uncertainty):
        raise ValueError(
            "this model is deterministic (CLIP, SigLIP): it has no uncertainty to report on; choose a ProLIP model"
        )


def evaluate_uncertainty(
    model: ProLIP,
    source: Source,
    *,
    limit: int | None = None,
    world: World | None = None,
    cache: Path | None = None,
    shown: int = SHOWN,
    seed: int = 0,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """`analyse` of any data with captions; limit, world, cache and max_bad_fraction as in `gather`."""
    require_uncertainty(model)
    pairs = embed_pairs(
        model, source, limit=limit, world=world, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction,
        progress=progress,
    )  # fmt: skip
    return analyze_uncertainty(pairs, shown=shown, seed=seed)


def analyze_uncertainty(pairs: EmbeddedPairs, *, shown: int = SHOWN, seed: int = 0) -> dict[str, Any]:
    """All of the report as one JSON-able dict. shown: samples of each list. seed: of what is drawn at random.

    data, images, captions, different_captions: the name of the source, and numbers of each. bad: samples left out.
    image, text:          {n, mean, std, least, largest, q05, q25, median, q75, q95} of tr(Sigma).
    text_above_own_image: share of captions more uncertain than their image.
    histogram:            {edges (of ln tr(Sigma)), image, text}: counts.
    by_length:            {spearman, bins: [{low, high, n, mean, ...}]}; tokens, as the tower sees them.
    by_level:             None, or {spearman, levels: [{level, n, mean, ...}]}.
    truth:                None, or how uncertainty goes with ln of the true probability, over different texts:
                          {n, spearman, within_length: {mean, lengths: [{length, n, spearman}]}, within_level: [...]}.
    regression:           `regression.analyse`.
    certain_images, uncertain_images, certain_captions, uncertain_captions, long_uncertain_captions: samples.
    corners:              "certain image, uncertain text" and so on: samples, by the sum of both ranks.
    points:               a random few thousand captions: {image, text, length, level, log_ambiguity}.

    A sample is {image (row), number (in the source), key, caption, length, image_uncertainty, text_uncertainty,
    text_rank (share of captions that are less uncertain), csd}. Lists hold no image and no text twice; an image stands
    there with its first caption.
    """
    require_positive_int(shown, "shown", maximum=10_000)
    _require_spread(pairs.images, pairs.texts)
    captions = pairs.captions
    image, text = (z.uncertainty.double() for z in (pairs.images, pairs.texts))
    own = image[captions.image_index]
    return {
        "data": pairs.name,
        "images": len(image),
        "bad": pairs.bad,
        "captions": len(text),
        "different_captions": len(captions.first_occurrences()),
        "image": summarize(image),
        "text": summarize(text),
        "text_above_own_image": float((text > own).double().mean()),
        "histogram": _histogram(image, text),
        "by_length": _by_length(captions.lengths, text),
        "by_level": None if captions.levels is None else _by_level(captions.levels, text),
        "truth": _truth(pairs, text),
        "regression": regression.analyze_regressions(pairs.images, pairs.texts, captions, seed=seed),
        **Samples(pairs, shown).lists(),
        "points": _points(pairs, own, text, seed),
    }


def summarize(values: Tensor) -> dict[str, Any]:
    """What is told of some numbers: n, mean, standard deviation, range and quantiles. values: (n,), n at least 1."""
    array = values.double().numpy()
    found = dict(zip(QUANTILES, np.quantile(array, list(QUANTILES.values())).tolist(), strict=True))
    return {
        "n": len(array),
        "mean": float(array.mean()),
        "std": float(array.std()),
        "least": float(array.min()),
        "largest": float(array.max()),
        **found,
    }


def _require_spread(*gaussians: Gaussian) -> None:
    if any(not bool((z.uncertainty > 0).all()) for z in gaussians):
        raise ValueError(
            "these Gaussians have zero variance: a deterministic model has no uncertainty to report on"
        )


def _histogram(image: Tensor, text: Tensor) -> dict[str, Any]:
    """Counts over equal steps of ln tr(Sigma): the two modalities may lie decades apart."""
    logs = [values.log().numpy() for values in (image, text)]
    edges = np.histogram_bin_edges(np.concatenate(logs), BINS)
    counts = [np.histogram(values, edges)[0].tolist() for values in logs]
    return {"edges": edges.tolist(), "image": counts[0], "text": counts[1]}


def _by_length(lengths: Tensor, text: Tensor) -> dict[str, Any]:
    bins = []
    for low, high in _length_bins(lengths):
        inside = (lengths >= low) & (lengths <= high)
        bins.append({"low": low, "high": high, **summarize(text[inside])})
    return {"spearman": spearman(lengths, text), "bins": bins}


def _length_bins(lengths: Tensor) -> list[tuple[int, int]]:
    """Bins (low, high) of lengths, both inside: one a length, neighbours joined until each has MIN_BIN_SIZE."""
    found, counts = (v.tolist() for v in lengths.unique(return_counts=True))
    bins: list[tuple[int, int]] = []
    low, held = None, 0
    for length, count in zip(found, counts, strict=True):
        low, held = length if low is None else low, held + count
        if held >= MIN_BIN_SIZE:
            bins.append((low, length))
            low, held = None, 0
    if low is not None:  # what is left at the end is too few: it joins the last bin
        bins = [*bins[:-1], (bins[-1][0] if bins else low, found[-1])]
    return bins


def _by_level(levels: Tensor, text: Tensor) -> dict[str, Any]:
    found = [{"level": int(level), **summarize(text[levels == level])} for level in levels.unique()]
    return {"spearman": spearman(levels, text), "levels": found}


def _truth(pairs: EmbeddedPairs, text: Tensor) -> dict[str, Any] | None:
    captions = pairs.captions
    if captions.log_ambiguity is None:
        return None
    rows = captions.first_occurrences()
    rows = rows[captions.log_ambiguity[rows].isfinite()]
    truth, text, lengths = captions.log_ambiguity[rows], text[rows], captions.lengths[rows]
    by_length = [
        {"length": value, "n": int(same.sum()), "spearman": spearman(truth[same], text[same])}
        for value, same in ((int(v), lengths == v) for v in lengths.unique())
        if int(same.sum()) >= MIN_LENGTH_GROUP
    ]
    told = [entry["spearman"] for entry in by_length if entry["spearman"] is not None]
    levels = None if captions.levels is None else captions.levels[rows]
    by_level = [
        {"level": value, "n": int(same.sum()), "spearman": spearman(truth[same], text[same])}
        for value, same in ((int(v), levels == v) for v in ([] if levels is None else levels.unique()))
    ]
    return {
        "n": len(rows),
        "spearman": spearman(truth, text),
        "within_length": {"mean": float(np.mean(told)) if told else None, "lengths": by_length},
        "within_level": None if levels is None else by_level,
    }


def _points(pairs: EmbeddedPairs, own: Tensor, text: Tensor, seed: int) -> dict[str, Any]:
    captions = pairs.captions
    chosen = torch.randperm(len(text), generator=torch.Generator().manual_seed(seed))[:POINTS].sort().values
    truth = captions.log_ambiguity
    return {
        "image": own[chosen].tolist(),
        "text": text[chosen].tolist(),
        "length": captions.lengths[chosen].tolist(),
        "level": None if captions.levels is None else captions.levels[chosen].tolist(),
        "log_ambiguity": None if truth is None else [v if v == v else None for v in truth[chosen].tolist()],
    }


def uncertainty_tables(result: dict[str, Any]) -> list[Table]:
    """What people read: the modalities; what caption uncertainty goes with; what it adds to length and frequency."""
    return [_modalities(result), _correlations(result), _regressions(result["regression"])]


def _modalities(result: dict[str, Any]) -> Table:
    title = f"Uncertainty, {result['images']:,} images and {result['captions']:,} captions"
    shown = ("mean", "q05", "median", "q95")
    above = f"{format_percent(result['text_above_own_image'])} % of captions are more uncertain than their image"
    caption = "; ".join(part for part in (above, describe_bad_samples(result["bad"])) if part)
    drawn = table(title, [""], shown, caption=caption)
    for name in ("image", "text"):
        drawn.add_row(name, *(format_number(result[name][key]) for key in shown))
    for entry in (result["by_level"] or {"levels": ()})["levels"]:
        drawn.add_row(f"text, level {entry['level']}", *(format_number(entry[key]) for key in shown))
    return drawn


def _correlations(result: dict[str, Any]) -> Table:
    drawn = table(None, ["caption uncertainty and"], ["Spearman"], caption=_verdict(result))
    drawn.add_row("its length in tokens", _correlation(result["by_length"]["spearman"]))
    if result["by_level"] is not None:
        drawn.add_row("its level, from general to specific", _correlation(result["by_level"]["spearman"]))
    if result["truth"] is not None:
        drawn.add_row("its true log-ambiguity", _correlation(result["truth"]["spearman"]))
        drawn.add_row(
            "  among captions of one length, mean", _correlation(result["truth"]["within_length"]["mean"])
        )
        for entry in result["truth"]["within_level"] or ():
            drawn.add_row(f"  among captions of level {entry['level']}", _correlation(entry["spearman"]))
    return drawn


def _verdict(result: dict[str, Any]) -> str | None:
    """Said where levels or the truth are known, and uncertainty is against them."""
    truth, levels = result["truth"] or {}, result["by_level"] or {}
    if (truth.get("spearman") or 0.0) < 0 or (levels.get("spearman") or 0.0) > 0:
        return "The general captions are the narrower ones here: uncertainty points the wrong way"
    return None


def _regressions(results: dict[str, Any]) -> Table:
    drawn = table(
        "What uncertainty adds to length and token frequency",
        ["R² on captions left out"],
        ("without", "with", "gain", "95 %", "weight"),
        caption="weight: of log uncertainty, in standard deviations of the target; both targets are larger for more "
        "ambiguous captions",
    )
    for name, title in (("own_image", "ln rank of the own image"), ("truth", "true log-ambiguity")):
        if (found := results[name]) is not None:
            low, high = found["interval"] or (None, None)
            numbers = (_correlation(found[key]) for key in ("r2_without", "r2_with", "difference"))
            weight = (found["coefficients"] or {}).get(regression.UNCERTAINTY)
            drawn.add_row(
                title, *numbers, f"{_correlation(low)} to {_correlation(high)}", _correlation(weight)
            )
    return drawn


def _correlation(value: float | None) -> str:
    return format_number(value, ".3f")
