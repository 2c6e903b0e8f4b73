"""`prolip filter`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from prolip.filtering.filter import Filtered


def filter_(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    out: str,
    keep: float,
    by: Literal["csd", "cosine", "image-uncertainty", "text-uncertainty", "inclusion"] = "csd",
    model: str | None = None,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    variances: Literal["full", "trace"] | None = None,
    precision: Literal["float32", "float16"] | None = None,
    batch_size: int | None = None,
    bad_limit: float | None = None,
    duplicates: Literal["images", "captions", "both"] | None = None,
    alike: float = 0.97,
    to: tuple[Literal["ids", "parquet", "shards"], ...] | None = None,
    shard_size: int = 10_000,
    truth: str | None = None,
    device: str | None = None,
    report: bool = True,
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Keep the best share of image-text pairs, exactly: ids, a table or new shards, and a page on what was dropped.

    Example: prolip filter embeddings --out clean --keep 0.2 --by csd --duplicates images

    A run that was stopped goes on. Another score in the same folder reads neither data nor embeddings again.

    Args:
        source: A folder that prolip embed wrote; or data of any kind, which is embedded first, by --model.
        out: The folder for scores, what is kept, filter.json and filter.html; for one source.
        keep: Share of the samples that is kept, above 0, at most 1. Bad samples don't count.
        by: csd, cosine: how far a picture and its caption are apart. inclusion: of the picture in its caption.
            uncertainties: the smallest are kept. Of several captions the one that fits best counts.
        model: For data that isn't embedded: a folder of ours, a run of training, a foreign folder, or a hub id.
        captions: Endings in a tar or columns of a table, instead of the usual ones; for data that isn't embedded.
        image: The ending or column of the image; for data that isn't embedded.
        variances: full or trace, as for prolip embed, for data that isn't embedded. inclusion needs full.
        precision: Of the means, as for prolip embed; for data that isn't embedded. None: float32.
        batch_size: Pictures that go through the model together. None: 64.
        bad_limit: Share of bad samples from which on the run fails; below it they are left out and told. None: 0.1.
        duplicates: Among what is kept, of those whose images, captions, or either are alike, the best stays.
        alike: The least cosine of two means that are called alike.
        to: ids: ids.npy in DataComp's format. parquet: subset.parquet. shards: new tars. None: parquet, and ids where
            samples have a uid.
        shard_size: Samples in a shard.
        truth: A column that is true for right pairs: precision and recall of what is kept are told.
        device: cpu, cuda, ... None: a GPU if there is one.
        report: Write filter.html (extra report).
        as_json: Print JSON instead of a table.
    """
    from prolip.extras import MissingExtraError
    from prolip.filtering.filter import filter_pairs

    done = filter_pairs(
        source, out, keep=keep, by=by, model=model, captions=captions, image=image, variances=variances,
        precision=precision, batch_size=batch_size, bad_limit=bad_limit, duplicates=duplicates, alike=alike, to=to,
        shard_size=shard_size, truth=truth, device=device,
    )  # fmt: skip
    paths = list(done.paths)
    if report:
        from prolip.reports import filtering

        try:
            paths.append(filtering.save(done, Path(out).expanduser()))
        except MissingExtraError as error:
            print(f"prolip: no page: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({**done.summary, "paths": [str(path) for path in paths]}, indent=2))
        return
    _show(done)
    print(*paths, sep="\n")


def _show(done: Filtered) -> None:
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 120)
    for table in (_fates(done), _truth(done)):
        if table is not None:
            console.print(table)


def _fates(done: Filtered) -> Any:
    from prolip.evaluation import formatting

    summary = done.summary
    cut = f"the last {summary['by']} that is kept: {formatting.number(summary['cut'])}"
    table = formatting.table(
        f"{summary['data']} by {summary['by']}", ["what became of it"], ["samples", "%"], caption=cut
    )
    rows = [
        *summary["fates"].items(),
        *((f"bad: {reason}", count) for reason, count in summary["bad"].items()),
    ]
    total = sum(count for _, count in rows)
    for name, count in rows:
        table.add_row(name, f"{count:,}", formatting.percent(count / total if total else None))
    return table


def _truth(done: Filtered) -> Any:
    from prolip.evaluation import formatting

    truth = done.account.truth
    if truth is None:
        return None
    table = formatting.table(f"against {truth.column}", [""], ["here %", "at random %"])
    table.add_row(
        "precision", formatting.percent(truth.precision), formatting.percent(truth.chance_precision)
    )
    table.add_row("recall", formatting.percent(truth.recall), formatting.percent(truth.chance_recall))
    return table
