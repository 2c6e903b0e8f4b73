"""`prolip bench traverse`: traversal over captions on disk, by a scan and by candidates, against captions in memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.timing import in_turn
from prolip.embeddings.cache import Part
from prolip.embeddings.dataset import Embeddings, write_part
from prolip.embeddings.embed import embed
from prolip.embeddings.header import Header
from prolip.embeddings.sample_metadata import Facts
from prolip.embeddings.schema import table_of
from prolip.gaussian import Gaussian
from prolip.retrieval.candidates import Candidates
from prolip.retrieval.caption_tables import DatabaseTable, EmbeddingsTable
from prolip.retrieval.index.append import fill
from prolip.retrieval.index.build import USUAL, build
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.scan import Scan
from prolip.retrieval.traverse import Walks, traverse
from prolip.retrieval.traverse_ondisk import Search, traverse_table
from prolip.scenes.source import Scenes
from prolip.weights.load import load

SIZES = ((200_000, 64), (100_000, 512))
"""Captions and dimensions."""
IMAGES = (1, 16)
"""How many walk at a time."""
CLUSTERS, PART = 500, 4096
EFFORT = Effort(nprobes=80, refine=40)
"""Of an index that reaches no 95 % at any effort: a database would rather be scanned."""
BANDS = ((1, 16), (4, 16), (16, 1), (16, 4), (16, 16))
"""Bands of uncertainty and captions of each that are tried."""
ROOT_CAPTIONS, ROOT_IMAGES = 20_000, 64
WAYS = ("memory", "embeddings", "database", "candidates")


Maker = Callable[[Path, int], tuple[Embeddings, Gaussian]]
"""A new folder, and how many captions -> the captions, and images (N, D)."""


def run(*, scale: float = 1.0, repeats: int = 3) -> dict[str, Any]:
    """walks: seconds, a dict for each size and number of images. roots: how often candidates find the root of a scan,
    a dict for each kind of captions. scale: of the number of captions."""
    if not 0 < scale <= 10 or repeats < 1:
        raise ValueError(f"scale {scale} must be above 0 and at most 10, repeats {repeats} at least 1")
    walks, roots = [], []
    for captions, dim in SIZES:
        with TemporaryDirectory() as folder:
            walks += _compared(Path(folder), max(1000, round(scale * captions)), dim, repeats)
    few = max(1000, round(scale * ROOT_CAPTIONS))
    makers: dict[str, Maker] = {f"random, D {dim}": partial(_random, dim) for _, dim in SIZES}
    for name, make in {"scenes": _scenes, **makers}.items():
        with TemporaryDirectory() as folder:
            embeddings, images = make(Path(folder) / "embeddings", few)
            shares = _found_roots(Path(folder) / "database", embeddings, images)
            roots.append({"captions": name, "count": len(embeddings), "same_roots": shares})
    return {"walks": walks, "roots": roots}


def show(result: dict[str, Any]) -> None:
    """Two tables for people."""
    walks = Table(
        title=f"seconds, {torch.get_num_threads()} threads, medians; same: what candidates find as a look at all does",
        title_justify="left",
    )
    for heading in ("captions", "D", "images", *WAYS, "same roots", "same steps"):
        walks.add_column(heading, justify="right")
    for r in result["walks"]:
        seconds = (f"{r['seconds'][way]:.2f}" for way in WAYS)
        same = (f"{r[name]:.1%}" for name in ("same_roots", "same_steps"))
        walks.add_row(f"{r['captions']:,}", str(r["dimensions"]), str(r["images"]), *seconds, *same)
    roots = Table(
        title=f"roots by log inclusion of {ROOT_IMAGES} images that candidates find: bands x captions of each",
        title_justify="left",
    )
    for heading in ("captions", "", *(f"{bands} x {each}" for bands, each in BANDS)):
        roots.add_column(heading, justify="right")
    for r in result["roots"]:
        roots.add_row(r["captions"], f"{r['count']:,}", *(f"{share:.1%}" for share in r["same_roots"]))
    console = Console(width=None if Console().is_terminal else 120)
    console.print(walks)
    console.print(roots)


def drawn(captions: int, dim: int, images: int, seed: int = 0) -> tuple[Gaussian, Gaussian, Gaussian]:
    """Captions (M, D) of many widths about centres, images (N, D), narrower, about the same, and a null (1, D)."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(CLUSTERS, dim, generator=generator), dim=-1)

    def about(count: int, trace: float) -> Gaussian:
        own = torch.randint(CLUSTERS, (count,), generator=generator)
        noise = 0.7 * normalize(torch.randn(count, dim, generator=generator), dim=-1)
        width = torch.tensor(trace / dim).log() + 0.3 * torch.randn(count, 1, generator=generator)
        return Gaussian(
            normalize(centres[own] + noise, dim=-1),
            width + 0.5 * torch.randn(count, dim, generator=generator),
        )

    return about(captions, 0.3), about(images, 0.1), about(1, 1.0)


def write(folder: Path, captions: Gaussian) -> Embeddings:
    """Captions as `prolip embed` writes them; caption n is called "n"."""
    header = Header(
        model="bench", identity="0" * 16, dim=captions.dim, scale=None, bias=None, variances="full",
        precision="float32", what="texts", data="bench", captions=None, image=None, fingerprint="", part_size=PART,
        parts=-(-len(captions) // PART),
    )  # fmt: skip
    folder.mkdir()
    header.write(folder)
    for part in range(header.parts):
        numbers = list(range(part * PART, min((part + 1) * PART, len(captions))))
        facts = [Facts(str(number), (str(number),), {}) for number in numbers]
        rows = table_of(header, part, Part([], numbers, facts, [None] * len(numbers), {}), captions[numbers])
        write_part(folder, part, rows)
    return Embeddings.open(folder)


def _compared(folder: Path, captions: int, dim: int, repeats: int) -> list[dict[str, Any]]:
    texts, images, null = drawn(captions, dim, max(IMAGES))
    embeddings = write(folder / "embeddings", texts)
    database = fill(folder / "database", [embeddings])
    known = build(database, USUAL[0])
    table = DatabaseTable(database)
    searches: dict[str, Search] = {
        "embeddings": Scan(EmbeddingsTable(embeddings)),
        "database": Scan(table),
        "candidates": Candidates(table, known.effort or EFFORT, known.filtered or EFFORT),
    }
    wanted, found = traverse(images, texts, null), traverse_table(images, searches["candidates"], null)
    same = {
        "same_roots": _same(searches["candidates"], found.roots, wanted.roots),
        "same_steps": _same(searches["candidates"], found.visited, wanted.visited),
    }
    return [
        {"captions": captions, "dimensions": dim, "images": count, "tuned": known.effort is not None, **same}
        | {"seconds": _seconds(images[:count], texts, null, searches, repeats)}
        for count in IMAGES
    ]


def _seconds(
    images: Gaussian, texts: Gaussian, null: Gaussian, searches: dict[str, Search], repeats: int
) -> dict[str, float]:
    works: dict[str, Callable[[], Walks]] = {"memory": partial(traverse, images, texts, null)}
    works |= {name: partial(traverse_table, images, search, null) for name, search in searches.items()}
    return {name: statistics.median(times) for name, times in in_turn(works, repeats).items()}


def _scenes(folder: Path, count: int) -> tuple[Embeddings, Gaussian]:
    """About `count` captions of scenes, and the images of other scenes, by the model that ships."""
    data = f"scenes:simple,size=48,captions=4,length={count // 4}"
    others = Scenes("simple", length=ROOT_IMAGES, size=48, seed=1)
    images = [others.read(number).image for number in range(ROOT_IMAGES)]
    return embed("scenes-tiny", data, folder, what="texts"), load("scenes-tiny").eval().embed_images(images)


def _random(dim: int, folder: Path, count: int) -> tuple[Embeddings, Gaussian]:
    texts, images, _ = drawn(count, dim, ROOT_IMAGES)
    return write(folder, texts), images


def _found_roots(place: Path, embeddings: Embeddings, images: Gaussian) -> list[float]:
    """How often candidates find the text that a scan does, for each of BANDS; the database searches exactly."""
    database = fill(place, [embeddings])
    build(database, "none")
    table = DatabaseTable(database)
    wanted = table.at(Scan(table).most_inclusive(images)).texts
    shares = []
    for bands, each in BANDS:
        found = table.at(Candidates(table, EFFORT, EFFORT, bands, each).most_inclusive(images)).texts
        shares.append(statistics.mean(one == other for one, other in zip(found, wanted, strict=True)))
    return shares


def _same(search: Search, places: Tensor, numbers: Tensor) -> float:
    """The share of captions at these places that have these numbers."""
    texts = search.table.at(places.flatten()).texts
    return float((torch.tensor([int(text) for text in texts]) == numbers.flatten()).float().mean())
