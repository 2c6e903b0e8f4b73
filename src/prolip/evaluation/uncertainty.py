"""The uncertainty report: uncertainty of images and captions, and what it correlates with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.data.source import Source
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import regression
from prolip.evaluation.captions import EmbeddedPairs, embed_pairs
from prolip.evaluation.examples import select_examples
from prolip.evaluation.metrics.correlation import spearman
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP

NUM_EXAMPLES = 12
"""Length of each list of examples."""
BINS = 60
"""Bins of the histogram."""
POINTS = 4000
"""Captions that a figure draws as points."""
MIN_BIN_SIZE, MIN_LENGTH_GROUP = 20, 50
"""Fewest captions in a bin of lengths, and of one length for a correlation with ambiguity."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
"""Names of the quantiles in a summary, and their fractions."""


def require_uncertainty(model: ProLIP) -> None:
    """Reject a deterministic model.

    Args:
        model: The model to check.

    Raises:
        ValueError: One of its encoders has no uncertainty.
    """
    if "none" in (model.config.image.uncertainty, model.config.text.uncertainty):
        raise ValueError(
            "this model is deterministic (CLIP, SigLIP): it has no uncertainty to report. Choose a ProLIP model"
        )


def evaluate_uncertainty(
    embedder: Embedder,
    source: Source,
    *,
    limit: int | None = None,
    log_ambiguity: Callable[[str], float] | None = None,
    num_examples: int = NUM_EXAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Make the uncertainty report of a model on images with captions.

    Args:
        embedder: The model, and how to embed with it.
        source, limit, log_ambiguity: See `embed_pairs`.
        num_examples, seed: See `analyze_uncertainty`.

    Returns:
        The dict of `analyze_uncertainty`.

    Raises:
        ValueError: The model is deterministic.
    """
    require_uncertainty(embedder.model)
    pairs = embed_pairs(embedder, source, limit=limit, log_ambiguity=log_ambiguity)
    return analyze_uncertainty(pairs, num_examples=num_examples, seed=seed)


def analyze_uncertainty(
    pairs: EmbeddedPairs, *, num_examples: int = NUM_EXAMPLES, seed: int = 0
) -> dict[str, Any]:
    """Make the uncertainty report of embedded images and captions.

    Args:
        pairs: Images and captions, embedded by `embed_pairs`.
        num_examples: Largest length of each list of examples.
        seed: Seed of random draws.

    Returns:
        A JSON-serializable dict:
        data, images, captions, distinct_captions: name of the source, and counts. bad: samples skipped.
        image, text:          {n, mean, std, min, max, q05, q25, median, q75, q95} of tr(Sigma).
        text_above_own_image: fraction of captions more uncertain than their image.
        histogram:            {edges (of ln tr(Sigma)), image, text}: counts.
        by_length:            {spearman, bins: [{low, high, n, mean, ...}]}, in tokens as the text tower sees them.
        by_level:             None, or {spearman, levels: [{level, n, mean, ...}]}.
        ambiguity:            None, or correlations with the true log-ambiguity, over distinct texts: {n, spearman,
                              within_length: {mean, lengths: [{length, n, spearman}]}, within_level: [...]}.
        regression:           `analyze_regressions`.
        points:               a random subset of captions: {image, text, length, level, log_ambiguity}.
        And the examples of `select_examples`.
    """
    require_positive_int(num_examples, "num_examples", maximum=10_000)
    _require_variance(pairs.images, pairs.texts)
    captions = pairs.captions
    image, text = (z.uncertainty.double() for z in (pairs.images, pairs.texts))
    own_image = image[captions.image_index]  # (T,): the uncertainty of each caption's image
    return {
        "data": pairs.name,
        "images": len(image),
        "bad": pairs.num_bad,
        "captions": len(text),
        "distinct_captions": len(captions.first_occurrences()),
        "image": summarize(image),
        "text": summarize(text),
        "text_above_own_image": float((text > own_image).double().mean()),
        "histogram": _log_histogram(image, text),
        "by_length": _summarize_by_length(captions.lengths, text),
        "by_level": None if captions.levels is None else _summarize_by_level(captions.levels, text),
        "ambiguity": _ambiguity_correlations(pairs, text),
        "regression": regression.analyze_regressions(pairs.images, pairs.texts, captions, seed=seed),
        **select_examples(pairs, num_examples),
        "points": _sample_points(pairs, own_image, text, seed),
    }


def summarize(values: Tensor) -> dict[str, Any]:
    """Summarize a distribution.

    Args:
        values: Values to summarize, (n,), n at least 1.

    Returns:
        n, mean, std, min, max and the `QUANTILES`.
    """
    array = values.double().numpy()
    quantiles = dict(zip(QUANTILES, np.quantile(array, list(QUANTILES.values())).tolist(), strict=True))
    return {
        "n": len(array),
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
        **quantiles,
    }


def _require_variance(*gaussians: Gaussian) -> None:
    """Raise ValueError if any embedding has zero variance, as all embeddings of a deterministic model do."""
    if any(not bool((z.uncertainty > 0).all()) for z in gaussians):
        raise ValueError(
            "some embeddings have zero variance, as those of a deterministic model (CLIP, SigLIP) have. It has no "
            "uncertainty to report. Choose a ProLIP model"
        )


def _log_histogram(image: Tensor, text: Tensor) -> dict[str, Any]:
    """`histogram` of `analyze_uncertainty`: counts over equal steps of ln tr(Sigma).

    Logarithmic, since the uncertainties of images (N,) and captions (T,) may lie decades apart.
    """
    logs = [values.log().numpy() for values in (image, text)]
    edges = np.histogram_bin_edges(np.concatenate(logs), BINS)
    counts = [np.histogram(values, edges)[0].tolist() for values in logs]
    return {"edges": edges.tolist(), "image": counts[0], "text": counts[1]}


def _summarize_by_length(lengths: Tensor, text: Tensor) -> dict[str, Any]:
    """`by_length` of `analyze_uncertainty`. lengths: in tokens, int64 (T,). text: uncertainty of each caption, (T,)."""
    bins = []
    for low, high in _make_length_bins(lengths):
        inside = (lengths >= low) & (lengths <= high)
        bins.append({"low": low, "high": high, **summarize(text[inside])})
    return {"spearman": spearman(lengths, text), "bins": bins}


def _make_length_bins(lengths: Tensor) -> list[tuple[int, int]]:
    """Bins (low, high), both inclusive, that cover all lengths and hold at least MIN_BIN_SIZE captions each.

    Successive lengths are joined until there are enough captions. One bin of fewer if there are fewer captions in all.
    """
    distinct_lengths, counts = (v.tolist() for v in lengths.unique(return_counts=True))
    bins: list[tuple[int, int]] = []
    low, size = None, 0  # lowest length and number of captions of the bin that is being filled
    for length, count in zip(distinct_lengths, counts, strict=True):
        low, size = length if low is None else low, size + count
        if size >= MIN_BIN_SIZE:
            bins.append((low, length))
            low, size = None, 0
    if low is not None:  # the longest captions are too few for a bin: they join the last one
        bins = [*bins[:-1], (bins[-1][0] if bins else low, distinct_lengths[-1])]
    return bins


def _summarize_by_level(levels: Tensor, text: Tensor) -> dict[str, Any]:
    """`by_level` of `analyze_uncertainty`. levels: int64 (T,). text: uncertainty of each caption, (T,)."""
    summaries = [{"level": int(level), **summarize(text[levels == level])} for level in levels.unique()]
    return {"spearman": spearman(levels, text), "levels": summaries}


def _ambiguity_correlations(pairs: EmbeddedPairs, text: Tensor) -> dict[str, Any] | None:
    """`ambiguity` of `analyze_uncertainty`, over distinct texts of known ambiguity; None if no ambiguity is known.

    text: uncertainty of each caption, (T,). Lengths with fewer than MIN_LENGTH_GROUP texts are skipped.
    """
    captions = pairs.captions
    if captions.log_ambiguity is None:
        return None
    rows = captions.first_occurrences()
    rows = rows[captions.log_ambiguity[rows].isfinite()]
    ambiguity, text, lengths = captions.log_ambiguity[rows], text[rows], captions.lengths[rows]
    by_length = [
        {"length": length, "n": int(mask.sum()), "spearman": spearman(ambiguity[mask], text[mask])}
        for length, mask in ((int(value), lengths == value) for value in lengths.unique())
        if int(mask.sum()) >= MIN_LENGTH_GROUP
    ]
    correlations = [entry["spearman"] for entry in by_length if entry["spearman"] is not None]
    levels = None if captions.levels is None else captions.levels[rows]
    by_level = [
        {"level": level, "n": int(mask.sum()), "spearman": spearman(ambiguity[mask], text[mask])}
        for level, mask in (
            (int(value), levels == value) for value in ([] if levels is None else levels.unique())
        )
    ]
    return {
        "n": len(rows),
        "spearman": spearman(ambiguity, text),
        "within_length": {
            "mean": float(np.mean(correlations)) if correlations else None,
            "lengths": by_length,
        },
        "within_level": None if levels is None else by_level,
    }


def _sample_points(pairs: EmbeddedPairs, own_image: Tensor, text: Tensor, seed: int) -> dict[str, Any]:
    """`points` of `analyze_uncertainty`: the values of POINTS random captions, as lists.

    own_image, text: uncertainty of each caption's image and of the caption, (T,) each.
    """
    captions = pairs.captions
    rows = torch.randperm(len(text), generator=torch.Generator().manual_seed(seed))[:POINTS].sort().values
    ambiguity = captions.log_ambiguity
    return {
        "image": own_image[rows].tolist(),
        "text": text[rows].tolist(),
        "length": captions.lengths[rows].tolist(),
        "level": None if captions.levels is None else captions.levels[rows].tolist(),
        "log_ambiguity": None
        if ambiguity is None
        else [None if math.isnan(value) else value for value in ambiguity[rows].tolist()],  # JSON has no NaN
    }


def uncertainty_tables(result: dict[str, Any]) -> list[Table]:
    """Make the tables of an uncertainty analysis: modalities, correlations, regressions.

    Args:
        result: What `analyze_uncertainty` returned.

    Returns:
        Three tables.
    """
    return [_modality_table(result), _correlation_table(result), _regression_table(result["regression"])]


def _modality_table(result: dict[str, Any]) -> Table:
    """Table of uncertainty: a row for images, one for captions, and one for each level of captions."""
    title = f"Uncertainty, {result['images']:,} images and {result['captions']:,} captions"
    keys = ("mean", "q05", "median", "q95")
    above = (
        f"{format_percent(result['text_above_own_image'])} % of captions are more uncertain than their image"
    )
    caption = "; ".join(part for part in (above, describe_bad_samples(result["bad"])) if part)
    table = make_table(title, [""], keys, caption=caption)
    for name in ("image", "text"):
        table.add_row(name, *(format_number(result[name][key]) for key in keys))
    levels = () if result["by_level"] is None else result["by_level"]["levels"]
    for entry in levels:
        table.add_row(f"text, level {entry['level']}", *(format_number(entry[key]) for key in keys))
    return table


def _correlation_table(result: dict[str, Any]) -> Table:
    """Table of the Spearman correlations of caption uncertainty with length, level and true ambiguity."""
    table = make_table(
        None, ["caption uncertainty with"], ["Spearman"], caption=_describe_wrong_order(result)
    )
    table.add_row("its length in tokens", _format_correlation(result["by_length"]["spearman"]))
    if result["by_level"] is not None:
        table.add_row(
            "its level, from general to specific", _format_correlation(result["by_level"]["spearman"])
        )
    if result["ambiguity"] is not None:
        table.add_row("its true log-ambiguity", _format_correlation(result["ambiguity"]["spearman"]))
        table.add_row(
            "  among captions of one length, mean",
            _format_correlation(result["ambiguity"]["within_length"]["mean"]),
        )
        for entry in result["ambiguity"]["within_level"] or ():
            table.add_row(
                f"  among captions of level {entry['level']}", _format_correlation(entry["spearman"])
            )
    return table


def _describe_wrong_order(result: dict[str, Any]) -> str | None:
    """A warning if uncertainty falls with the true ambiguity, or rises with the level; None if it doesn't."""
    # None, also of a correlation that is undefined, counts as 0: no warning
    ambiguity, levels = result["ambiguity"] or {}, result["by_level"] or {}
    if (ambiguity.get("spearman") or 0.0) < 0 or (levels.get("spearman") or 0.0) > 0:
        return "General captions are less uncertain than specific ones here, contrary to what is expected"
    return None


def _regression_table(results: dict[str, Any]) -> Table:
    """Table of `analyze_regressions`: R^2 without and with uncertainty, their difference, its interval, the weight."""
    table = make_table(
        "What uncertainty adds to length and token frequency",
        ["R² on held-out captions"],
        ("without", "with", "gain", "95 %", "weight"),
        caption="weight: of log uncertainty, in standard deviations of the target. Both targets are larger for more "
        "ambiguous captions",
    )
    for name, title in (("own_image", "ln rank of the own image"), ("ambiguity", "true log-ambiguity")):
        if (comparison := results[name]) is not None:
            low, high = comparison["interval"] or (None, None)
            numbers = (
                _format_correlation(comparison[key]) for key in ("r2_without", "r2_with", "difference")
            )
            weight = (comparison["coefficients"] or {}).get(regression.UNCERTAINTY)
            table.add_row(
                title,
                *numbers,
                f"{_format_correlation(low)} to {_format_correlation(high)}",
                _format_correlation(weight),
            )
    return table


def _format_correlation(value: float | None) -> str:
    """Format a correlation or an R^2 with three decimals."""
    return format_number(value, ".3f")
