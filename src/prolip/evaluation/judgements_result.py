"""Result of agreement with human judgements, and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from rich.table import Table

from prolip.console import MISSING, describe_bad_samples, format_number, make_table
from prolip.evaluation.entailment import LABELS
from prolip.evaluation.metrics.bootstrap import BootstrapEstimate
from prolip.evaluation.metrics.calibration import PairCalibration
from prolip.evaluation.metrics.fit import LogitFit
from prolip.evaluation.metrics.votes import JudgeAgreement
from prolip.evaluation.result import Interval, Result

SCORE_LABELS: dict[str, str] = {
    **LABELS,
    "image_uncertainty": "image uncertainty",
    "text_uncertainty": "text uncertainty",
}
"""Names of scores in tables and figures."""

DisagreementMeasure = Literal["entropy of the votes", "variance over judges"]
"""What the disagreement of the judges of a pair is measured by."""


@dataclass(frozen=True, kw_only=True)
class HumanAgreement:
    """Agreement of one score with the human scores of some pairs."""

    n: int
    """Number of pairs."""
    num_yes: int
    """Pairs to which people say yes."""
    spearman: BootstrapEstimate
    """Spearman's correlation with the human score."""
    auroc: BootstrapEstimate
    """Probability that a pair to which people say yes has a higher score than one to which they don't."""


@dataclass(frozen=True, kw_only=True)
class JudgedScore:
    """A score of the model, and how it agrees with people."""

    name: str
    """Name of the score, a key of `SCORE_LABELS`."""
    all_pairs: HumanAgreement
    """On all pairs."""
    without_own: HumanAgreement | None
    """Without the captions that were written for the image; None: it isn't known which these are, or none is left."""
    vote_auroc: float | None
    """AUROC for the vote of one drawn judge (`metrics.votes`); None: votes are not known."""
    judge_spearman: float | None
    """Mean over judges of Spearman's correlation with one judge; None: scores of single judges are not known."""


@dataclass(frozen=True, kw_only=True)
class JudgeCeilings:
    """How well the other judges predict one judge: what the same measures of a score can hardly exceed."""

    vote_auroc: float | None
    """AUROC of the share of yes among the other judges for the vote of one drawn judge."""
    num_vote_pairs: int
    """Pairs with the votes of at least two judges: those of all AUROC for a drawn vote."""
    judge_spearman: float | None
    """Mean over judges of Spearman's correlation with the mean of the other judges."""
    judges: tuple[JudgeAgreement, ...]
    """Each single judge; empty: their scores are not known."""
    missing: str | None
    """Why votes are not known; None: they are."""


@dataclass(frozen=True, kw_only=True)
class JudgedCalibration:
    """Calibration of match probabilities against people's yes and no. All values are of the half that is tested."""

    num_fit_images: int
    """Images of the half that is fitted; all pairs of an image are in the same half."""
    num_test_images: int
    """Images of the half that is tested."""
    n_fit: int
    """Pairs of the half that is fitted."""
    n_test: int
    """Pairs of the half that is tested."""
    raw: PairCalibration | None
    """The model's own match probability; None for a softmax model, which has none."""
    fit: LogitFit
    """Scale and bias that turn the model's logit into a logit of yes, fitted to one half."""
    fitted: PairCalibration
    """The probability with this scale and bias."""
    constant: PairCalibration
    """The fraction of yes in the fitted half as the probability of every pair: what a calibrated model that knows
    nothing reaches."""


@dataclass(frozen=True, kw_only=True)
class JudgeDisagreement:
    """Spearman's correlation of uncertainty with the disagreement of a pair's judges."""

    measure: DisagreementMeasure
    """How disagreement is measured."""
    n: int
    """Pairs with at least two judges."""
    image: BootstrapEstimate
    """Correlation of the image's uncertainty."""
    text: BootstrapEstimate
    """Correlation of the caption's uncertainty."""


@dataclass(frozen=True, kw_only=True)
class SkippedRows:
    """Rows of the table that were not used."""

    num_blank: int
    """The caption or the score is blank."""
    num_unknown_keys: int
    """No image that could be read has the key."""
    num_repeated: int
    """The row repeats another one."""


@dataclass(frozen=True, kw_only=True)
class JudgementsResult(Result):
    """Agreement of scores with human judgements; `n` is the number of pairs of an image and a caption."""

    task: ClassVar[str] = "judgements"

    judgements: str
    """The table of judgements."""
    num_images: int
    """Images with a judged caption."""
    num_captions: int
    """Different captions."""
    skipped: SkippedRows
    """Rows of the table that were not used."""
    scale: Interval
    """Lowest and highest human score: stated, or found in the data."""
    threshold: float
    """People say yes to a pair whose score is above it."""
    scores: tuple[JudgedScore, ...]
    """The model's scores."""
    ceilings: JudgeCeilings
    """How well the other judges predict one judge."""
    calibration: JudgedCalibration | None
    """Calibration of match probabilities; None if there is one image only, or a half has no yes or no no."""
    disagreement: JudgeDisagreement | None
    """Uncertainty and the disagreement of judges; None for a deterministic model, or if the judges are not known."""

    def score(self, name: str) -> JudgedScore | None:
        """Find a score.

        Args:
            name: A key of `SCORE_LABELS`.

        Returns:
            The score; None: the model doesn't have it.
        """
        return next((score for score in self.scores if score.name == name), None)

    def tables(self) -> list[Table]:
        """Agreement by score with ceilings; the same without own captions; calibration; disagreement of judges."""
        tables = [_make_agreement_table(self)]
        if any(score.without_own is not None for score in self.scores):
            tables.append(_make_without_own_table(self))
        if self.calibration is not None:
            tables.append(_make_calibration_table(self.calibration))
        if self.disagreement is not None:
            tables.append(_make_disagreement_table(self.disagreement))
        return tables


AGREEMENT_HEADINGS = ("Spearman", "95 %", "AUROC of yes", "95 %")
SINGLE_JUDGE_HEADINGS = {"vote_auroc": "AUROC, one vote", "judge_spearman": "Spearman, one judge"}
"""Headings of the measures that have a ceiling, by their name in `JudgedScore` and `JudgeCeilings`."""


def describe_judgements(result: JudgementsResult) -> str:
    """Describe what was judged, as the title of a table or a figure.

    Args:
        result: The result.

    Returns:
        One line.
    """
    return (
        f"Human judgements ({Path(result.judgements).name}): {result.n:,} pairs of {result.num_images:,} images and "
        f"{result.num_captions:,} captions"
    )


def _make_agreement_table(result: JudgementsResult) -> Table:
    """Table of all scores on all pairs, with the ceilings in the last row."""
    notes = [
        f"{result.scores[0].all_pairs.num_yes:,} yes: a score above {result.threshold:g} on {result.scale.low:g} to "
        f"{result.scale.high:g}",
        *_describe_ceilings(result.ceilings),
        *_describe_skipped(result.skipped),
    ]
    if (bad := describe_bad_samples(result.num_bad)) is not None:
        notes.append(bad)
    # columns of what is known of single judges only
    single = {
        name: heading for name, heading in SINGLE_JUDGE_HEADINGS.items()
        if getattr(result.ceilings, name) is not None
    }  # fmt: skip
    headings = (*AGREEMENT_HEADINGS, *single.values())
    table = make_table(describe_judgements(result), ["score"], headings, caption="; ".join(notes))
    for score in result.scores:
        values = [format_number(getattr(score, name), ".3f") for name in single]
        is_last = score is result.scores[-1]
        table.add_row(
            SCORE_LABELS[score.name], *_format_agreement(score.all_pairs), *values, end_section=is_last
        )
    if single:
        values = [format_number(getattr(result.ceilings, name), ".3f") for name in single]
        table.add_row("ceiling: other judges", *[MISSING] * len(AGREEMENT_HEADINGS), *values)
    return table


def _describe_ceilings(ceilings: JudgeCeilings) -> list[str]:
    """What the columns for single judges were measured on, or why they are empty."""
    notes = []
    if ceilings.missing is not None:
        notes.append(f"no ceiling by votes: {ceilings.missing}")
    else:
        notes.append(
            f"one vote: of one drawn judge, {ceilings.num_vote_pairs:,} pairs with two judges or more"
        )
    if ceilings.judges:
        notes.append(f"one judge: the mean over {len(ceilings.judges)} judges")
    else:
        notes.append("no ceiling by single judges: their scores are not known (--judge-columns)")
    return notes


def _describe_skipped(skipped: SkippedRows) -> list[str]:
    """How many rows of the table were not used, by reason."""
    reasons = {
        "rows without an image of their key": skipped.num_unknown_keys,
        "rows with a blank caption or score": skipped.num_blank,
        "repeated rows": skipped.num_repeated,
    }
    return [f"skipped: {count:,} {reason}" for reason, count in reasons.items() if count]


def _make_without_own_table(result: JudgementsResult) -> Table:
    """Table of all scores on the captions that were written for other images."""
    table = make_table(
        "Without the captions that were written for the image", ["score"], ("n", "yes", *AGREEMENT_HEADINGS)
    )
    for score in result.scores:
        if (found := score.without_own) is not None:
            counts = f"{found.n:,}", f"{found.num_yes:,}"
            table.add_row(SCORE_LABELS[score.name], *counts, *_format_agreement(found))
    return table


def _make_calibration_table(found: JudgedCalibration) -> Table:
    """Table of the calibration of match probabilities, raw and fitted."""
    table = make_table(
        f"Match probability and people's yes: {found.n_test:,} pairs of {found.num_test_images:,} images",
        ["probability"],
        ("ECE", "Brier score", "log loss"),
        caption=f"fitted to {found.n_fit:,} pairs of {found.num_fit_images:,} other images: {found.fit.scale:.4g} x "
        f"the model's logit {found.fit.bias:+.4g}",
    )
    rows = {
        "the model's own": found.raw,
        "after a fit of scale and bias": found.fitted,
        "constant: the fraction of yes": found.constant,
    }
    for name, metrics in rows.items():
        values = [None] * 3 if metrics is None else [metrics.ece, metrics.brier, metrics.log_loss]
        table.add_row(name, *(format_number(value, ".4f") for value in values))
    return table


def _make_disagreement_table(found: JudgeDisagreement) -> Table:
    """Table of the correlation of uncertainty with the disagreement of judges."""
    table = make_table(
        f"Uncertainty and the disagreement of judges: {found.n:,} pairs", ["uncertainty of the"],
        ("Spearman", "95 %"), caption=f"disagreement: {found.measure}",
    )  # fmt: skip
    for name, estimate in (("image", found.image), ("caption", found.text)):
        table.add_row(name, *_format_estimate(estimate))
    return table


def _format_agreement(found: HumanAgreement) -> tuple[str, ...]:
    """The cells of `AGREEMENT_HEADINGS`."""
    return (*_format_estimate(found.spearman), *_format_estimate(found.auroc))


def _format_estimate(estimate: BootstrapEstimate) -> tuple[str, str]:
    """The value, and its interval."""
    interval = estimate.interval
    text = MISSING if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"
    return format_number(estimate.value, ".3f"), text
