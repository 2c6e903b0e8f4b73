"""`prolip filter`: selection of image-text pairs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from rich.table import Table

    from prolip.filtering.filter import FilterResult


def filter_(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: str,
    keep_fraction: float,
    rank_by: Literal["csd", "cosine", "image-uncertainty", "text-uncertainty", "inclusion"] = "csd",
    model: str | None = None,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    variances: Literal["full", "trace"] | None = None,
    precision: Literal["float32", "float16"] | None = None,
    batch_size: int | None = None,
    max_bad_fraction: float | None = None,
    duplicates: Literal["images", "captions", "both"] | None = None,
    duplicate_cosine: float = 0.97,
    outputs: tuple[Literal["ids", "parquet", "shards"], ...] | None = None,
    shard_size: int = 10_000,
    ground_truth: str | None = None,
    device: str | None = None,
    report: bool = True,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Keep the best fraction of image-text pairs: ids, a table or new shards, and an HTML page.

    Example: prolip filter embeddings --out clean --keep-fraction 0.2 --rank-by csd --duplicates images

    An interrupted run can be continued. A second score in the same folder reuses the data and the embeddings.

    Args:
        source: Folder that prolip embed wrote; or any other data, which is embedded first with --model.
        out: Folder for scores, selected samples, filter.json and filter.html; for one source only.
        keep_fraction: Fraction of the samples to keep, above 0, at most 1. Bad samples don't count.
        rank_by: csd, cosine: distance of image and caption. inclusion: of the image in its caption. Uncertainties: the
            smallest are kept. Of several captions the best one counts.
        model: For data that isn't embedded: model folder, training run, folder of another format, or hub id.
        captions: For data that isn't embedded: fields of a tar or columns of a table. None: the usual ones.
        image: For data that isn't embedded: field or column of the image.
        variances: For data that isn't embedded: full or trace, as in prolip embed. inclusion needs full.
        precision: For data that isn't embedded: of the means, as in prolip embed. None: float32.
        batch_size: Images per batch. None: 64.
        max_bad_fraction: Fail if a larger fraction of samples is bad; below it they are skipped. None: 0.1.
        duplicates: Drop near-duplicates by images, captions, or either; the one with the best score is kept.
        duplicate_cosine: Minimum cosine of the means of near-duplicates.
        outputs: ids: ids.npy in DataComp's format. parquet: subset.parquet. shards: new tars. None: parquet, and ids
            if samples have a uid.
        shard_size: Samples per shard.
        ground_truth: Column that is true for right pairs: precision and recall of the kept samples are reported.
        device: cpu, cuda, ... None: a GPU if there is one.
        report: Write filter.html (extra report).
        as_json: Print JSON instead of a table.
    """
    from prolip.console import print_tables
    from prolip.extras import MissingExtraError
    from prolip.filtering.filter import filter_pairs

    result = filter_pairs(
        source, out, keep_fraction=keep_fraction, rank_by=rank_by, model=model, captions=captions, image=image,
        variances=variances, precision=precision, batch_size=batch_size, max_bad_fraction=max_bad_fraction,
        duplicates=duplicates, duplicate_cosine=duplicate_cosine, outputs=outputs, shard_size=shard_size,
        ground_truth=ground_truth, device=device,
    )  # fmt: skip
    paths = list(result.paths)
    if report:
        from prolip.reports import filtering

        try:
            paths.append(filtering.save_filter_page(result, Path(out).expanduser()))
        except MissingExtraError as error:
            print(f"prolip: no page: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({**result.summary, "paths": [str(path) for path in paths]}, indent=2))
        return
    print_tables([_make_outcome_table(result), *_make_truth_tables(result)])
    print(*paths, sep="\n")


def _make_outcome_table(result: FilterResult) -> Table:
    """Table of the number and percentage of samples by outcome, bad ones by reason, with the threshold below it."""
    from prolip.console import format_number, format_percent, make_table

    summary = result.summary
    threshold = f"last {summary['rank_by']} that is kept: {format_number(summary['threshold'])}"
    table = make_table(
        f"{summary['data']} by {summary['rank_by']}", ["outcome"], ["samples", "%"], caption=threshold
    )
    rows = [
        *summary["outcomes"].items(),
        *((f"bad: {reason}", count) for reason, count in summary["errors"].items()),
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
