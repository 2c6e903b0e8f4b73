"""Traversal for people: pictures and captions in, ways from the specific to the general out."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prolip.data.hierarcaps import ARROW
from prolip.embed.encode import encode_texts
from prolip.gaussian import Gaussian
from prolip.inputs.images import ImageSource
from prolip.model.embedding import several
from prolip.model.prolip import ProLIP
from prolip.nearest import Score, similarity
from prolip.search.traverse import Of, Root, Walks, traverse

COLUMNS = ("caption", "captions", "text")
"""Of a table of captions; the first that is there counts."""


@dataclass(frozen=True)
class Step:
    """One caption on the way. uncertainty: None if the model has none. similarity: of the picture to the caption, by
    what was ranked by (csd: 1 - CSD / 2)."""

    caption: str
    uncertainty: float | None
    similarity: float


@dataclass(frozen=True)
class Way:
    """The way of one picture. steps: from the nearest caption on, towards the root. root: the caption that includes the
    query (the picture, or its nearest caption) most; None with the null root. towards: which root was sought.
    uncertainty: of the picture."""

    steps: tuple[Step, ...]
    root: Step | None
    towards: Root
    uncertainty: float | None

    @property
    def remark(self) -> str:
        """What a reader should know of this way."""
        told = "similarity: of the picture to the caption"
        if self.towards.endswith("+null"):
            told += '; the way leads to the mean of the root\'s caption and of ""'
        known = [step.uncertainty for step in self.steps if step.uncertainty is not None]
        if known and known[-1] < known[0]:
            told += "; uncertainty falls on this way: what comes last is no more general for this model"
        return told


def ways(
    model: ProLIP,
    images: ImageSource | Sequence[ImageSource],
    captions: Sequence[str],
    *,
    root: Root | None = None,
    of: Of = "image",
    by: Score = "csd",
    steps: int = 50,
    cache: Path | None = None,
) -> list[Way]:
    """For each picture the captions from its nearest one to its root.

    captions: equal ones count once. root: None: "inclusion+null", or "null" if the model has no uncertainty.
    cache: a folder in which the captions' embeddings are kept.
    """
    different = list(dict.fromkeys(captions))
    if not different:
        raise ValueError("there is no caption to walk over")
    pictures = model.embed_images(several(images))
    texts = encode_texts(model, [*different, ""], cache=cache)
    known, null = texts[:-1], texts[len(different) :]
    chosen: Root = root or ("inclusion+null" if bool(known.uncertainty.any()) else "null")
    walks = traverse(pictures, known, null, root=chosen, of=of, by=by, steps=steps)
    return [_way(row, walks, pictures, known, different, by, chosen) for row in range(len(pictures))]


def read_captions(path: str | Path) -> list[str]:
    """Captions of a file: a line each (.txt), a list (.json), or a column of a table (.csv, .tsv) called caption,
    captions or text. A cell with => holds several, as HierarCaps has them."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of captions")
    try:
        found = _texts(path)
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from None
    stripped = (part.strip() for text in found for part in text.split(ARROW))
    captions = list(dict.fromkeys(text for text in stripped if text))
    if not captions:
        raise ValueError(f"{path} has no caption")
    return captions


def show(name: str, way: Way) -> None:
    """A way for people, from the nearest caption on."""
    from rich.console import Console
    from rich.table import Table

    title = name if way.uncertainty is None else f"{name}: uncertainty {way.uncertainty:.4g}"
    table = Table(title=title, title_justify="left", caption=way.remark, caption_justify="left")
    for heading in ("", "caption", "uncertainty", "similarity"):
        table.add_column(heading, justify="left" if heading == "caption" else "right", overflow="fold")
    for number, step in enumerate(way.steps, start=1):
        table.add_row(str(number), *_cells(step), end_section=number == len(way.steps))
    if way.root is not None:
        table.add_row("root", *_cells(way.root))
    Console(width=None if Console().is_terminal else 120).print(table, markup=False)


def _cells(step: Step) -> tuple[str, str, str]:
    told = "-" if step.uncertainty is None else f"{step.uncertainty:.4g}"
    return step.caption, told, f"{step.similarity:.4f}"


def _texts(path: Path) -> list[str]:
    text, ending = path.read_text(encoding="utf-8-sig"), path.suffix.lower()
    if ending == ".json":
        content = json.loads(text)
        if not isinstance(content, list) or not all(isinstance(one, str) for one in content):
            raise ValueError(f"{path} must hold a list of texts")
        return content
    if ending not in (".csv", ".tsv"):
        return text.splitlines()
    rows = csv.DictReader(text.splitlines(keepends=True), delimiter="\t" if ending == ".tsv" else ",")
    column = next((name for name in COLUMNS if name in (rows.fieldnames or ())), None)
    if column is None:
        raise ValueError(f"{path} has no column {', '.join(COLUMNS)}; it has {rows.fieldnames}")
    return [row[column] or "" for row in rows]


def _way(
    row: int,
    walks: Walks,
    images: Gaussian,
    known: Gaussian,
    captions: Sequence[str],
    by: Score,
    towards: Root,
) -> Way:
    path, root = walks.path(row), int(walks.roots[row])
    near = similarity(images[row : row + 1], known[[*path, max(root, 0)]], by)[0]
    uncertain = bool(known.uncertainty.any())
    steps = [
        Step(captions[place], float(known.uncertainty[place]) if uncertain else None, float(near[number]))
        for number, place in enumerate([*path, max(root, 0)])
    ]
    return Way(
        steps=tuple(steps[:-1]),
        root=None if root < 0 else steps[-1],
        towards=towards,
        uncertainty=float(images.uncertainty[row]) if uncertain else None,
    )
