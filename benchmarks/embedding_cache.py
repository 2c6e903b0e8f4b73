"""Benchmark of the embedding cache: writing and reading parts, against one safetensors file with JSON per part."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.data.open import open_data
from prolip.data.sample import SampleError
from prolip.embeddings.cache import EmbeddingCache
from prolip.embeddings.embedder import PART_SIZE, Embedder
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.files import atomic_write
from prolip.gaussian import Gaussian
from prolip.model.folder import compute_digest, write_safetensors
from prolip.weights.load import load

NAME = "0" * 16
"""Name of the data set in the cache."""


@dataclass(frozen=True, kw_only=True)
class CacheCosts:
    """Time and size of one way to cache the embeddings."""

    method: str
    """parquet: ours. safetensors: the reference."""
    write_seconds: float
    """Median time to write all parts."""
    read_seconds: float
    """Median time to read all parts, with digests verified."""
    megabytes: float
    """Size of all files; a megabyte has 10^6 bytes."""


@dataclass(frozen=True, kw_only=True)
class CacheComparison:
    """Result of the benchmark."""

    images: int
    dim: int
    """Dimensions of the embeddings."""
    repeats: int
    """Interleaved runs of each method."""
    embed_seconds: float
    """Time to embed the images, which the cache saves."""
    reference: CacheCosts
    ours: CacheCosts


def run(*, images: int = 20_000, model: str = "scenes-tiny", repeats: int = 5) -> CacheComparison:
    """Embed scenes once, then write and read them in both ways.

    Args:
        images: Number of scenes.
        model: Model that embeds them.
        repeats: Interleaved runs of each method.

    Returns:
        Times and sizes.
    """
    require_positive_int(images, "images")
    require_positive_int(repeats, "repeats")
    parts: list[EncodedPart] = []
    seconds = time_interleaved(
        {"embed": lambda: parts.extend(_embed_scenes(model, images))}, 1, group="scenes"
    )["embed"][0]
    dim = parts[0].gaussians[0].dim
    with tempfile.TemporaryDirectory() as folder:
        cache = EmbeddingCache(folder=Path(folder) / "parquet")
        reference = Path(folder) / "safetensors"
        header = _make_header(dim, images)
        workloads: dict[str, Callable[[], object]] = {
            "write reference": lambda: _write_reference(reference, parts),
            "write ours": lambda: _write_ours(cache, header, parts),
            "read reference": lambda: _read_reference(reference, len(parts)),
            "read ours": lambda: _read_ours(cache, header, parts),
        }
        for work in workloads.values():  # warm-up; files exist before they are read in reverse order
            work()
        times = {
            name: statistics.median(values) for name, values in time_interleaved(workloads, repeats).items()
        }
        sizes = {"reference": _get_size(reference), "ours": _get_size(cache.folder)}
    costs = {
        name: CacheCosts(
            method=method,
            write_seconds=times[f"write {name}"],
            read_seconds=times[f"read {name}"],
            megabytes=sizes[name] / 1e6,
        )
        for name, method in (("reference", "safetensors"), ("ours", "parquet"))
    }
    return CacheComparison(images=images, dim=dim, repeats=repeats, embed_seconds=seconds, **costs)


def print_result(result: CacheComparison) -> None:
    """Print a table of both methods.

    Args:
        result: From `run`.
    """
    rows = [
        (
            costs.method,
            f"{costs.write_seconds:.3f}",
            f"{costs.read_seconds:.3f}",
            f"{costs.megabytes:.1f}",
            f"{costs.write_seconds / result.reference.write_seconds:.2f}",
            f"{costs.read_seconds / result.reference.read_seconds:.2f}",
        )
        for costs in (result.reference, result.ours)
    ]
    title = f"{result.images:,} images, D = {result.dim}; embedding them takes {result.embed_seconds:.0f} s"
    numbers = ("write (s)", "read (s)", "MB", "write, relative", "read, relative")
    print_tables([make_table(title, ("cache",), numbers, rows)])


def _embed_scenes(model: str, images: int) -> list[EncodedPart]:
    """Embed scenes, in parts of the cache."""
    encoded = Embedder(model=load(model).eval(), progress=None).embed_images(
        open_data(f"scenes:simple,length={images},size=48")
    )
    return [
        EncodedPart(
            [encoded.images[start : start + PART_SIZE]],
            encoded.indices[start : start + PART_SIZE].tolist(),
            list(encoded.metadata[start : start + PART_SIZE]),
            [None] * len(encoded.indices[start : start + PART_SIZE]),
            {},
        )
        for start in range(0, len(encoded), PART_SIZE)
    ]


def _make_header(dim: int, images: int) -> DatasetHeader:
    """Header of the data set in the cache."""
    return DatasetHeader(
        model="bench", identity="0" * 16, dim=dim, has_uncertainty=True, scale=1.0, logit_bias=None, variances="full",
        precision="float32", modality="image", data="bench", captions=None, image=None, fingerprint="",
        part_size=PART_SIZE, parts=-(-images // PART_SIZE),
    )  # fmt: skip


def _write_ours(cache: EmbeddingCache, header: DatasetHeader, parts: Sequence[EncodedPart]) -> None:
    """Write all parts into the cache."""
    with cache.open(NAME, header) as cached:
        for index, part in enumerate(parts):
            cached.write_images(index, part)


def _read_ours(
    cache: EmbeddingCache, header: DatasetHeader, parts: Sequence[EncodedPart]
) -> list[EncodedPart]:
    """Read all parts from the cache; raises ValueError if one is not there."""
    with cache.open(NAME, header) as cached:
        found = [
            cached.read_images(index, range(part.indices[0], part.indices[-1] + 1))
            for index, part in enumerate(parts)
        ]
    if any(part is None for part in found):
        raise ValueError("a part of the cache can't be read")
    return [part for part in found if part is not None]


def _write_reference(folder: Path, parts: Sequence[EncodedPart]) -> None:
    """Write all parts as safetensors files: mean, log_var, and the JSON of everything else."""
    for index, part in enumerate(parts):
        content = {
            "indices": part.indices,
            "metadata": part.metadata,
            "file_stamps": part.file_stamps,
            "errors": part.errors,
        }
        z = Gaussian.cat(part.gaussians)
        tensors = {
            "mean": z.mean.contiguous(),
            "log_var": z.log_var.contiguous(),
            "json": torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8),
        }
        metadata = {"digest": compute_digest(tensors)}

        def write(
            path: Path, tensors: dict[str, torch.Tensor] = tensors, metadata: dict[str, str] = metadata
        ) -> None:
            write_safetensors(tensors, path, metadata)

        atomic_write(folder / f"{index}.safetensors", write)


def _read_reference(folder: Path, count: int) -> list[EncodedPart]:
    """Read all parts of `_write_reference`; raises ValueError if a digest differs."""
    parts = []
    for index in range(count):
        with safe_open(folder / f"{index}.safetensors", "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            digest = (file.metadata() or {}).get("digest")
        if digest != compute_digest(tensors):
            raise ValueError("a safetensors file is damaged")
        content = json.loads(tensors["json"].numpy().tobytes().decode())
        metadata = [
            SampleMetadata(key, tuple(captions), *rest) for key, captions, *rest in content["metadata"]
        ]
        errors = {int(row): SampleError(*error) for row, error in content["errors"].items()}
        z = Gaussian(tensors["mean"], tensors["log_var"]).check("cached embeddings")
        stamps = [None if stamp is None else tuple(stamp) for stamp in content["file_stamps"]]
        parts.append(EncodedPart([z], list(content["indices"]), metadata, stamps, errors))
    return parts


def _get_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
