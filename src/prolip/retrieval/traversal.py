"""Traversal for people: pictures and captions in, ways from the specific to the general out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from prolip.data.sources.captions import all_captions, open_captions
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embedder import encode_texts
from prolip.embeddings.header import is_embeddings
from prolip.embeddings.identity import model_identity
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.nearest import Score
from prolip.model.inference import several
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImageSource
from prolip.retrieval.candidates import Candidates
from prolip.retrieval.caption_tables import Captions, CaptionTable, DatabaseTable, EmbeddingsTable
from prolip.retrieval.index.database import Database, exists
from prolip.retrieval.scan import Scan
from prolip.retrieval.traverse import Of, Root, Walks, traverse
from prolip.retrieval.traverse_ondisk import Search, traverse_table


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
    captions: Sequence[str] | Search,
    *,
    root: Root | None = None,
    of: Of = "image",
    by: Score = "csd",
    steps: int = 50,
    cache: Path | None = None,
) -> list[Way]:
    """For each picture the captions from its nearest one to its root.

    captions: texts, of which equal ones count once; or embeddings on disk, as `captions_at` gives them.
    root:     None: "inclusion+null", or "null" if the model has no uncertainty.
    cache:    a folder in which the texts' embeddings are kept.
    """
    if not isinstance(captions, Sequence):
        require_model(model, captions.table)
    elif not captions:
        raise ValueError("there is no caption to walk over")
    pictures, null = model.embed_images(several(images)), model.embed_texts("")
    chosen: Root = root or ("inclusion+null" if bool(null.uncertainty.any()) else "null")
    if isinstance(captions, Sequence):
        texts = tuple(dict.fromkeys(captions))
        z = encode_texts(model, texts, cache=cache)
        walks = traverse(pictures, z, null, root=chosen, of=of, by=by, steps=steps)
        known = Captions(texts, z.mean_trace(), z.log_var)
    else:
        walks = traverse_table(pictures, captions, null, root=chosen, of=of, by=by, steps=steps)
        walks, known = _looked_up(walks, captions.table)
    return [_way(row, walks, pictures, known, by, chosen) for row in range(len(pictures))]


def captions_at(path: str | Path, *, scan: bool = False) -> list[str] | Search:
    """Captions to walk over: of a file (`read_captions`), of a folder of embeddings, or of a database.

    scan: look at all captions of a database, instead of those that its index finds. Without an index that is done
    anyway: it is quicker than an exact search for each step.
    """
    if is_embeddings(path):
        return Scan(EmbeddingsTable(Embeddings.open(path)))
    if exists(path):
        database = Database.open(path)
        table, known = DatabaseTable(database), database.settings
        if scan or database.kind == "none" or known.effort is None or known.filtered is None:
            return Scan(table)
        return Candidates(table, known.effort, known.filtered)
    return read_captions(path)


def read_captions(path: str | Path) -> list[str]:
    """All captions of a file, each once; which files: see `prolip.data.sources.captions.open_captions`."""
    return list(dict.fromkeys(all_captions(open_captions(path))))


def require_model(model: ProLIP, table: CaptionTable) -> None:
    """An error if the captions were embedded by another model."""
    identity, header = model_identity(model), table.header
    if identity != header.identity:
        raise ValueError(
            f"{table.name} holds embeddings of {header.model} ({header.identity}), and this model is another one "
            f"({identity}): embeddings of two models can't be compared"
        )


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
    console = Console(width=None if Console().is_terminal else 120, markup=False, emoji=False)
    console.print(table)  # captions may hold brackets


def _cells(step: Step) -> tuple[str, str, str]:
    told = "-" if step.uncertainty is None else f"{step.uncertainty:.4g}"
    return step.caption, told, f"{step.similarity:.4f}"


def _looked_up(walks: Walks, table: CaptionTable) -> tuple[Walks, Captions]:
    """The captions of all walks, and the walks with their numbers among them instead of places in the table."""
    places = torch.cat([walks.start, walks.roots[walks.roots >= 0], walks.visited.flatten()]).unique()
    start, visited, roots = (
        torch.searchsorted(places, some.contiguous()) for some in (walks.start, walks.visited, walks.roots)
    )
    roots = torch.where(walks.roots >= 0, roots, -1)
    return replace(walks, start=start, roots=roots, visited=visited), table.at(places)


def _way(row: int, walks: Walks, images: Gaussian, known: Captions, by: Score, towards: Root) -> Way:
    # a table may hold a text many times: which of its rows is nearest is then a matter of rounding
    path = [next(same) for _, same in groupby(walks.path(row), lambda place: known.texts[place])]
    root, told = int(walks.roots[row]), [*path, max(int(walks.roots[row]), 0)]
    near = _similarity(images[row], MeanTrace(known.z.mean[told], known.z.uncertainty[told]), by)
    uncertain = bool(known.z.uncertainty.any())
    steps = [
        Step(
            known.texts[place], float(known.z.uncertainty[place]) if uncertain else None, float(near[number])
        )
        for number, place in enumerate(told)
    ]
    return Way(
        steps=tuple(steps[:-1]),
        root=None if root < 0 else steps[-1],
        towards=towards,
        uncertainty=float(images.uncertainty[row]) if uncertain else None,
    )


def _similarity(image: Gaussian, captions: MeanTrace, by: Score) -> Tensor:
    """Of a picture (D,) to captions (n, D): 1 - CSD / 2, or the cosine: (n,)."""
    if by == "cosine":
        return cosine_similarity(captions.mean, image.mean, dim=-1)
    distance = (captions.mean - image.mean).square().sum(-1)
    return 1 - 0.5 * (distance + captions.uncertainty + image.uncertainty)
