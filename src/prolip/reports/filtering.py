"""HTML page of a filter run: histogram of scores, outcome of all samples, examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from prolip.console import format_number
from prolip.files import atomic_write, shorten_path
from prolip.filtering.criteria import CRITERIA, FilterScore
from prolip.filtering.examples import FilterExample, FilterExamples, find_examples
from prolip.filtering.filter import FilterResult
from prolip.filtering.selection import OUTCOME_NAMES, SampleOutcome
from prolip.filtering.summary import GroundTruthAgreement, Histogram
from prolip.reports import figures
from prolip.reports.originals import PLACEHOLDER, READ_ERRORS, OriginalImages
from prolip.reports.page.components import (
    Gallery,
    GalleryItem,
    HeadlineTile,
    PageFigure,
    PageHeader,
    PageSection,
    TableBlock,
)
from prolip.reports.page.formatting import NO_BREAK, format_percentage
from prolip.reports.page.html import embed_image, render_page
from prolip.reports.page.svg import render_panel

PAGE_FILE = "filter.html"
MAX_BARS = 60
TAIL_FRACTION = 0.001
"""Fraction of the scores at each end that the outermost bars hold: an outlier would squeeze all other bars."""
MAX_ERRORS = 200
"""Rows of the table of bad samples; errors.csv next to the embeddings has all."""

NoteFunction = Callable[[FilterExample], tuple[str, ...]]
"""Returns the notes below the image of an example."""


def save_filter_page(filtered: FilterResult, folder: Path) -> Path:
    """Write the page of a filter run (extra "report").

    Args:
        filtered: Result of `filter_pairs`.
        folder: Folder in which filter.html is written.

    Returns:
        The path of the page, which refers to no other file.
    """
    html = render_page(build_header(filtered), list(build_sections(filtered)))
    return atomic_write(folder / PAGE_FILE, lambda temporary: temporary.write_text(html, encoding="utf-8"))


def build_header(filtered: FilterResult) -> PageHeader:
    """Title, metadata and headline numbers of a filter run.

    Args:
        filtered: Result of `filter_pairs`.

    Returns:
        The header of the page.
    """
    summary, counts = filtered.summary, filtered.counts
    metadata = (
        ("data", summary.data),
        ("model", summary.model),
        ("ranked by", filtered.selection.criterion.description),
        ("fraction to keep", format_percentage(summary.keep_fraction)),
    )
    tiles = (
        HeadlineTile(label="Kept", value=f"{counts.kept:,}", description=f"of {counts.total:,} samples"),
        HeadlineTile(
            label="Threshold",
            value=format_number(summary.threshold),
            description=f"the last {filtered.selection.criterion.name} that is kept",
        ),
        *(() if counts.ground_truth is None else _build_truth_tiles(counts.ground_truth)),
    )
    percent = format_percentage(summary.keep_fraction)
    subtitle = f"The best {percent} of the pairs by {filtered.selection.criterion.name}"
    return PageHeader(
        title="Filter",
        subtitle=subtitle,
        metadata=metadata,
        tiles=tiles,
        notes=tuple(_describe_duplicate_search(filtered)),
    )


def build_sections(filtered: FilterResult) -> Iterator[PageSection]:
    """Sections of the page: scores, examples, duplicates, bad samples.

    Args:
        filtered: Result of `filter_pairs`.

    Returns:
        The sections, in order; those without content are omitted.
    """
    examples = find_examples(filtered.selection)
    images = OriginalImages(filtered.embeddings)
    yield _build_scores_section(filtered)
    make_notes = partial(
        _make_notes, criterion=filtered.selection.criterion, truth=filtered.counts.ground_truth
    )
    yield _build_examples_section(examples, images, make_notes)
    if examples.duplicates:
        yield _build_duplicates_section(examples, images, make_notes)
    if filtered.errors.bad:
        yield _build_errors_section(filtered)


def build_example(
    images: OriginalImages, example: FilterExample, notes: Sequence[str], number: int | None = None
) -> GalleryItem:
    """Build the gallery item of an example; its image is read here.

    Args:
        images: Images of the filtered data.
        example: The sample.
        notes: Lines below the image.
        number: Number on the image, which near-duplicates share; None: no number.

    Returns:
        The item, with the path or URL of the image, else the id. An image that can't be read is a gray square with a
        note on the reason.
    """
    row = example.row
    caption = row["caption"] or row["id"]
    location = row["url"] or row["id"] if row["path"] is None else shorten_path(row["path"])
    try:
        image, lines = images.read(row), tuple(notes)
    except READ_ERRORS as error:
        image, lines = PLACEHOLDER, (*notes, f"no image: {error}")
    return GalleryItem(
        image=embed_image(image, f"image of: {caption}"), captions=(caption,), notes=lines,
        location="" if location == caption else location, number=number,
    )  # fmt: skip


def draw_histogram(axes: Any, histogram: Histogram, threshold: float | None, score_name: str) -> None:
    """Draw stacked bars of kept and dropped samples, and the threshold.

    Args:
        axes: Matplotlib axes to draw on.
        histogram: Counts of kept and dropped samples by score.
        threshold: The last score that is kept; None: not drawn.
        score_name: Label of the horizontal axis.
    """
    edges, (kept, dropped) = rebin_histogram(histogram)
    widths = np.diff(edges)
    axes.bar(edges[:-1], kept, widths, align="edge", color=figures.BLUE, label="kept")
    axes.bar(edges[:-1], dropped, widths, align="edge", bottom=kept, color=figures.GRAY, label="dropped")
    if threshold is not None:
        axes.axvline(threshold, color=figures.ORANGE, linewidth=1.2, label="threshold")
    axes.set(xlabel=score_name, ylabel="samples")
    axes.legend()


def rebin_histogram(histogram: Histogram) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Merge the fine bins of a histogram for display.

    Args:
        histogram: Counts of kept and dropped samples.

    Returns:
        Edges (B + 1,), and counts (B,) of kept and of dropped samples, B at most MAX_BARS. The first and the last bar
        hold the tails.
    """
    cumulative = np.cumsum(histogram.kept + histogram.dropped)
    total = cumulative[-1]
    first_bin, last_bin = np.searchsorted(cumulative, [TAIL_FRACTION * total, (1 - TAIL_FRACTION) * total])
    bounds = np.unique(np.linspace(first_bin, last_bin + 1, MAX_BARS + 1).astype(int))
    inner = bounds[1:-1]  # split only there: the first and the last bar hold the bins beyond the bounds, too
    counts = (histogram.kept, histogram.dropped)
    kept, dropped = (np.array([bins.sum() for bins in np.split(count, inner)]) for count in counts)
    return histogram.edges[bounds], (kept, dropped)


def _build_truth_tiles(truth: GroundTruthAgreement) -> tuple[HeadlineTile, ...]:
    """Tiles of precision and recall against the true labels, each with that of a random selection."""
    return (
        HeadlineTile(
            label="Precision",
            value=format_percentage(truth.precision),
            description=f"of kept samples are matching pairs, by column {truth.column!r}",
            comparisons=(("random selection", format_percentage(truth.chance_precision)),),
        ),
        HeadlineTile(
            label="Recall",
            value=format_percentage(truth.recall),
            description="of matching pairs are kept",
            comparisons=(("random selection", format_percentage(truth.chance_recall)),),
        ),
    )


def _describe_duplicate_search(filtered: FilterResult) -> Iterator[str]:
    """Notes of the header: the fraction of near-duplicates that an approximate search finds; none if it was exact."""
    duplicates = filtered.selection.duplicates
    for compared, recall in ({} if duplicates is None else duplicates.recall).items():
        estimate = (
            "no near-duplicate was found in a random sample"
            if recall is None
            else f"{format_percentage(recall)} of near-duplicates are found"
        )
        yield f"Near-duplicate {compared} were searched within clusters of similar ones only: {estimate}."


def _build_scores_section(filtered: FilterResult) -> PageSection:
    """Section with the histogram of scores, if samples have scores, and the table of outcomes."""
    histogram, criterion = filtered.counts.histogram, filtered.selection.criterion
    table = TableBlock(
        title="Outcome of all samples",
        headings=("outcome", "samples", "fraction"),
        rows=tuple(_format_outcome_rows(filtered)),
    )
    if histogram is None:
        return PageSection(id="scores", title="Scores", blocks=(table,))
    svg = render_panel(
        partial(
            draw_histogram,
            histogram=histogram,
            threshold=filtered.summary.threshold,
            score_name=criterion.name,
        ),
        f"Histogram of {criterion.name}, with the threshold",
    )
    description = (
        f"{criterion.description[0].upper()}{criterion.description[1:]}. The outermost bars hold the tails."
    )
    description += (
        " Samples dropped on the kept side of the threshold are duplicates."
        if filtered.selection.duplicates
        else ""
    )
    figure = PageFigure(title=f"All pairs by {criterion.name}", description=description, svg=svg)
    return PageSection(id="scores", title="Scores", blocks=(figure, table))


def _format_outcome_rows(filtered: FilterResult) -> Iterator[tuple[str, str, str]]:
    """Rows of the table of outcomes, then of bad samples by reason: (outcome, number of samples, fraction of all)."""
    errors = filtered.errors
    rows = [
        (OUTCOME_NAMES[outcome], count)
        for outcome, count in filtered.counts.outcomes.items()
        if count or outcome is SampleOutcome.KEPT
    ]
    rows += [(f"bad: {reason}", count) for reason, count in errors.reasons.most_common()]
    total = filtered.counts.total + errors.bad
    for name, count in rows:
        yield name, f"{count:,}", format_percentage(count / total if total else None)


def _build_examples_section(
    examples: FilterExamples, images: OriginalImages, make_notes: NoteFunction
) -> PageSection:
    """Section with galleries of the best, just kept, just dropped and worst samples; images are read here."""
    shown = (
        ("Best", examples.best),
        ("Just kept", examples.just_kept),
        ("Just dropped", examples.just_dropped),
        ("Worst", examples.worst),
    )
    galleries = [
        Gallery(
            title=title,
            items=tuple(build_example(images, example, make_notes(example)) for example in samples),
        )
        for title, samples in shown
        if samples
    ]
    intro = "Each image is shown with its best matching caption and its scores."
    return PageSection(id="examples", title="Examples", intro=intro, blocks=galleries)


def _build_duplicates_section(
    examples: FilterExamples, images: OriginalImages, make_notes: NoteFunction
) -> PageSection:
    """Section with pairs of near-duplicates, the dropped sample before the one that is kept; images are read here."""
    items = tuple(
        build_example(images, example, (outcome, *make_notes(example)), number)
        for number, pair in enumerate(examples.duplicates, start=1)
        for outcome, example in zip(("dropped", "kept"), pair, strict=True)
    )
    intro = "Images with the same number are near-duplicates; the one with the better score is kept."
    gallery = Gallery(title="Dropped and kept near-duplicates", items=items)
    return PageSection(id="duplicates", title="Duplicates", intro=intro, blocks=(gallery,))


def _build_errors_section(filtered: FilterResult) -> PageSection:
    """Section with a table of the first `MAX_ERRORS` bad samples."""
    rows = tuple(
        (bad.reason, bad.location, bad.detail)
        for _, _, bad in islice(filtered.embeddings.iter_errors(), MAX_ERRORS)
    )
    num_omitted = filtered.errors.bad - len(rows)
    intro = "Samples that could not be read. They don't count in the fraction that is kept."
    intro += (
        f" The first {len(rows)} are listed; errors.csv next to the embeddings has {num_omitted:,} more."
        if num_omitted
        else ""
    )
    table = TableBlock(title="Bad samples", headings=("reason", "where", "detail"), rows=rows)
    return PageSection(id="bad", title="Bad samples", intro=intro, blocks=(table,))


def _make_notes(
    example: FilterExample, criterion: FilterScore, truth: GroundTruthAgreement | None
) -> tuple[str, ...]:
    """Notes below an example: the score of the criterion, CSD and cosine, and the true label if there is one."""
    # without repeats, if the criterion is csd or cosine
    names = dict.fromkeys([criterion.name, "csd", "cosine"])
    columns = {score.name: score.column for score in CRITERIA}
    values = ((name, example.row[columns[name]]) for name in names)
    scores = [f"{name}{NO_BREAK}{value:.4g}" for name, value in values if value is not None]
    return (*scores, *(() if truth is None else (f"{truth.column}: {example.row[truth.column]}",)))
