"""RobustnessResult: accuracy and uncertainty under perturbations, with its tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from rich.table import Table

from prolip.choices import RankBy, StartPoint
from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.evaluation import paper_numbers
from prolip.evaluation.result import Mean, Proportion, Result, get_value


@dataclass(frozen=True, kw_only=True)
class AccuracyUncertainty:
    """Zero-shot accuracy and mean image uncertainty of some images."""

    accuracy: Proportion
    """Images whose nearest class is the true one."""
    uncertainty: Mean | None
    """Mean uncertainty of the images; None for a deterministic model."""

    @classmethod
    def extend(cls, measured: AccuracyUncertainty, **perturbation: float) -> Self:
        """A row of this class.

        Args:
            measured: Accuracy and uncertainty.
            perturbation: The field that the row has in addition to these.

        Returns:
            The row.
        """
        return cls(accuracy=measured.accuracy, uncertainty=measured.uncertainty, **perturbation)


@dataclass(frozen=True, kw_only=True)
class OcclusionRow(AccuracyUncertainty):
    """With an occluded center."""

    fraction: float
    """Fraction of the area that is hidden."""


@dataclass(frozen=True, kw_only=True)
class CorruptionRow(AccuracyUncertainty):
    """With a corruption."""

    severity: int
    """Severity of the corruption, from 1 to 5."""


@dataclass(frozen=True, kw_only=True)
class PGDRow(AccuracyUncertainty):
    """After an attack."""

    steps: int
    """Number of steps; 0 is no attack."""


@dataclass(frozen=True, kw_only=True)
class PGDMetrics:
    """PGD attacks on some of the images."""

    n: int
    """Number of attacked images."""
    epsilon: float
    """Maximum change of a pixel value, as a fraction of full scale."""
    step_size: float
    """Change of a pixel value per step."""
    start: StartPoint
    """Start of the attack."""
    rows: tuple[PGDRow, ...]
    """By number of steps."""


@dataclass(frozen=True, kw_only=True)
class RobustnessResult(Result):
    """Result of `evaluate_robustness`."""

    task: ClassVar[str] = "robustness"

    rank_by: RankBy
    """Similarity that found the nearest class."""
    num_classes: int
    """Number of classes."""
    clean: AccuracyUncertainty
    """Without a perturbation."""
    occlusion: tuple[OcclusionRow, ...] = ()
    """By occluded fraction."""
    corruptions: dict[str, tuple[CorruptionRow, ...]]
    """By kind of corruption, then by severity."""
    pgd: PGDMetrics | None = None
    """PGD attacks; None if no number of steps is above 0."""

    def tables(self) -> list[Table]:
        """Tables of occlusion, PGD and corruptions, as far as they were evaluated, with the paper's values."""
        tables = []
        if self.occlusion:
            rows = ((f"{100 * row.fraction:g} %", row) for row in self.occlusion)
            tables.append(_make_comparison_table("occluded center", rows, paper_numbers.OCCLUSION))
        if self.pgd is not None:
            title = (
                f"PGD on {self.pgd.n} images: epsilon {255 * self.pgd.epsilon:g}/255, "
                f"step {255 * self.pgd.step_size:g}/255, {self.pgd.start} start"
            )
            steps = ((str(row.steps), row) for row in self.pgd.rows)
            tables.append(_make_comparison_table(title, steps, paper_numbers.PGD))
        tables += make_corruption_tables(self)
        if tables:
            tables[0].caption = describe_bad_samples(self.num_bad)
        return tables


def _make_comparison_table(
    title: str, rows: Iterable[tuple[str, AccuracyUncertainty]], paper: paper_numbers.PaperTable
) -> Table:
    """Table of accuracy and uncertainty, with the paper's values.

    rows:  (name, values); the paper's values are those of its row of this name, if there is one.
    paper: a table of the paper with the columns imagenet and image_uncertainty.
    """
    table = make_table(title, [""], ("accuracy %", "uncertainty", "paper: accuracy %", "paper: uncertainty"))
    for name, row in rows:
        paper_row = paper.row(name) if name in paper.rows else {}
        table.add_row(
            name, format_percent(row.accuracy.value), format_number(get_value(row.uncertainty)),
            format_percent(paper_row.get("imagenet")), format_number(paper_row.get("image_uncertainty")),
        )  # fmt: skip
    return table


def make_corruption_tables(result: RobustnessResult) -> list[Table]:
    """Make a table of accuracy by corruption and severity, and one of uncertainty: both fit a narrow terminal.

    Args:
        result: The result.

    Returns:
        The tables; that of uncertainty only if the model has it; [] without corruptions.
    """
    if not result.corruptions:
        return []
    severities = [str(row.severity) for row in next(iter(result.corruptions.values()))]
    accuracy, uncertainty = (
        make_table(f"{name} by severity", ["corruption"], ["clean", *severities])
        for name in ("accuracy %", "uncertainty")
    )
    for kind, rows in result.corruptions.items():
        name, levels = kind.replace("_", " "), (result.clean, *rows)
        accuracy.add_row(name, *(format_percent(level.accuracy.value) for level in levels))
        uncertainty.add_row(name, *(format_number(get_value(level.uncertainty)) for level in levels))
    return [accuracy] if result.clean.uncertainty is None else [accuracy, uncertainty]
