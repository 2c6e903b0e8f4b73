"""Regressions on caption length and token frequency, with and without uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation.captions import TokenizedCaptions
from prolip.evaluation.metrics.bootstrap import iter_draw_counts, percentile_interval
from prolip.evaluation.result import Interval
from prolip.gaussian import Gaussian, check_gaussian, compute_dtype

FOLDS = 5
"""Folds of the cross-validation."""
RESAMPLES = 1000
"""Draws of the bootstrap."""
BLOCK = 2**22
"""Number of scores of caption-image pairs, or of groups drawn by the bootstrap, that are in memory at one time."""
ROUNDING = 16
"""How far two computations of one score may differ, in machine epsilons of the largest score."""
UNCERTAINTY = "log uncertainty"
"""Name of the column that a regression has with uncertainty only."""


@dataclass(frozen=True, kw_only=True)
class RegressionFit:
    """Least squares of a target, cross-validated, without and with log uncertainty."""

    r2_without: float
    """R^2 over all rows, each predicted by the fit that held it out, so it may be negative; without uncertainty."""
    r2_with: float
    """The same with uncertainty."""
    difference: float
    """r2_with - r2_without."""
    interval: Interval
    """Bootstrap interval of the difference, over groups."""
    coefficients: dict[str, float]
    """Name of each column -> its coefficient in the fit with uncertainty to all rows, in standard deviations of the
    target per standard deviation of the column."""

    @property
    def uncertainty_coefficient(self) -> float:
        """The coefficient of log uncertainty."""
        return self.coefficients[UNCERTAINTY]


@dataclass(frozen=True, kw_only=True)
class RegressionComparison:
    """What log uncertainty adds to other features of captions in the prediction of a target."""

    n: int
    """Number of rows."""
    num_groups: int
    """Number of groups: rows of one group are fitted, held out and resampled together."""
    columns: tuple[str, ...]
    """Names of the columns that vary."""
    constant_columns: tuple[str, ...]
    """Names of the columns that don't, and are not used."""
    fit: RegressionFit | None
    """None if the target or the uncertainty is constant, or with fewer than ten groups."""


@dataclass(frozen=True, kw_only=True)
class Regressions:
    """Regressions of two measures of a caption's ambiguity."""

    own_image: RegressionComparison
    """Target: the logarithm of `rank_paired_images`. Groups: captions of one image."""
    ambiguity: RegressionComparison | None
    """Target: the true log-ambiguity, one row per distinct text; None if it is unknown."""


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


def rank_paired_images(images: Gaussian, texts: Gaussian, image_of_text: Tensor) -> Tensor:
    """The rank of a caption's own image among all images by CSD.

    One more than the number of images that are nearer to the caption than its own: how ambiguous the caption is among
    these images. It needs no labels, and doesn't depend on the caption's uncertainty, whose trace adds the same to the
    distance from every image. (A caption that the model misunderstands also ranks its image low.)

    Args:
        images: All images, (N, D).
        texts: The captions, (T, D).
        image_of_text: Row of each caption's own image, int64 (T,).

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
    own_score = (text_means * image_means[image_of_text]).sum(-1) + offset[image_of_text]  # (T,)
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
            _exclude_own_images(scores, image_of_text[rows] - first_image)
            # a nearer image counts in both sums and adds 1 to the rank; a tie only in the second, and adds 1/2
            nearer, at_least_as_near = (
                mask.sum(1, dtype=torch.int32) for mask in (scores > high, scores >= low)
            )
            ranks[rows] += 0.5 * (nearer + at_least_as_near)
    return ranks


def _exclude_own_images(scores: Tensor, columns: Tensor) -> None:
    """Set the score of each row's own image to -inf, in place.

    columns: column of each row's own image; a column outside of `scores` belongs to another block of images.
    """
    rows = ((columns >= 0) & (columns < scores.shape[1])).nonzero()[:, 0]
    scores[rows, columns[rows]] = -math.inf


def analyze_regressions(
    images: Gaussian,
    texts: Gaussian,
    captions: TokenizedCaptions,
    *,
    max_captions: int = 20_000,
    seed: int = 0,
) -> Regressions:
    """Regress two measures of ambiguity on caption features, with and without log uncertainty.

    Args:
        images: The images, (N, D).
        texts: The captions, (T, D).
        captions: Tokens, images and, if known, ambiguities of the T captions.
        max_captions: Size of the random subset of captions that own_image uses.
        seed: Seed of the subset, the folds and the bootstrap.

    Returns:
        The comparison of each measure.
    """
    require_positive_int(max_captions, "max_captions", maximum=2**31)
    columns, log_uncertainty = compute_caption_features(captions), _log_uncertainty(texts)
    has_tokens = captions.lengths > 0
    rows = _sample_rows(has_tokens.nonzero()[:, 0], max_captions, seed)
    image_of_row = captions.image_index[rows]
    ranks = rank_paired_images(images, texts[rows], image_of_row)
    own_image = compare_regressions(
        columns.select(rows), log_uncertainty[rows], ranks.log(), image_of_row, seed=seed
    )
    ambiguity = None
    if captions.log_ambiguity is not None:
        distinct = captions.first_occurrences()
        rows_with_ambiguity = distinct[(has_tokens & captions.log_ambiguity.isfinite())[distinct]]
        target = captions.log_ambiguity[rows_with_ambiguity]
        ambiguity = compare_regressions(
            columns.select(rows_with_ambiguity),
            log_uncertainty[rows_with_ambiguity],
            target,
            rows_with_ambiguity,  # every text is a group of its own
            seed=seed,
        )
    return Regressions(own_image=own_image, ambiguity=ambiguity)


def compare_regressions(
    columns: RegressionFeatures, log_uncertainty: Tensor, target: Tensor, groups: Tensor, *, seed: int = 0
) -> RegressionComparison:
    """Least squares of a target with and without log uncertainty, cross-validated.

    Args:
        columns: Features of R rows, without uncertainty.
        log_uncertainty: Log uncertainty of each row, (R,).
        target: Value of each row to predict, (R,).
        groups: int64 (R,): rows of one group (captions of one image) are fitted, held out and resampled together.
        seed: Seed of the five folds of groups and of the bootstrap.

    Returns:
        The comparison.
    """
    all_columns = columns.with_column(UNCERTAINTY, log_uncertainty)
    _check_rows(all_columns, target, groups)
    _, groups = groups.unique(return_inverse=True)
    num_groups = int(groups.max()) + 1 if len(groups) else 0
    varies = [_varies(column) for column in all_columns.values.T]
    names = tuple(name for name, is_used in zip(all_columns.names, varies, strict=True) if is_used)
    comparison = RegressionComparison(
        n=len(target),
        num_groups=num_groups,
        columns=names,
        constant_columns=tuple(name for name in all_columns.names if name not in names),
        fit=None,
    )
    if num_groups < 2 * FOLDS or not varies[-1] or not _varies(target):
        return comparison
    values, target = all_columns.values[:, torch.tensor(varies)], target.double()
    fold = _assign_folds(num_groups, seed)[groups]  # of each row
    # without and with the last column, which is the uncertainty
    errors = torch.stack(
        [_held_out_errors(features, target, fold) for features in (values[:, :-1], values)], dim=1
    )
    r2_without, r2_with = (_compute_r2(errors[:, k].sum(), target) for k in range(2))
    fit = RegressionFit(
        r2_without=r2_without,
        r2_with=r2_with,
        difference=r2_with - r2_without,
        interval=_bootstrap_interval(errors, target, groups, seed),
        coefficients=_standardized_coefficients(values, target, names),
    )
    return replace(comparison, fit=fit)


def _check_rows(columns: RegressionFeatures, target: Tensor, groups: Tensor) -> None:
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
    """Whether values (R,) differ by more than rounding; False if there are none."""
    low, high = values.double().aminmax() if len(values) else (torch.zeros(()), torch.zeros(()))
    return float(high - low) > 1e-9 * max(1e-300, float(high.abs()), float(low.abs()))


def _assign_folds(num_groups: int, seed: int) -> Tensor:
    """Random fold 0 ... FOLDS - 1 of each group, int64 (num_groups,); sizes of folds differ by at most one."""
    order = torch.randperm(num_groups, generator=torch.Generator().manual_seed(seed))
    fold_of_group = torch.empty(num_groups, dtype=torch.int64)
    fold_of_group[order] = torch.arange(num_groups) * FOLDS // num_groups
    return fold_of_group


def _held_out_errors(values: Tensor, target: Tensor, fold: Tensor) -> Tensor:
    """The squared error of each row's prediction by the least-squares fit to the rows of the other folds: (R,).

    values: (R, C). target: (R,). fold: int64 (R,), the fold of each row.
    """
    errors = torch.empty_like(target)
    for k in range(FOLDS):
        held_out = fold == k
        predicted = _fit_and_predict(values[~held_out], target[~held_out], values[held_out])
        errors[held_out] = (predicted - target[held_out]).square()
    return errors


def _fit_and_predict(values: Tensor, target: Tensor, new_values: Tensor) -> Tensor:
    """Predictions (K,) for the rows of new_values (K, C), by a least-squares fit of target (R,) to values (R, C)."""
    center, scale = _column_means_and_stds(values)
    weights = _least_squares_weights((values - center) / scale, target - target.mean())
    return (new_values - center) / scale @ weights + target.mean()


def _column_means_and_stds(values: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the columns of (R, C), (C,) each; for a constant column a deviation of 1."""
    scale = values.std(0, correction=0)
    return values.mean(0), torch.where(scale > 0, scale, torch.ones_like(scale))


def _least_squares_weights(values: Tensor, target: Tensor) -> Tensor:
    """Weights (C,) of the least-squares fit of target (R,) to values (R, C), without intercept.

    The weights of minimum norm if columns are linearly dependent.
    """
    if not values.shape[1]:
        return values.new_zeros(0)
    solution: Tensor = torch.linalg.lstsq(values, target[:, None], driver="gelsd").solution
    return solution[:, 0]


def _standardized_coefficients(values: Tensor, target: Tensor, names: tuple[str, ...]) -> dict[str, float]:
    """Name of each column -> its coefficient in the fit to all rows.

    In standard deviations of the target per standard deviation of the column.
    """
    center, scale = _column_means_and_stds(values)
    weights = _least_squares_weights(
        (values - center) / scale, (target - target.mean()) / target.std(correction=0)
    )
    return dict(zip(names, weights.tolist(), strict=True))


def _compute_r2(sum_of_squared_errors: Tensor, target: Tensor) -> float:
    """R^2 = 1 - (sum of squared errors) / (sum of squared deviations of the target from its mean)."""
    return float(1 - sum_of_squared_errors / (target - target.mean()).square().sum())


def _bootstrap_interval(errors: Tensor, target: Tensor, groups: Tensor, seed: int) -> Interval:
    """95 % bootstrap interval of the difference of R^2 (with - without) when groups are resampled.

    errors: (R, 2), squared errors without and with uncertainty. groups: int64 (R,), from 0 without gaps.
    """
    num_groups = int(groups.max()) + 1
    # Both R^2 of a draw have the same denominator, so their difference is
    # sum(error without - error with) / (sum(t^2) - sum(t)^2 / n), t = target. The sums over the rows of each group are
    # computed once, and those of a draw from them.
    centered = target - target.mean()
    terms = torch.stack(
        [errors[:, 0] - errors[:, 1], centered.square(), centered, torch.ones_like(centered)], dim=1
    )
    sums = torch.zeros(num_groups, 4, dtype=torch.float64).index_add(0, groups, terms)
    generator = torch.Generator().manual_seed(seed + 1)
    differences: list[Tensor] = []
    for draw_counts in iter_draw_counts(num_groups, RESAMPLES, max(1, BLOCK // num_groups), generator):
        gain, sum_of_squares, total, num_rows = (draw_counts @ sums).T
        differences.append(gain / (sum_of_squares - total.square() / num_rows))
    interval = percentile_interval(torch.cat(differences))  # not finite where all targets of a draw are equal
    assert interval is not None
    return interval


def _log_uncertainty(texts: Gaussian) -> Tensor:
    """ln tr(Sigma) of each text, float64 (T,); finite also for a variance of 0."""
    return texts.uncertainty.double().clamp_min(torch.finfo(torch.float64).tiny).log()


def _sample_rows(rows: Tensor, max_rows: int, seed: int) -> Tensor:
    """A random subset of at most max_rows of the rows, int64, in their order."""
    if len(rows) <= max_rows:
        return rows
    sampled_positions = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:max_rows]
    return rows[sampled_positions.sort().values]
