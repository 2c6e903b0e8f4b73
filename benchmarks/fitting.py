"""Counts of fitting images on scenes, against the number of images that a caption is true of; and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from prolip.console import format_number, make_table, print_tables
from prolip.embeddings.embed import embed
from prolip.embeddings.schema import read_gaussians
from prolip.evaluation.image_ambiguity import compute_slope
from prolip.evaluation.metrics.correlation import spearman
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.perplexity import compute_logits, log_perplexity
from prolip.retrieval.confidence import COMPARED, compute_confidence
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.database import Database
from prolip.retrieval.perplexity import NEAREST, SAMPLED, PerplexityEstimate, estimate_perplexity
from prolip.retrieval.query import search_gaussians
from prolip.scenes.captions import NUM_LEVELS, make_caption_chain
from prolip.scenes.meaning import CaptionMeaning, is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import get_world
from prolip.weights.load import load

FACTORS = (0.5, 1.0, 1.25, 1.5, 2.0, 3.0)
"""k, the factor of the logits."""
SEED, CAPTION_SEED = 81_001, 81_002
"""Of the scenes of the database, and of the scenes that captions are drawn for."""
TOPS = (200, 1000, 4000)
"""Nearest items of the rigorous bounds."""
ROUNDING = 1e-9
"""Tolerance of a comparison of entropies."""


@dataclass(frozen=True, kw_only=True)
class CountMetrics:
    """How a count of fitting images compares with the number of images that a caption is true of.

    All but the last are over captions that are true of some images, but not of all.
    """

    name: str
    spearman: float | None
    """Correlation of both."""
    median_ratio: float
    """Median of count / true number."""
    within_two: float
    """Fraction of captions whose count is between half and twice the true number."""
    when_none: float | None
    """Median count for captions that are true of no image; None: there are none."""


@dataclass(frozen=True, kw_only=True)
class BoundMetrics:
    """How far apart the ends of an interval are, as ratios."""

    name: str
    median_ratio: float
    """Median of upper / lower end."""
    high_ratio: float
    """95 % quantile of it."""
    enclosed: float
    """Fraction of captions whose exact value is in the interval."""


@dataclass(frozen=True, kw_only=True)
class FittingResult:
    """What `run` measured."""

    num_images: int
    num_captions: int
    counts: tuple[CountMetrics, ...]
    bounds: tuple[BoundMetrics, ...]


def run(*, model: str = "scenes-tiny", images: int = 3000, captions: int = 400) -> FittingResult:
    """Count the fitting images of a database of scenes for captions of other scenes, in several ways.

    Args:
        model: What `prolip.load` takes.
        images: Scenes in the database.
        captions: Distinct captions, the same number of each level as far as there are as many.

    Returns:
        The metrics of each count and of each interval.
    """
    loaded = load(model).eval()
    texts, true = draw_captions(images, captions)
    queries, parameters = loaded.embed_texts(texts), loaded.logit_parameters
    with TemporaryDirectory() as folder:
        data = f"scenes:simple,size=48,length={images},seed={SEED}"
        dataset = embed(model, data, Path(folder) / "e", modality="image", progress=False)
        pool = Gaussian.cat([read_gaussians(rows) for _, rows in dataset.iter_parts("image")])
        database = index_embeddings(Path(folder) / "db", [dataset], progress=False)
        counts = _count_fitting(parameters, queries, pool)
        counts[f"equally good, of {COMPARED}"] = _count_equally_good(database, queries)
        build_index(database, kind="ivf-rq", progress=False)
        estimates = estimate_perplexity(database, queries, SearchConfig(modality="image"))
    return FittingResult(
        num_images=images,
        num_captions=len(texts),
        counts=tuple(_compare_counts(name, values, true, images) for name, values in counts.items()),
        bounds=tuple(_measure_bounds(parameters, queries, pool, estimates)),
    )


def print_result(result: FittingResult) -> None:
    """Print the result of `run` as two tables."""
    counts = make_table(
        f"{result.num_images:,} images, {result.num_captions:,} captions: counts of fitting images against the true "
        "number",
        ("count",),
        ("Spearman", "median ratio", "within a factor of 2", "true of none: median"),
    )
    for one in result.counts:
        counts.add_row(
            one.name,
            format_number(one.spearman, ".3f"),
            f"{one.median_ratio:.2f}",
            f"{one.within_two:.1%}",
            format_number(one.when_none, ".1f"),
        )
    bounds = make_table(
        "intervals of the perplexity",
        ("interval",),
        ("upper / lower: median", "95 %", "holds the exact value"),
    )
    for interval in result.bounds:
        bounds.add_row(
            interval.name,
            f"{interval.median_ratio:.3g}",
            f"{interval.high_ratio:.3g}",
            f"{interval.enclosed:.1%}",
        )
    print_tables([counts, bounds])


def draw_captions(num_images: int, num_captions: int) -> tuple[list[str], Tensor]:
    """Draw distinct captions, and count the scenes of the database that each is true of.

    Args:
        num_images: Scenes in the database.
        num_captions: Captions, the same number of each level as far as there are as many.

    Returns:
        The texts, and int64 (T,).
    """
    world = get_world("simple")
    chains = (
        make_caption_chain(world.draw_scene(CAPTION_SEED, index), RandomDraws(CAPTION_SEED, index, 0), world)
        for index in range(2 * num_captions)
    )
    meanings: dict[str, CaptionMeaning] = {}
    for captions in zip(*chains, strict=True):  # all of one level
        by_text = {caption.text: caption.meaning for caption in captions}
        meanings |= dict(list(by_text.items())[: -(-num_captions // NUM_LEVELS)])
    scenes = [world.draw_scene(SEED, index) for index in range(num_images)]
    counts = [sum(is_true(meaning, scene) for scene in scenes) for meaning in meanings.values()]
    return list(meanings), torch.tensor(counts)


def bound_entropy(logits: Tensor, top: int, *, by_moments: bool) -> tuple[Tensor, Tensor]:
    """Bound the entropy of softmaxes by their largest logits and little knowledge of the others; never wrong.

    Let the n others have the sum Z' of exponentials. As none of them exceeds the last of the largest, l, the entropy is
    at least that with Z' exp(-l) logits of l, and at most that with n equal ones, ln(Z' / n): it rises with every logit
    that is below the mean logit. Both rise with Z', which lies between n exp(least) and n exp(l); or, by moments,
    between the sums for those distributions on two points that have the mean and the variance of the others and
    the least logit, or l, as one of the points.

    Args:
        logits: float64 (N, M).
        top: Number of largest logits that are known, less than M.
        by_moments: Whether mean and variance of the others are known too, beside the least logit.

    Returns:
        Lower and upper bounds, (N,).
    """
    ordered = logits.sort(dim=1, descending=True).values
    known, others = ordered[:, :top], ordered[:, top:]
    num_others, last, least = others.shape[1], known[:, -1], others[:, -1]
    low, high = least, last  # ln of the mean exponential of the others
    if by_moments:
        mean, variance = others.mean(1), others.var(1, correction=0)
        low, high = (_log_mean_of_two_points(mean, variance, end) for end in (least, last))
    shift = math.log(num_others)
    return _entropy_with_others(known, low + shift, last), _entropy_with_others(known, high + shift, high)


def _log_mean_of_two_points(mean: Tensor, variance: Tensor, end: Tensor) -> Tensor:
    """ln E[exp l] of the distribution on `end` and another point with this mean and variance, (N,) each."""
    distance = end - mean
    share = variance / (variance + distance.square())
    value = torch.logaddexp(share.log() + end, (-share).log1p() + mean - variance / distance)
    return torch.where((variance > 0) & (distance != 0), value, mean)  # else all others are equal


def _entropy_with_others(known: Tensor, log_others: Tensor, value: Tensor) -> Tensor:
    """Entropy of the known logits (N, K) and exp(log_others - value) others that are equal to `value`, (N,) each."""
    log_z = torch.logaddexp(known.logsumexp(1), log_others)
    mean = ((known - log_z[:, None]).exp() * known).sum(1) + (log_others - log_z).exp() * value
    return log_z - mean


def _count_fitting(parameters: LogitParameters, queries: Gaussian, pool: Gaussian) -> dict[str, Tensor]:
    """Counts by perplexity for each k, and the sum of match probabilities, (Q,) each."""
    slope = compute_slope(parameters, queries, pool)
    counts = {
        f"perplexity by {name}, k {k}": log_perplexity(queries, pool, logits, k=k).exp()
        for name, logits in (("match", parameters), ("means", slope))
        for k in FACTORS
    }
    if parameters.bias is not None:
        counts["sum of match probabilities"] = (
            parameters.logits_matrix(queries, pool).double().sigmoid().sum(1)
        )
    return counts


def _count_equally_good(database: Database, queries: Gaussian) -> Tensor:
    """How many of the nearest images are as good as the first, (Q,)."""
    found = search_gaussians(database, queries, SearchConfig(k=COMPARED, modality="image"))
    return torch.tensor(
        [
            compute_confidence(database, query, hits, "text").equally_good
            for query, hits in zip(queries, found, strict=True)
        ],
        dtype=torch.float64,
    )


def _compare_counts(name: str, counts: Tensor, true: Tensor, num_images: int) -> CountMetrics:
    """Metrics of counts (Q,) among num_images against true numbers (Q,)."""
    partial = (true > 0) & (true < num_images)
    ratio = (counts / true)[partial]
    return CountMetrics(
        name=name,
        spearman=spearman(true[partial], counts[partial]),
        median_ratio=float(ratio.median()),
        within_two=float(((ratio >= 0.5) & (ratio <= 2)).double().mean()),
        when_none=float(counts[true == 0].median()) if bool((true == 0).any()) else None,
    )


def _measure_bounds(
    parameters: LogitParameters, queries: Gaussian, pool: Gaussian, estimates: Sequence[PerplexityEstimate]
) -> Iterator[BoundMetrics]:
    """Metrics of the intervals of estimates, and of rigorous bounds."""
    exact = log_perplexity(queries, pool, parameters)
    if estimates and not estimates[0].is_exact:
        low, high = (
            torch.tensor([getattr(one, end) for one in estimates], dtype=torch.float64).log()
            for end in ("low", "high")
        )
        yield _compare_bounds(f"estimate: {NEAREST} nearest, {SAMPLED} drawn", low, high, exact)
    logits = compute_logits(queries.mean_trace(), pool.mean_trace(), parameters)
    for top in (count for count in TOPS if count < len(pool)):
        for by_moments in (False, True):
            name = f"bound: {top} nearest, {'mean, variance and ' if by_moments else ''}least logit"
            yield _compare_bounds(name, *bound_entropy(logits, top, by_moments=by_moments), exact)


def _compare_bounds(name: str, low: Tensor, high: Tensor, exact: Tensor) -> BoundMetrics:
    """Metrics of intervals of the entropy (Q,) against exact values (Q,)."""
    ratios = (high - low).exp()
    inside = (low <= exact + ROUNDING) & (exact <= high + ROUNDING)
    return BoundMetrics(
        name=name,
        median_ratio=float(ratios.median()),
        high_ratio=float(ratios.quantile(0.95)),
        enclosed=float(inside.double().mean()),
    )
