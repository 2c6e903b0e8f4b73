"""Tables of a calibration: errors of match probabilities before and after, and sets with a stated coverage."""

from __future__ import annotations

from rich.table import Table

from prolip.console import MISSING, format_number, format_percent, make_table
from prolip.retrieval.calibration import Calibration, ProbabilityErrors


def make_tables(calibration: Calibration) -> list[Table]:
    """Make the tables that `prolip calibrate` prints.

    Args:
        calibration: The calibration.

    Returns:
        Errors of the probabilities; of pairs also the sets of images by coverage.
    """
    table = make_table(
        f"match probabilities, {calibration.describe()} ({calibration.num_images:,} images)",
        ("pairs",),
        ("ECE", "calibrated", "Brier score", "calibrated", "log loss", "calibrated"),
        caption=f"measured on half of the images; log likelihood ratio of a match: {calibration.scale:.4g} x trained "
        f"logit {calibration.bias:+.4g}; prior of the held-out data: {calibration.prior:.4g}",
    )
    rows = {
        "all": (calibration.errors_before, calibration.errors_after),
        "the ten best images of each text": (calibration.shown_before, calibration.shown_after),
    }
    for name, (before, after) in rows.items():
        if after is not None:
            table.add_row(name, *_format_errors(before, after))
    return [table, _make_coverage_table(calibration)] if calibration.coverage else [table]


def _format_errors(before: ProbabilityErrors | None, after: ProbabilityErrors) -> list[str]:
    """Each error before and after, in the order of the columns."""
    names = ("ece", "brier", "log_loss")
    return [
        MISSING if errors is None else format_number(getattr(errors, name), ".5f")
        for name in names
        for errors in (before, after)
    ]


def _make_coverage_table(calibration: Calibration) -> Table:
    """Table of measured coverage and mean size of the sets of images."""
    table = make_table(
        f"sets of images for a text, among {calibration.coverage[0].num_images:,} images",
        (),
        ("coverage, %", "measured, %", "mean size"),
        caption="threshold of one half, measured on the other half: one caption of each image",
    )
    for check in calibration.coverage:
        cells = (format_percent(check.coverage), format_percent(check.measured))
        table.add_row(*cells, format_number(check.mean_size, ".1f"))
    return table
