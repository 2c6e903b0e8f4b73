"""Benchmark of traversal: captions on disk (exact and by candidates) against captions in memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.timing import time_interleaved
from prolip.console import make_table, print_tables
from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.embed import embed
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.embeddings.schema import make_part_table
from prolip.gaussian import Gaussian
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import DEFAULT_KINDS, build_index
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.traversal.candidates import CandidateSearch
from prolip.retrieval.traversal.captions import DatabaseCaptions, EmbeddedCaptions
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.traverse import CaptionSearch, Traversals, traverse
from prolip.scenes.source import Scenes
from prolip.weights.load import load

SIZES = ((200_000, 64), (100_000, 512))
"""Captions and dimensions."""
IMAGES = (1, 16)
"""Number of images per traversal."""
CLUSTERS, PART = 500, 4096
EFFORT = SearchEffort(nprobes=80, refine=40)
"""Used for an index that reaches no recall of 95 % at any effort (a database is then searched exactly)."""
BANDS = ((1, 16), (4, 16), (16, 1), (16, 4), (16, 16))
"""Numbers of uncertainty bands, and of candidate captions per band, that are compared."""
ROOT_CAPTIONS, ROOT_IMAGES = 20_000, 64
METHODS = ("memory", "embeddings", "database", "candidates")


Maker = Callable[[Path, int], tuple[EmbeddingDataset, Gaussian]]
"""(new folder, number of captions) -> the captions, and images (N, D)."""


def run(*, scale: float = 1.0, repeats: int = 3) -> dict[str, Any]:
    """Time traversal by each method, and compare the roots found by candidates with those of the exact search.

    Args:
        scale: Factor of the numbers of captions (SIZES, ROOT_CAPTIONS).
        repeats: Interleaved runs of each method.

    Returns:
        traversals: one dict per size and number of images. roots: one dict per kind of captions, whose same_roots are
        the fractions of images with the exact root, for each of BANDS.
    """
    if not 0 < scale <= 10 or repeats < 1:
        raise ValueError(f"scale {scale} must be above 0 and at most 10, repeats {repeats} at least 1")
    traversals, roots = [], []
    for captions, dim in SIZES:
        with TemporaryDirectory() as folder:
            traversals += _compare_methods(Path(folder), max(1000, round(scale * captions)), dim, repeats)
    count = max(1000, round(scale * ROOT_CAPTIONS))
    makers: dict[str, Maker] = {f"random, D {dim}": partial(_embed_random, dim) for _, dim in SIZES}
    for name, make in {"scenes": _embed_scenes, **makers}.items():
        with TemporaryDirectory() as folder:
            embeddings, images = make(Path(folder) / "embeddings", count)
            fractions = _compare_roots(Path(folder) / "database", embeddings, images)
            roots.append({"captions": name, "count": len(embeddings), "same_roots": fractions})
    return {"traversals": traversals, "roots": roots}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as two tables."""
    traversals = make_table(
        f"seconds, {torch.get_num_threads()} threads, medians; same: fraction that candidates find as the exact search",
        (),
        ("captions", "D", "images", *METHODS, "same roots", "same steps"),
    )
    for r in result["traversals"]:
        seconds = (f"{r['seconds'][method]:.2f}" for method in METHODS)
        same = (f"{r[name]:.1%}" for name in ("same_roots", "same_steps"))
        traversals.add_row(f"{r['captions']:,}", str(r["dimensions"]), str(r["images"]), *seconds, *same)
    roots = make_table(
        f"roots by log inclusion of {ROOT_IMAGES} images that candidates find: bands x captions of each",
        ("captions",),
        ("", *(f"{bands} x {each}" for bands, each in BANDS)),
        [
            (r["captions"], f"{r['count']:,}", *(f"{fraction:.1%}" for fraction in r["same_roots"]))
            for r in result["roots"]
        ],
    )
    print_tables([traversals, roots])


def draw_gaussians(
    captions: int, dim: int, images: int, seed: int = 0
) -> tuple[Gaussian, Gaussian, Gaussian]:
    """Draw captions, images and the empty caption around common centers.

    Returns:
        Captions (M, D) of many uncertainties, images (N, D) of smaller ones, and the empty caption (1, D).
    """
    generator = torch.Generator().manual_seed(seed)
    centers = normalize(torch.randn(CLUSTERS, dim, generator=generator), dim=-1)

    def draw(count: int, trace: float) -> Gaussian:
        cluster = torch.randint(CLUSTERS, (count,), generator=generator)
        noise = 0.7 * normalize(torch.randn(count, dim, generator=generator), dim=-1)
        log_var = torch.tensor(trace / dim).log() + 0.3 * torch.randn(count, 1, generator=generator)
        return Gaussian(
            normalize(centers[cluster] + noise, dim=-1),
            log_var + 0.5 * torch.randn(count, dim, generator=generator),
        )

    return draw(captions, 0.3), draw(images, 0.1), draw(1, 1.0)


def write_captions(folder: Path, captions: Gaussian) -> EmbeddingDataset:
    """Write captions as `prolip embed` does; the text of caption n is "n"."""
    header = DatasetHeader(
        model="bench", identity="0" * 16, dim=captions.dim, has_uncertainty=True, scale=1.0,
        logit_bias=None, variances="full",
        precision="float32", modality="text", data="bench", captions=None, image=None, fingerprint="", part_size=PART,
        parts=-(-len(captions) // PART),
    )  # fmt: skip
    folder.mkdir()
    header.write(folder)
    for part in range(header.parts):
        indices = list(range(part * PART, min((part + 1) * PART, len(captions))))
        metadata = [SampleMetadata(str(index), (str(index),), {}) for index in indices]
        rows = make_part_table(
            header, part, EncodedPart([], indices, metadata, [None] * len(indices), {}), captions[indices]
        )
        write_part(folder, part, rows)
    return EmbeddingDataset.open(folder)


def _compare_methods(folder: Path, captions: int, dim: int, repeats: int) -> list[dict[str, Any]]:
    texts, images, null = draw_gaussians(captions, dim, max(IMAGES))
    embeddings = write_captions(folder / "embeddings", texts)
    database = index_embeddings(folder / "database", [embeddings])
    index = build_index(database, DEFAULT_KINDS[0])
    table = DatabaseCaptions(database)
    searches: dict[str, CaptionSearch] = {
        "embeddings": ExactSearch(EmbeddedCaptions(embeddings)),
        "database": ExactSearch(table),
        "candidates": CandidateSearch(table, index.effort or EFFORT, index.filtered_effort or EFFORT),
    }
    wanted, found = traverse(images, texts, null), traverse(images, searches["candidates"], null)
    same = {
        "same_roots": _compute_agreement(searches["candidates"], found.roots, wanted.roots),
        "same_steps": _compute_agreement(searches["candidates"], found.visited, wanted.visited),
    }
    return [
        {"captions": captions, "dimensions": dim, "images": count, "tuned": index.effort is not None, **same}
        | {"seconds": _time_methods(images[:count], texts, null, searches, repeats)}
        for count in IMAGES
    ]


def _time_methods(
    images: Gaussian, texts: Gaussian, null: Gaussian, searches: dict[str, CaptionSearch], repeats: int
) -> dict[str, float]:
    works: dict[str, Callable[[], Traversals]] = {"memory": partial(traverse, images, texts, null)}
    works |= {name: partial(traverse, images, search, null) for name, search in searches.items()}
    return {name: statistics.median(times) for name, times in time_interleaved(works, repeats).items()}


def _embed_scenes(folder: Path, count: int) -> tuple[EmbeddingDataset, Gaussian]:
    """About `count` captions of scenes, and the images of other scenes, by the model that ships."""
    data = f"scenes:simple,size=48,captions=4,length={count // 4}"
    others = Scenes("simple", length=ROOT_IMAGES, size=48, seed=1)
    images = [others.read(index).image for index in range(ROOT_IMAGES)]
    return embed("scenes-tiny", data, folder, modality="text"), load("scenes-tiny").eval().embed_images(
        images
    )


def _embed_random(dim: int, folder: Path, count: int) -> tuple[EmbeddingDataset, Gaussian]:
    texts, images, _ = draw_gaussians(count, dim, ROOT_IMAGES)
    return write_captions(folder, texts), images


def _compare_roots(folder: Path, embeddings: EmbeddingDataset, images: Gaussian) -> list[float]:
    """The fraction of images whose root is the exact one, for each of BANDS; the database has no approximate index."""
    database = index_embeddings(folder, [embeddings])
    build_index(database, "none")
    table = DatabaseCaptions(database)
    wanted = table.take(ExactSearch(table).find_max_inclusion(images)).texts
    fractions = []
    for bands, per_band in BANDS:
        found = table.take(
            CandidateSearch(table, EFFORT, EFFORT, bands, per_band).find_max_inclusion(images)
        ).texts
        fractions.append(statistics.mean(text == best for text, best in zip(found, wanted, strict=True)))
    return fractions


def _compute_agreement(search: CaptionSearch, found: Tensor, wanted: Tensor) -> float:
    """The fraction of captions found by a search whose text is the wanted index."""
    texts = search.table.take(found.flatten()).texts
    return float((torch.tensor([int(text) for text in texts]) == wanted.flatten()).float().mean())
