"""The page of a filter: how scores lie about the cut, what was dropped and why, and examples to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip.evaluation.formatting import number
from prolip.files import write_whole
from prolip.filtering.criteria import CRITERIA, Criterion
from prolip.filtering.examples import Example, Examples, find_examples
from prolip.filtering.filter import Filtered
from prolip.filtering.selection import WORDS, Fate
from prolip.filtering.summary import Histogram, Truth
from prolip.reports import figures
from prolip.reports.originals import MISSING, REASONS, Originals
from prolip.reports.page.components import Cell, Figure, Gallery, Grid, Header, Picture, Section, Tile
from prolip.reports.page.pictures import inline
from prolip.reports.page.render import render
from prolip.reports.page.svg import panel
from prolip.reports.page.words import NO_BREAK, percent

NAME = "filter.html"
BARS = 60
OUTSIDE = 0.001
"""Share of the scores at each end that the outermost bars hold: a single stray score would squeeze all others."""
MOST_BAD = 200
"""Rows of bad samples; bad.csv beside the embeddings has all."""

Notes = Callable[[Example], tuple[str, ...]]
"""What stands under the picture of an example."""


def save(filtered: Filtered, folder: Path) -> Path:
    """Write `folder`/filter.html: one file that needs no other."""
    text = render(header(filtered), list(sections(filtered)))
    return write_whole(folder / NAME, lambda aside: aside.write_text(text, encoding="utf-8"))


def header(filtered: Filtered) -> Header:
    told, account = filtered.summary, filtered.account
    facts = (
        ("data", told["data"]),
        ("model", told["model"]),
        ("by", filtered.selection.criterion.says),
        ("asked to keep", percent(told["keep"])),
    )
    tiles = (
        Tile(name="Kept", value=f"{account.kept:,}", meaning=f"of {account.total:,} samples"),
        Tile(
            name="Cut",
            value=number(told["cut"]),
            meaning=f"the last {filtered.selection.criterion.name} that is kept",
        ),
        *(() if account.truth is None else _truth_tiles(account.truth)),
    )
    line = f"The best {percent(told['keep'])} of the pairs by {filtered.selection.criterion.name}"
    return Header(title="Filter", line=line, facts=facts, tiles=tiles, notes=tuple(_notes(filtered)))


def sections(filtered: Filtered) -> Iterator[Section]:
    examples = find_examples(filtered.selection)
    pictures = Originals(filtered.embeddings)
    yield _scores(filtered)
    notes = partial(_told, judge=filtered.selection.criterion, truth=filtered.account.truth)
    yield _examples(examples, pictures, notes)
    if examples.duplicates:
        yield _duplicates(examples, pictures, notes)
    if filtered.bads.bad:
        yield _bads(filtered)


def picture_cell(
    pictures: Originals, example: Example, notes: Sequence[str], place: int | None = None
) -> Cell:
    """A picture that can't be read is grey, with a note that says why."""
    caption = example.row["caption"] or example.row["id"]
    try:
        picture, told = pictures.read(example.row), tuple(notes)
    except REASONS as error:
        picture, told = MISSING, (*notes, f"no picture: {error}")
    return Cell(picture=_inline(picture, caption), captions=(caption,), notes=told, number=place)


def draw_histogram(axes: Any, histogram: Histogram, cut: float | None, name: str) -> None:
    """Bars of what is kept on bars of what is dropped, and the cut."""
    edges, (kept, dropped) = coarse(histogram)
    wide = np.diff(edges)
    axes.bar(edges[:-1], kept, wide, align="edge", color=figures.FIRST, label="kept")
    axes.bar(edges[:-1], dropped, wide, align="edge", bottom=kept, color=figures.MUTED, label="dropped")
    if cut is not None:
        axes.axvline(cut, color=figures.SECOND, linewidth=1.2, label="cut")
    axes.set(xlabel=name, ylabel="samples")
    axes.legend()


def coarse(histogram: Histogram) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """At most BARS bars over all but the outermost scores, which are counted in the first and the last bar."""
    below = np.cumsum(histogram.kept + histogram.dropped)
    low, high = np.searchsorted(below, [OUTSIDE * below[-1], (1 - OUTSIDE) * below[-1]])
    bounds = np.unique(np.linspace(low, high + 1, BARS + 1).astype(int))
    inner = bounds[1:-1]
    counts = (histogram.kept, histogram.dropped)
    kept, dropped = (np.array([part.sum() for part in np.split(count, inner)]) for count in counts)
    return histogram.edges[bounds], (kept, dropped)


def _truth_tiles(truth: Truth) -> tuple[Tile, ...]:
    return (
        Tile(
            name="Precision",
            value=percent(truth.precision),
            meaning=f"of what is kept is right, by its {truth.column!r}",
            beside=(("at random", percent(truth.chance_precision)),),
        ),
        Tile(
            name="Recall",
            value=percent(truth.recall),
            meaning="of what is right is kept",
            beside=(("at random", percent(truth.chance_recall)),),
        ),
    )


def _notes(filtered: Filtered) -> Iterator[str]:
    twins = filtered.selection.twins
    for what, recall in ({} if twins is None else twins.recall).items():
        found = (
            "no two of a sample were alike"
            if recall is None
            else f"{percent(recall)} of alike pairs are seen"
        )
        yield f"Near-duplicate {what} were sought among neighbours only: {found}."


def _scores(filtered: Filtered) -> Section:
    histogram, judge = filtered.account.histogram, filtered.selection.criterion
    grid = Grid(
        title="What became of all samples",
        headings=("", "samples", "share"),
        rows=tuple(_fates(filtered)),
    )
    if histogram is None:
        return Section(id="scores", title="Scores", blocks=(grid,))
    svg = panel(
        partial(draw_histogram, histogram=histogram, cut=filtered.summary["cut"], name=judge.name),
        f"Histogram of {judge.name}, with the cut",
    )
    says = f"{judge.says[0].upper()}{judge.says[1:]}. The outermost bars hold what lies beyond."
    says += " What is dropped on the good side of the cut are duplicates." if filtered.selection.twins else ""
    figure = Figure(title=f"All pairs by {judge.name}", says=says, svg=svg)
    return Section(id="scores", title="Scores", blocks=(figure, grid))


def _fates(filtered: Filtered) -> Iterator[tuple[str, str, str]]:
    bads = filtered.bads
    rows = [
        (WORDS[fate], count) for fate, count in filtered.account.fates.items() if count or fate is Fate.KEPT
    ]
    rows += [(f"bad: {reason}", count) for reason, count in bads.reasons.most_common()]
    total = filtered.account.total + bads.bad
    for name, count in rows:
        yield name, f"{count:,}", percent(count / total if total else None)


def _examples(examples: Examples, pictures: Originals, notes: Notes) -> Section:
    shown = (
        ("The best", examples.best),
        ("Just kept", examples.just_kept),
        ("Just dropped", examples.just_dropped),
        ("The worst", examples.worst),
    )
    galleries = [
        Gallery(title=title, cells=tuple(picture_cell(pictures, one, notes(one)) for one in some))
        for title, some in shown
        if some
    ]
    intro = "Each picture stands with the caption that fits it best, and with its scores."
    return Section(id="examples", title="Examples", intro=intro, blocks=galleries)


def _duplicates(examples: Examples, pictures: Originals, notes: Notes) -> Section:
    cells = tuple(
        picture_cell(pictures, one, (what, *notes(one)), place)
        for place, pair in enumerate(examples.duplicates, start=1)
        for what, one in zip(("went", "stays"), pair, strict=True)
    )
    intro = "Two with the same number are alike; the one with the better score stays."
    gallery = Gallery(title="What went, and what it is alike to", cells=cells)
    return Section(id="duplicates", title="Duplicates", intro=intro, blocks=(gallery,))


def _bads(filtered: Filtered) -> Section:
    rows = tuple(
        (bad.reason, bad.where, bad.detail) for _, _, bad in islice(filtered.embeddings.bads(), MOST_BAD)
    )
    more = filtered.bads.bad - len(rows)
    intro = "Samples that could not be used. They are not counted in the share that is kept."
    intro += f" The first {len(rows)}; {more:,} more are in bad.csv beside the embeddings." if more else ""
    grid = Grid(title="Bad samples", headings=("reason", "where", "detail"), rows=rows)
    return Section(id="bad", title="Bad samples", intro=intro, blocks=(grid,))


def _told(example: Example, judge: Criterion, truth: Truth | None) -> tuple[str, ...]:
    """The score that counts, then CSD and cosine where they are others; and the truth, if it is known."""
    names = dict.fromkeys([judge.name, "csd", "cosine"])
    columns = {one.name: one.column for one in CRITERIA}
    values = ((name, example.row[columns[name]]) for name in names)
    scores = [f"{name}{NO_BREAK}{value:.4g}" for name, value in values if value is not None]
    return (*scores, *(() if truth is None else (f"{truth.column}: {example.row[truth.column]}",)))


def _inline(picture: Image.Image, caption: str) -> Picture:
    return inline(picture, f"picture of: {caption}")
