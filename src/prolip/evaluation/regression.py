"""Regressions on caption length and token frequency, with and without uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation.captions import TokenizedCaptions
from prolip.gaussian import Gaussian, check_gaussian, compute_dtype

FOLDS = 5
"""Folds of the cross-validation."""
RESAMPLES = 1000
"""Draws of the bootstrap."""
BLOCK = 2**22
"""Distances, and draws of the bootstrap, that are in memory at one time."""
ROUNDING = 16
"""Machine epsilons by which two computations of one score may differ."""
UNCERTAINTY = "log uncertainty"
"""Name of the column that a regression has with uncertainty only."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RegressionFeatures:
    """Features of a regression: values float64 (R, C), and the names of the C columns."""

    names: tuple[str, ...]
    values: Tensor

    def with_column(self, name: str, values: Tensor) -> RegressionFeatures:
        """Append a column.

        Args:
            name: Name of the column.
            values: Value of each row, (R,).

        Returns:
            New features with one more column.
        """
        return RegressionFeatures(
            names=(*self.names, name), values=torch.cat([self.values, values.double()[:, None]], dim=1)
        )

    def select(self, rows: Tensor) -> RegressionFeatures:
        """The features of some rows: indices or a bool mask."""
        return RegressionFeatures(names=self.names, values=self.values[rows])


def compute_caption_features(captions: TokenizedCaptions) -> RegressionFeatures:
    """Features of captions that need no model: length and token frequency.

    Args:
        captions: T captions.

    Returns:
        T rows: length and log length in tokens (both, so that a nonlinear effect of length isn't credited to
        uncertainty); mean and smallest ln frequency of the tokens, as fractions of all tokens of these captions. NaN
        for a caption without tokens.
    """
    counts = torch.bincount(captions.tokens).double()
    log_frequency = (counts / len(captions.tokens)).log()[captions.tokens]  # of each token
    caption_of_token = torch.repeat_interleave(torch.arange(len(captions)), captions.lengths)
    lengths = captions.lengths.double()
    rarest = torch.full_like(lengths, math.nan).scatter_reduce(
        0, caption_of_token, log_frequency, "amin", include_self=False
    )
    mean = torch.zeros_like(lengths).index_add(0, caption_of_token, log_frequency) / lengths
    values = torch.stack([lengths, lengths.log(), mean, rarest], dim=1)
    return RegressionFeatures(
        names=("length", "log length", "mean log token frequency", "smallest log token frequency"),
        values=values,
    )


def rank_paired_images(images: Gaussian, texts: Gaussian, image_of: Tensor) -> Tensor:
    """The rank of a caption's own image among all images by CSD.

    One more than the number of images that are nearer to the caption than its own: how ambiguous the caption is among
    these images. It needs no labels, and doesn't depend on the caption's uncertainty, whose trace adds the same to the
    distance from every image. (A caption that the model misunderstands also ranks its image low.)

    Args:
        images: All images, (N, D).
        texts: The captions, (T, D).
        image_of: Row of each caption's own image, int64 (T,).

    Returns:
        Ranks, float64 (T,), 1 if the own image is the nearest; ties get the mean of their ranks.
    """
    # -CSD / 2 is mu_c . mu_i - (|mu_i|^2 + tr_i) / 2 plus a term of the caption alone, so each block of captions and
    # images is one matrix product. Scores that differ by rounding only count as ties: the same image may occur in two
    # blocks.
    text_means = check_gaussian(texts, "texts").mean
    image_means = check_gaussian(images, "images").mean
    dtype = compute_dtype(text_means, image_means)
    text_means, image_means = text_means.to(dtype), image_means.to(dtype)
    offset = -0.5 * (image_means.square().sum(-1) + images.uncertainty.to(dtype))  # (N,)
    own_score = (text_means * image_means[image_of]).sum(-1) + offset[image_of]  # (T,)
    largest_score = text_means.norm(dim=-1) * image_means.norm(dim=-1).max() + offset.abs().max()
    slack = ROUNDING * torch.finfo(dtype).eps * largest_score
    ranks = torch.ones(len(text_means), dtype=torch.float64, device=text_means.device)
    side = math.isqrt(BLOCK)
    for first_text in range(0, len(text_means), side):
        rows = slice(first_text, first_text + side)
        low, high = (own_score - slack)[rows, None], (own_score + slack)[rows, None]
        for first_image in range(0, len(image_means), side):
            columns = slice(first_image, first_image + side)
            scores = torch.addmm(offset[columns], text_means[rows], image_means[columns].mT)
            _exclude_own(scores, image_of[rows] - first_image)
            # a nearer image counts in both sums and adds 1 to the rank; a tie only in the second, and adds 1/2
            nearer, at_least_as_near = (
                mask.sum(1, dtype=torch.int32) for mask in (scores > high, scores >= low)
            )
            ranks[rows] += 0.5 * (nearer + at_least_as_near)
    return ranks


def _exclude_own(scores: Tensor, columns: Tensor) -> None:
    """Set the score of each row's own image to -inf, in place.

    columns: column of each row's own image; one outside of scores (rows, images) is in another block.
    """
    inside = ((columns >= 0) & (columns < scores.shape[1])).nonzero()[:, 0]
    scores[inside, columns[inside]] = -math.inf


def analyze_regressions(
    images: Gaussian,
    texts: Gaussian,
    captions: TokenizedCaptions,
    *,
    max_captions: int = 20_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Regress each known target on caption features, with and without log uncertainty.

    Args:
        images: The images, (N, D).
        texts: The captions, (T, D).
        captions: Tokens, images and, if known, ambiguities of the T captions.
        max_captions: Size of the random subset of captions that own_image uses.
        seed: Seed of the subset, the folds and the bootstrap.

    Returns:
        own_image: `compare_regressions` with the target ln `rank_paired_images`.
        ambiguity: `compare_regressions` with the true log-ambiguity as target and one row per distinct text; None if it
            is unknown.
    """
    require_positive_int(max_captions, "max_captions", maximum=2**31)
    columns, log_uncertainty = compute_caption_features(captions), _log_uncertainty(texts)
    usable = captions.lengths > 0
    rows = _sample_rows(usable.nonzero()[:, 0], max_captions, seed)
    owner = captions.image_index[rows]
    ranks = rank_paired_images(images, texts[rows], owner)
    result: dict[str, Any] = {
        "own_image": compare_regressions(
            columns.select(rows), log_uncertainty[rows], ranks.log(), owner, seed=seed
        ),
        "ambiguity": None,
    }
    if captions.log_ambiguity is not None:
        distinct = captions.first_occurrences()
        known = distinct[(usable & captions.log_ambiguity.isfinite())[distinct]]
        target = captions.log_ambiguity[known]
        result["ambiguity"] = compare_regressions(
            columns.select(known), log_uncertainty[known], target, known, seed=seed
        )
    return result


def compare_regressions(
    columns: RegressionFeatures, log_uncertainty: Tensor, target: Tensor, groups: Tensor, *, seed: int = 0
) -> dict[str, Any]:
    """Least squares of a target with and without log uncertainty, cross-validated.

    Args:
        columns: Features of R rows, without uncertainty.
        log_uncertainty: Log uncertainty of each row, (R,).
        target: Value of each row to predict, (R,).
        groups: int64 (R,): rows of one group (captions of one image) are fitted, held out and resampled together.
        seed: Seed of the five folds of groups and of the bootstrap.

    Returns:
        n, groups: numbers of rows and of groups.
        columns, constant_columns: names of the columns that vary, and of those that don't and are not used.
        r2_without, r2_with: R^2 over all rows, each predicted by the fit that held it out (so it may be negative).
        difference: r2_with - r2_without; interval: its 95 % bootstrap interval over groups, [low, high].
        coefficients: name -> coefficient of the fit with uncertainty to all rows, in standard deviations of the target
            per standard deviation of the column.
        From r2_without on, all are None if the target or the uncertainty is constant, or with fewer than ten groups.
    """
    everything = columns.with_column(UNCERTAINTY, log_uncertainty)
    _check(everything, target, groups)
    _, groups = groups.unique(return_inverse=True)
    count = int(groups.max()) + 1 if len(groups) else 0
    varies = [_varies(column) for column in everything.values.T]
    names = tuple(name for name, is_used in zip(everything.names, varies, strict=True) if is_used)
    result: dict[str, Any] = {
        "n": len(target),
        "groups": count,
        "columns": list(names),
        "constant_columns": [name for name in everything.names if name not in names],
        **dict.fromkeys(("r2_without", "r2_with", "difference", "interval", "coefficients")),
    }
    if count < 2 * FOLDS or not varies[-1] or not _varies(target):
        return result
    values, target = everything.values[:, torch.tensor(varies)], target.double()
    fold = _folds(count, seed)[groups]
    # the last column is the uncertainty
    errors = torch.stack([_errors(part, target, fold) for part in (values[:, :-1], values)], dim=1)
    r2_without, r2_with = (_r2(errors[:, k].sum(), target) for k in range(2))
    return result | {
        "r2_without": r2_without,
        "r2_with": r2_with,
        "difference": r2_with - r2_without,
        "interval": _interval(errors, target, groups, seed),
        "coefficients": _coefficients(values, target, names),
    }


def _check(columns: RegressionFeatures, target: Tensor, groups: Tensor) -> None:
    """Raise ValueError unless there are as many targets and groups as rows of features, and all values are finite."""
    rows = len(columns.values)
    if target.shape != (rows,) or groups.shape != (rows,):
        raise ValueError(
            f"{rows} rows need as many targets and groups, but there are {len(target)} and {len(groups)}"
        )
    if not bool(columns.values.isfinite().all()) or not bool(target.isfinite().all()):
        raise ValueError(
            "the features and the target of a regression must be finite; remove rows with unknown values"
        )


def _varies(values: Tensor) -> bool:
    """Whether values differ by more than rounding."""
    low, high = values.double().aminmax() if len(values) else (torch.zeros(()), torch.zeros(()))
    return float(high - low) > 1e-9 * max(1e-300, float(high.abs()), float(low.abs()))


def _folds(groups: int, seed: int) -> Tensor:
    """The fold of each group, int64 (groups,); folds differ by at most one group."""
    order = torch.randperm(groups, generator=torch.Generator().manual_seed(seed))
    fold = torch.empty(groups, dtype=torch.int64)
    fold[order] = torch.arange(groups) * FOLDS // groups
    return fold


def _errors(values: Tensor, target: Tensor, fold: Tensor) -> Tensor:
    """The squared error of each row (R,), predicted by the fit to the other folds."""
    errors = torch.empty_like(target)
    for index in range(FOLDS):
        held_out = fold == index
        predicted = _predict(values[~held_out], target[~held_out], values[held_out])
        errors[held_out] = (predicted - target[held_out]).square()
    return errors


def _predict(values: Tensor, target: Tensor, new: Tensor) -> Tensor:
    """Predictions (K,) for the rows `new` (K, C) by least squares of target (R,) on standardized values (R, C)."""
    center, scale = _scales(values)
    weights = _fit((values - center) / scale, target - target.mean())
    return (new - center) / scale @ weights + target.mean()


def _scales(values: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the columns of (R, C), (C,) each; a column that is constant gets the scale 1."""
    scale = values.std(0, correction=0)
    return values.mean(0), torch.where(scale > 0, scale, torch.ones_like(scale))


def _fit(values: Tensor, target: Tensor) -> Tensor:
    """Weights (C,) of least squares without intercept; those of minimum norm if columns are linearly dependent."""
    if not values.shape[1]:
        return values.new_zeros(0)
    solution: Tensor = torch.linalg.lstsq(values, target[:, None], driver="gelsd").solution
    return solution[:, 0]


def _coefficients(values: Tensor, target: Tensor, names: tuple[str, ...]) -> dict[str, float]:
    """Coefficient of each column, in standard deviations of the target per standard deviation of the column."""
    center, scale = _scales(values)
    weights = _fit((values - center) / scale, (target - target.mean()) / target.std(correction=0))
    return dict(zip(names, weights.tolist(), strict=True))


def _r2(squares: Tensor, target: Tensor) -> float:
    """R^2 = 1 - (sum of squared errors) / (sum of squared deviations of the target from its mean)."""
    return float(1 - squares / (target - target.mean()).square().sum())


def _interval(errors: Tensor, target: Tensor, groups: Tensor, seed: int) -> list[float]:
    """Bootstrap interval: the middle 95 % of the difference of R^2 when groups are drawn with replacement.

    errors: (R, 2), squared errors without and with uncertainty. groups: int64 (R,), from 0 without gaps.
    """
    count = int(groups.max()) + 1
    # Both R^2 of a draw have the same denominator, so their difference is
    # sum(error without - error with) / (sum(t^2) - sum(t)^2 / n), t = target. Each sum is one over groups first.
    centered = target - target.mean()
    terms = torch.stack(
        [errors[:, 0] - errors[:, 1], centered.square(), centered, torch.ones_like(centered)], dim=1
    )
    sums = torch.zeros(count, 4, dtype=torch.float64).index_add(0, groups, terms)
    generator = torch.Generator().manual_seed(seed + 1)
    differences: list[Tensor] = []
    draws_per_block = max(1, BLOCK // count)
    for first in range(0, RESAMPLES, draws_per_block):
        drawn = torch.randint(count, (min(draws_per_block, RESAMPLES - first), count), generator=generator)
        # how often each draw holds each group, (draws, groups)
        times = torch.zeros(drawn.shape, dtype=torch.float64).scatter_add_(
            1, drawn, torch.ones(drawn.shape).double()
        )
        gain, squares, total, number = (times @ sums).T
        differences.append(gain / (squares - total.square() / number))
    difference = torch.cat(differences)
    difference = difference[difference.isfinite()]  # all targets of a draw may be equal
    return [float(v) for v in difference.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))]


def _log_uncertainty(texts: Gaussian) -> Tensor:
    """ln tr(Sigma) of each text, float64 (T,); finite also for a variance of 0."""
    return texts.uncertainty.double().clamp_min(torch.finfo(torch.float64).tiny).log()


def _sample_rows(rows: Tensor, max_rows: int, seed: int) -> Tensor:
    """A random subset of at most max_rows rows, in order."""
    if len(rows) <= max_rows:
        return rows
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:max_rows]
    return rows[chosen.sort().values]
