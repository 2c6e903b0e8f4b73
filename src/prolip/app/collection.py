"""The tab Collection: which items of a database are vague, wrong or duplicates, and the export of a selection."""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from prolip.app.inputs import InputError
from prolip.app.workspace import ModelWorkspace
from prolip.choices import DuplicateKind, FilterCriterion
from prolip.files import escape_formula
from prolip.filtering.config import FilterConfig
from prolip.filtering.criteria import get_criterion
from prolip.filtering.datacomp_ids import write_datacomp_ids
from prolip.filtering.filter import filter_pairs
from prolip.filtering.selection import OUTCOME_NAMES, SampleOutcome, Selection

NUM_LISTED = 8
"""Items of each list."""
ITEM_COLUMNS = (
    "id", "caption", "path", "url", "image_uncertainty", "text_uncertainty", "csd", "cosine",
)  # fmt: skip
Choice = Literal["kept", "below", "duplicates"]
"""Which samples are exported."""
ExportFormat = Literal["csv", "ids", "datacomp"]
"""csv: a table. ids: one id per line. datacomp: the uids of the kept samples, as DataComp's .npy."""
CRITERIA: tuple[FilterCriterion, ...] = (
    "csd",
    "cosine",
    "image-uncertainty",
    "text-uncertainty",
    "inclusion",
)
"""What pairs can be ranked by: the criteria that need no pool."""
OUTCOME_BY_CHOICE = {
    "kept": SampleOutcome.KEPT,
    "below": SampleOutcome.BELOW_THRESHOLD,
    "duplicates": SampleOutcome.DUPLICATE,
}
EXPORT_COLUMNS = ("id", "index", *ITEM_COLUMNS[1:], "outcome")


@dataclass(frozen=True, kw_only=True)
class CollectionRequest:
    """Which pairs of a collection to keep."""

    rank_by: FilterCriterion = "cosine"
    """What ranks pairs of image and caption."""
    keep_fraction: float = 0.9
    """Fraction of the samples that is kept."""
    duplicates: DuplicateKind | None = "images"
    """What near-duplicates are similar in; None: they are not searched."""


@dataclass(frozen=True, kw_only=True)
class CollectionItem:
    """A sample of the collection: an image with the best of its captions."""

    id: str
    """Its key."""
    index: int
    """Its index in the data."""
    caption: str | None
    """The caption."""
    path: str | None
    """The file of the image, if it has one."""
    image_uncertainty: float | None
    """Trace of the covariance of the image."""
    text_uncertainty: float | None
    """Trace of the covariance of the caption."""
    value: float | None
    """Value by the criterion."""


@dataclass(frozen=True, kw_only=True)
class CollectionResult:
    """What a collection holds."""

    samples: int
    """Number of samples."""
    rank_by: FilterCriterion
    """What ranked them."""
    outcomes: dict[str, int]
    """Number of samples by outcome."""
    threshold: float | None
    """Value of the worst kept sample by the criterion."""
    uncertainty_quantiles: dict[str, tuple[float, ...]]
    """By modality, 1000 quantiles of the uncertainty, as the database has them."""
    certain_images: tuple[CollectionItem, ...]
    """The least uncertain images, the least uncertain first."""
    uncertain_images: tuple[CollectionItem, ...]
    """The most uncertain images, the most uncertain first."""
    certain_captions: tuple[CollectionItem, ...]
    """The least uncertain captions."""
    uncertain_captions: tuple[CollectionItem, ...]
    """The most uncertain captions."""
    mismatched: tuple[CollectionItem, ...]
    """Pairs with the worst score by the criterion, the worst first."""
    duplicates: tuple[tuple[CollectionItem, CollectionItem], ...]
    """Near-duplicates, each with the better sample that it duplicates."""


def inspect_collection(workspace: ModelWorkspace, request: CollectionRequest) -> CollectionResult:
    """Filter a collection, and list what stands out in it.

    Args:
        workspace: The database.
        request: Which pairs to keep.

    Returns:
        Counts, distributions and lists.

    Raises:
        InputError: There is no database, or its embeddings are gone.
        ValueError: The criterion doesn't fit the data.
    """
    with workspace.filter_lock:
        selection, outcomes, threshold = _select(workspace, request)
        lists = _Lists(selection)
        lists.read()
        duplicates = lists.find_duplicates()
    quantiles = workspace.require_database().settings.quantiles
    return CollectionResult(
        samples=sum(outcomes.values()),
        rank_by=request.rank_by,
        outcomes=outcomes,
        threshold=threshold,
        uncertainty_quantiles={name: tuple(values) for name, values in quantiles.items()},
        certain_images=lists.best("image_uncertainty", -1),
        uncertain_images=lists.best("image_uncertainty", 1),
        certain_captions=lists.best("text_uncertainty", -1),
        uncertain_captions=lists.best("text_uncertainty", 1),
        mismatched=lists.best("value", -get_criterion(request.rank_by).sign),
        duplicates=duplicates,
    )


def export_selection(
    workspace: ModelWorkspace, request: CollectionRequest, choice: Choice, kind: ExportFormat
) -> tuple[str, bytes]:
    """Export the kept samples of a collection, or those that were dropped.

    Args:
        workspace: The database.
        request: Which pairs to keep.
        choice: Which of them to export.
        kind: Format of the file.

    Returns:
        The name of the file, and its content.

    Raises:
        InputError: As `inspect_collection`; or DataComp's format is asked for samples that are not kept.
        ValueError: The samples have no uids for DataComp's format.
    """
    if kind == "datacomp" and choice != "kept":
        raise InputError(
            "DataComp's format is for the samples that are kept. Choose them, or another format."
        )
    with workspace.filter_lock:
        selection, _, _ = _select(workspace, request)
        if kind == "datacomp":
            path = write_datacomp_ids(workspace.folder / "ids.npy", selection)
            return "ids.npy", path.read_bytes()
        rows = _iter_rows(selection, OUTCOME_BY_CHOICE[choice])
        if kind == "ids":
            return f"{choice}.txt", "".join(f"{row['id']}\n" for row in rows).encode()
        return f"{choice}.csv", _write_csv(rows)


def _select(
    workspace: ModelWorkspace, request: CollectionRequest
) -> tuple[Selection, dict[str, int], float | None]:
    """Filter the pairs of a workspace: the selection, its counts, and the threshold."""
    config = FilterConfig(
        keep_fraction=request.keep_fraction,
        rank_by=request.rank_by,
        duplicates=request.duplicates,
        outputs=("parquet",),
        progress=False,
    )
    result = filter_pairs(workspace.open_embeddings(), workspace.folder / "filter", config)
    return result.selection, result.counts.name_outcomes(), result.summary.threshold


class _Lists:
    """The items of a selection that stand out, found in one pass that keeps only as many as are shown."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._column = selection.criterion.column
        self._heaps: dict[tuple[str, int], list[tuple[float, int, dict[str, Any]]]] = {
            (name, sign): []
            for name in ("image_uncertainty", "text_uncertainty", "value")
            for sign in (1, -1)
        }

    def read(self) -> None:
        """Read all samples once."""
        for part in self._selection.iter_parts(ITEM_COLUMNS):
            for row in part.rows.to_pylist():
                row["value"] = row[self._column]
                for (name, sign), heap in self._heaps.items():
                    if row[name] is not None:
                        entry = (sign * row[name], -row["index"], row)
                        (heapq.heappush if len(heap) < NUM_LISTED else heapq.heappushpop)(heap, entry)

    def best(self, name: str, sign: int) -> tuple[CollectionItem, ...]:
        """The items with the largest (sign 1) or smallest (-1) values of a column, the most extreme first."""
        entries = sorted(self._heaps[name, sign], key=lambda entry: entry[:2], reverse=True)
        return tuple(_make_item(row) for _, _, row in entries)

    def find_duplicates(self) -> tuple[tuple[CollectionItem, CollectionItem], ...]:
        """The dropped near-duplicates with the best ranks, each with the sample that it duplicates."""
        if self._selection.duplicates is None:
            return ()
        pairs = self._selection.duplicates.list_pairs(NUM_LISTED)
        wanted = {place for pair in pairs for place in pair}
        items: dict[tuple[int, int], CollectionItem] = {}
        for part in self._selection.iter_parts(ITEM_COLUMNS if wanted else ()):
            indices = {index for number, index in wanted if number == part.part}
            for row in part.rows.to_pylist() if indices else ():
                if row["index"] in indices:
                    items[part.part, row["index"]] = _make_item(row | {"value": row[self._column]})
        return tuple((items[first], items[second]) for first, second in pairs)


def _make_item(row: dict[str, Any]) -> CollectionItem:
    """An item from a row of the scores."""
    names = ("id", "index", "caption", "path", "image_uncertainty", "text_uncertainty", "value")
    return CollectionItem(**{name: row[name] for name in names})


def _iter_rows(selection: Selection, outcome: SampleOutcome) -> Iterator[dict[str, Any]]:
    """Rows of the samples with an outcome, in the order of the data."""
    for part in selection.iter_parts(ITEM_COLUMNS):
        for row, value in zip(part.rows.to_pylist(), part.outcome.tolist(), strict=True):
            if value == outcome:
                yield row | {"outcome": OUTCOME_NAMES[outcome]}


def _write_csv(rows: Iterator[dict[str, Any]]) -> bytes:
    """A CSV table of rows; no cell is a formula for a spreadsheet."""
    text = io.StringIO()
    writer = csv.DictWriter(text, EXPORT_COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: escape_formula(value) if isinstance(value, str) else value for name, value in row.items()}
        )
    return text.getvalue().encode()
