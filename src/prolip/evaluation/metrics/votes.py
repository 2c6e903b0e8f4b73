"""Agreement with single judges: AUROC for a drawn vote, of a score and of the other judges; disagreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.metrics.correlation import spearman


@dataclass(frozen=True, eq=False)
class Votes:
    """Yes and no votes on N pairs.

    yes: How many of the judges of each pair said yes, float64 (N,).
    n:   How many judges each pair had, float64 (N,), at least 2.
    """

    yes: Tensor
    n: Tensor

    @property
    def share(self) -> Tensor:
        """Fraction of the judges who said yes, (N,)."""
        return self.yes / self.n


def drawn_vote_auroc(votes: Votes, score: Tensor) -> float | None:
    """AUROC of a score for the vote of one judge, who is drawn from the judges of each pair.

    Computed exactly over all draws: the expected number of (yes, no) pairs in which yes has the higher score, ties
    counting half, divided by the expected number of (yes, no) pairs.

    Args:
        votes: The votes.
        score: Score of each pair, (N,), without NaN.

    Returns:
        0 to 1; None if no draw has both a yes and a no.
    """
    return _auroc_over_draws(votes.share, score.double(), score.double())


def other_judges_auroc(votes: Votes) -> float | None:
    """AUROC for the vote of one drawn judge by the share of yes among the other judges of the pair.

    A ceiling for `drawn_vote_auroc`: what a score could reach that knows what all other judges said. Exact over all
    draws, as there.

    Args:
        votes: The votes.

    Returns:
        0 to 1; None if no draw has both a yes and a no.
    """
    # without a judge who said yes, one yes is missing among the others; without one who said no, none is
    return _auroc_over_draws(votes.share, (votes.yes - 1.0) / (votes.n - 1.0), votes.yes / (votes.n - 1.0))


def _auroc_over_draws(share: Tensor, yes_score: Tensor, no_score: Tensor) -> float | None:
    """Expected pairs in the right order / expected pairs, over draws in which row i is a yes with probability share_i.

    yes_score, no_score: float64 (N,), the score of a row where it is drawn as a yes, and as a no.
    """
    no_share = 1.0 - share
    ordered, order = no_score.sort()
    mass = torch.cat([torch.zeros(1, dtype=torch.float64), no_share[order].cumsum(0)])
    below, up_to = (mass[torch.searchsorted(ordered, yes_score, right=right)] for right in (False, True))
    # in a draw no row is both a yes and a no: pairs of a row with itself don't count
    own = share * no_share
    own_in_order = own * ((no_score < yes_score).double() + 0.5 * (no_score == yes_score).double())
    in_order = (share * 0.5 * (below + up_to)).sum() - own_in_order.sum()
    total = share.sum() * no_share.sum() - own.sum()
    # below one millionth of a pair is rounding: all rows are certain, and all the same, or there is only one
    return None if total < 1e-6 else (in_order / total).clamp(0.0, 1.0).item()


@dataclass(frozen=True, kw_only=True)
class JudgeAgreement:
    """How far one judge agrees with the mean of the others."""

    judge: str
    """Name of the judge: that of the column."""
    n: int
    """Pairs that were scored by this judge and by another one."""
    spearman: float | None
    """Spearman's correlation of the judge's score with the mean of the other judges' scores; None: undefined."""


def compare_judges(judge_scores: Tensor, names: Sequence[str]) -> tuple[JudgeAgreement, ...]:
    """Compare each judge with the mean of the others.

    Args:
        judge_scores: Scores of N pairs by J judges, float64 (N, J); NaN where a judge gave none.
        names: Names of the judges.

    Returns:
        The agreement of each judge.
    """
    found = []
    for index, name in enumerate(names):
        others = torch.cat([judge_scores[:, :index], judge_scores[:, index + 1 :]], 1).nanmean(1)
        rows = (~judge_scores[:, index].isnan() & ~others.isnan()).nonzero()[:, 0]
        value = spearman(judge_scores[rows, index], others[rows])
        found.append(JudgeAgreement(judge=name, n=len(rows), spearman=value))
    return tuple(found)


def spearman_with_judges(judge_scores: Tensor, score: Tensor) -> float | None:
    """Spearman's correlation of a score with one judge: the mean over judges.

    Args:
        judge_scores: Scores of N pairs by J judges, float64 (N, J); NaN where a judge gave none.
        score: Score of each pair, (N,), without NaN.

    Returns:
        The mean over the judges whose correlation is defined, on the pairs that `compare_judges` uses; None if there
        are none.
    """
    several = (~judge_scores.isnan()).sum(1) >= 2
    values = []
    for judge in judge_scores.T:
        rows = ~judge.isnan() & several
        values.append(spearman(score[rows], judge[rows]))
    return mean_of_known(values)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are not None.

    Args:
        values: Any number of values.

    Returns:
        Their mean; None if none is known.
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def vote_entropy(votes: Votes) -> Tensor:
    """Entropy of the votes on each pair, in nats: 0 where all judges agree, ln 2 where half of them say yes.

    Args:
        votes: The votes.

    Returns:
        float64 (N,); exactly equal for a yes as for a no of one judge among as many.
    """
    minority = torch.minimum(votes.yes, votes.n - votes.yes) / votes.n
    entropy: Tensor = torch.special.entr(minority) + torch.special.entr(1.0 - minority)
    return entropy


def judge_variance(judge_scores: Tensor) -> Tensor:
    """Variance of the judges' scores of each pair, with the divisor n - 1.

    Args:
        judge_scores: Scores of N pairs by J judges, float64 (N, J); NaN where a judge gave none; at least two in each
            row.

    Returns:
        float64 (N,). Of scores that are whole numbers, equal variances are exactly equal, so that they tie in ranks.
    """
    n = (~judge_scores.isnan()).sum(1)
    # n sum(x^2) - sum(x)^2 is exact for whole numbers; from the median on, so that nothing cancels
    shifted = judge_scores - judge_scores.nanmedian()
    return (n * shifted.square().nansum(1) - shifted.nansum(1).square()) / (n * (n - 1))
