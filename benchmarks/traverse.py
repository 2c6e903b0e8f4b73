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

from benchmarks.timing import require_scale_and_repeats, time_interleaved
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
CLUSTERS, PART_SIZE = 500, 4096
"""Centers of the random captions and images; rows of a part of their embedding data set."""
EFFORT = SearchEffort(nprobes=80, refine=40)
"""Used for an index that reaches no recall of 95 % at any effort (a database is then searched exactly)."""
BANDS = ((1, 16), (4, 16), (16, 1), (16, 4), (16, 16))
"""Numbers of uncertainty bands, and of candidate captions per band, that are compared."""
ROOT_CAPTIONS, ROOT_IMAGES = 20_000, 64
"""Numbers of captions and images of the comparison of roots."""
METHODS = ("memory", "embeddings", "database", "candidates")
"""Captions in memory; exact search in embeddings or in a database on disk; approximate search in the database."""


EmbedFunction = Callable[[Path, int], tuple[EmbeddingDataset, Gaussian]]
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
    require_scale_and_repeats(scale, repeats, max_scale=10)
    traversals, roots = [], []
    for num_captions, dim in SIZES:
        with TemporaryDirectory() as folder:
            traversals += _compare_methods(Path(folder), max(1000, round(scale * num_captions)), dim, repeats)
    count = max(1000, round(scale * ROOT_CAPTIONS))
    random: dict[str, EmbedFunction] = {f"random, D {dim}": partial(_embed_random, dim) for _, dim in SIZES}
    for name, embed_captions in {"scenes": _embed_scenes, **random}.items():
        with TemporaryDirectory() as folder:
            embeddings, images = embed_captions(Path(folder) / "embeddings", count)
            fractions = _compare_roots(Path(folder) / "database", embeddings, images)
            roots.append({"captions": name, "count": len(embeddings), "same_roots": fractions})
    return {"traversals": traversals, "roots": roots}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as two tables."""
    traversals = make_table(
        f"seconds, {torch.get_num_threads()} threads, medians; same: fraction in which candidates agree with the exact "
        "search",
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
        ("", *(f"{bands} x {per_band}" for bands, per_band in BANDS)),
        [
            (r["captions"], f"{r['count']:,}", *(f"{fraction:.1%}" for fraction in r["same_roots"]))
            for r in result["roots"]
        ],
    )
    print_tables([traversals, roots])


def draw_gaussians(
    num_captions: int, dim: int, num_images: int, seed: int = 0
) -> tuple[Gaussian, Gaussian, Gaussian]:
    """Draw captions, images and the empty caption around `CLUSTERS` common centers.

    Returns:
        Captions (M, D) of many uncertainties, images (N, D) of smaller ones, and the empty caption (1, D).
    """
    generator = torch.Generator().manual_seed(seed)
    centers = normalize(torch.randn(CLUSTERS, dim, generator=generator), dim=-1)

    def draw(count: int, trace: float) -> Gaussian:
        """Draw (count, D) Gaussians around random centers, with uncertainties around `trace`."""
        cluster = torch.randint(CLUSTERS, (count,), generator=generator)
        noise = 0.7 * normalize(torch.randn(count, dim, generator=generator), dim=-1)
        log_var = torch.tensor(trace / dim).log() + 0.3 * torch.randn(count, 1, generator=generator)
        return Gaussian(
            normalize(centers[cluster] + noise, dim=-1),
            log_var + 0.5 * torch.randn(count, dim, generator=generator),
        )

    return draw(num_captions, 0.3), draw(num_images, 0.1), draw(1, 1.0)


def write_captions(folder: Path, captions: Gaussian) -> EmbeddingDataset:
    """Write captions to a new folder as `prolip embed` does, and open them; the text of caption n is "n"."""
    header = DatasetHeader(
        model="bench", identity="0" * 16, dim=captions.dim, has_uncertainty=True, scale=1.0,
        logit_bias=None, variances="full", precision="float32", modality="text", data="bench", captions=None,
        image=None, fingerprint="", part_size=PART_SIZE, parts=-(-len(captions) // PART_SIZE),
    )  # fmt: skip
    folder.mkdir()
    header.write(folder)
    for part in range(header.parts):
        indices = list(range(part * PART_SIZE, min((part + 1) * PART_SIZE, len(captions))))
        metadata = [SampleMetadata(str(index), (str(index),), {}) for index in indices]
        rows = make_part_table(
            header, part, EncodedPart([], indices, metadata, [None] * len(indices), {}), captions[indices]
        )
        write_part(folder, part, rows)
    return EmbeddingDataset.open(folder)


def _compare_methods(folder: Path, num_captions: int, dim: int, repeats: int) -> list[dict[str, Any]]:
    """Time each of METHODS for each number of IMAGES, on random captions that are written into `folder`.

    same_roots, same_steps: the fractions of roots and steps in which candidates agree with captions in memory.
    """
    texts, images, null = draw_gaussians(num_captions, dim, max(IMAGES))
    embeddings = write_captions(folder / "embeddings", texts)
    database = index_embeddings(folder / "database", [embeddings])
    index = build_index(database, DEFAULT_KINDS[0])
    table = DatabaseCaptions(database)
    searches: dict[str, CaptionSearch] = {
        "embeddings": ExactSearch(EmbeddedCaptions(embeddings)),
        "database": ExactSearch(table),
        "candidates": CandidateSearch(table, index.effort or EFFORT, index.filtered_effort or EFFORT),
    }
    exact, approximate = traverse(images, texts, null), traverse(images, searches["candidates"], null)
    same = {
        "same_roots": _compute_agreement(searches["candidates"], approximate.roots, exact.roots),
        "same_steps": _compute_agreement(searches["candidates"], approximate.visited, exact.visited),
    }
    return [
        {
            "captions": num_captions,
            "dimensions": dim,
            "images": count,
            "tuned": index.effort is not None,
            **same,
        }
        | {"seconds": _time_methods(images[:count], texts, null, searches, repeats)}
        for count in IMAGES
    ]


def _time_methods(
    images: Gaussian, texts: Gaussian, null: Gaussian, searches: dict[str, CaptionSearch], repeats: int
) -> dict[str, float]:
    """Median seconds of a traversal of all images, by method: texts in memory, and each search."""
    workloads: dict[str, Callable[[], Traversals]] = {"memory": partial(traverse, images, texts, null)}
    group = f"{len(images)} images, {len(texts)} captions"
    workloads |= {name: partial(traverse, images, search, null) for name, search in searches.items()}
    return {
        name: statistics.median(times)
        for name, times in time_interleaved(workloads, repeats, group=group).items()
    }


def _embed_scenes(folder: Path, count: int) -> tuple[EmbeddingDataset, Gaussian]:
    """Embed about `count` captions of scenes into `folder`, and ROOT_IMAGES images, by the shipped model."""
    data = f"scenes:simple,size=48,captions=4,length={count // 4}"
    other_scenes = Scenes("simple", length=ROOT_IMAGES, size=48, seed=1)
    images = [other_scenes.read(index).image for index in range(ROOT_IMAGES)]
    captions = embed("scenes-tiny", data, folder, modality="text")
    return captions, load("scenes-tiny").eval().embed_images(images)


def _embed_random(dim: int, folder: Path, count: int) -> tuple[EmbeddingDataset, Gaussian]:
    """Write `count` random captions to `folder`, and draw ROOT_IMAGES images around the same centers."""
    texts, images, _ = draw_gaussians(count, dim, ROOT_IMAGES)
    return write_captions(folder, texts), images


def _compare_roots(folder: Path, embeddings: EmbeddingDataset, images: Gaussian) -> list[float]:
    """The fraction of images for which candidates find the exact root, for each of BANDS.

    The database, which is written to `folder`, has no approximate index, so that only the choice of candidates matters.
    """
    database = index_embeddings(folder, [embeddings])
    build_index(database, "none")
    table = DatabaseCaptions(database)
    exact_roots = table.take(ExactSearch(table).find_max_inclusion(images)).texts
    fractions = []
    for bands, per_band in BANDS:
        search = CandidateSearch(table, EFFORT, EFFORT, bands, per_band)
        roots = table.take(search.find_max_inclusion(images)).texts
        fractions.append(
            statistics.mean(root == exact for root, exact in zip(roots, exact_roots, strict=True))
        )
    return fractions


def _compute_agreement(search: CaptionSearch, rows: Tensor, exact_indices: Tensor) -> float:
    """The fraction of captions, by row of the search's table, that are the exact ones.

    The text of a caption is its index (`write_captions`): rows of a database need not have that order.
    """
    texts = search.table.take(rows.flatten()).texts
    return float((torch.tensor([int(text) for text in texts]) == exact_indices.flatten()).float().mean())
