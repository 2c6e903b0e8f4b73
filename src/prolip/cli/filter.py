"""`prolip filter`: selection of image-text pairs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from prolip.cli.options import Json, print_json
from prolip.filtering.config import FilterConfig

if TYPE_CHECKING:
    from rich.table import Table

    from prolip.filtering.filter import FilterResult


def filter_(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    out: Path,
    config: FilterConfig,
    report: bool = True,
    as_json: Json = False,
) -> None:
    """Keep the best fraction of image-text pairs: ids, a table or new shards, and an HTML page.

    Example: prolip filter embeddings --out clean --keep-fraction 0.2 --rank-by csd --duplicates images

    An interrupted run can be continued. A second score in the same folder reuses the data and the embeddings.

    Args:
        data: Folder that prolip embed wrote; or any other data, which is embedded first with --model, and the options
            of prolip embed.
        out: Folder for scores, selected samples, filter.json and filter.html; for one data set only.
        report: Write filter.html (extra report).
    """
    from prolip.console import print_tables
    from prolip.extras import MissingExtraError
    from prolip.filtering.filter import filter_pairs

    result = filter_pairs(data, out, config)
    paths = list(result.paths)
    if report:
        from prolip.reports import filtering

        try:
            paths.append(filtering.save_filter_page(result, out.expanduser()))
        except MissingExtraError as error:
            print(f"prolip: no page: {error}", file=sys.stderr)
    if as_json:
        print_json(result.summary, paths=[str(path) for path in paths])
        return
    print_tables([_make_outcome_table(result), *_make_truth_tables(result)])
    print(*paths, sep="\n")


def _make_outcome_table(result: FilterResult) -> Table:
    """Table of the number and percentage of samples by outcome, bad ones by reason, with the threshold below it."""
    from prolip.console import format_number, format_percent, make_table

    summary = result.summary
    threshold = f"last {summary.rank_by} that is kept: {format_number(summary.threshold)}"
    table = make_table(
        f"{summary.data} by {summary.rank_by}", ["outcome"], ["samples", "%"], caption=threshold
    )
    rows = [
        *summary.outcomes.items(),
        *((f"bad: {reason}", count) for reason, count in summary.errors.items()),
    ]
    total = sum(count for _, count in rows)
    for name, count in rows:
        table.add_row(name, f"{count:,}", format_percent(count / total if total else None))
    return table


def _make_truth_tables(result: FilterResult) -> list[Table]:
    """Table of precision and recall of the kept samples and of a random choice; [] without a ground truth."""
    from prolip.console import format_percent, make_table

    truth = result.counts.ground_truth
    if truth is None:
        return []
    table = make_table(f"against {truth.column}", ["metric"], ["selected %", "random %"])
    table.add_row(
        "precision",
        format_percent(truth.precision),
        format_percent(truth.chance_precision),
    )
    table.add_row("recall", format_percent(truth.recall), format_percent(truth.chance_recall))
    return [table]
