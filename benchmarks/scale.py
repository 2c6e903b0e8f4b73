"""Benchmark of scale: the cost per pair of each stage, and the hours of a pool on a cluster."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.cluster import ClusterSpec
from benchmarks.data import TEST, make_photo
from benchmarks.timing import time_interleaved
from benchmarks.towers import PRODUCT, TOKENS, image_flops, text_flops
from prolip.console import make_table, print_tables
from prolip.data.sample import Sample
from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_format import write_tar
from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.header import DatasetHeader
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.embeddings.schema import make_part_table
from prolip.extras import import_extra
from prolip.filtering.scores import compute_scores
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.progress import progress_bar
from prolip.retrieval.index.append import index_embeddings

PHOTO = (512, 384)
"""Width and height of an image of a pool, as img2dataset stores them."""
BATCH_SIZE = 4
"""Pairs that are encoded at a time: one core takes seconds for them."""
NUM_JPEGS = 8
"""Different images of the shard; its samples use them in turn."""
CAPTION = "a photograph of two dogs on a beach in the evening sun"
STORAGE_FORMATS = {"full, float32": ("full", "float32"), "trace, float16": ("trace", "float16")}
"""Variances and precision of the embedding data sets that are compared."""


def run(
    *,
    size: str = "ViT-B-16-768",
    photos: int = 256,
    repeats: int = 3,
    pool: float = 1.4e9,
    machines: ClusterSpec | None = None,
) -> dict[str, Any]:
    """Measure the cost per pair of each stage in one thread, and estimate the hours of a pool on a cluster.

    The number of torch's threads is restored at the end.

    Args:
        size: Model size.
        photos: Number of pairs that each stage processes.
        repeats: Interleaved runs of each stage.
        pool: Number of pairs of the pool.
        machines: The cluster; None: `ClusterSpec()`.

    Returns:
        size, photos, pool, stages (cost per pair), machines, and hours (`estimate_hours`).
    """
    for option, value, minimum in (("photos", photos, NUM_JPEGS), ("repeats", repeats, 1), ("pool", pool, 1)):
        if not value >= minimum:
            raise ValueError(f"--{option} must be at least {minimum}, not {value}")
    import_extra("lancedb", "search")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            stages = _measure_stages(size, photos, repeats, Path(folder))
    finally:
        torch.set_num_threads(threads)
    return {
        "size": size,
        "photos": photos,
        "pool": pool,
        "stages": stages,
        "machines": vars(machines or ClusterSpec()),
        "hours": estimate_hours(stages, pool, machines or ClusterSpec()),
    }


PASSES = {
    "embed, full, float32": ("read", "decode", "encode", "write, full, float32"),
    "embed, trace, float16": ("read", "decode", "encode", "write, trace, float16"),
    "score, full, float32": ("score, full, float32",),
    "score, trace, float16": ("score, trace, float16",),
    "index": ("index",),
}
"""Stages that run in one pass over a pool."""


def estimate_hours(
    stages: Mapping[str, Mapping[str, float]],
    pool: float,
    machines: ClusterSpec,
    passes: Mapping[str, Sequence[str]] = PASSES,
) -> dict[str, dict[str, float]]:
    """Estimate the hours that each pass over a pool keeps each resource busy.

    Resources work at the same time, so that the largest number is the duration of the pass.

    Args:
        stages: Cost per pair of each stage: core_seconds, fetched (bytes), moved (bytes), flops.
        pool: Number of pairs.
        machines: The cluster.
        passes: Stages of each pass.

    Returns:
        By pass, the hours by resource: network, cores, gpus, disk.
    """
    rates = {
        "network": ("fetched", machines.network),
        "cores": ("core_seconds", machines.cores * machines.speed),
        "gpus": ("flops", machines.gpus * machines.flops),
        "disk": ("moved", machines.disk),
    }
    return {
        name: {
            resource: sum(stages[stage].get(quantity, 0.0) for stage in stage_names) * pool / rate / 3600
            for resource, (quantity, rate) in rates.items()
        }
        for name, stage_names in passes.items()
    }


def _measure_stages(size: str, photos: int, repeats: int, folder: Path) -> dict[str, dict[str, float]]:
    """Time each stage; writes a shard, data sets and databases to `folder`.

    Returns by stage, per pair: core_seconds (one thread), fetched (bytes of the pool), moved (bytes to or from disk),
    flops; of "encode", seconds_here and fraction_of_rate (relative to a matrix product) instead of core_seconds.
    """
    config = get_config(size, TOKENS)
    model = ProLIP(config).init_weights(torch.Generator().manual_seed(0)).eval()
    shards, fetched = _write_shard(folder, photos)
    samples = [shards.read(index) for index in range(len(shards))]
    parts = {
        name: _StoredPart.create(config.embed_dim, photos, folder / name, *storage_format)
        for name, storage_format in STORAGE_FORMATS.items()
    }
    workloads: dict[str, Callable[[], Any]] = {
        "product": partial(torch.matmul, *[torch.randn(PRODUCT, PRODUCT)] * 2),
        "read": partial(_read_all, shards),
        "decode": partial(_decode_all, samples),
        "encode": partial(_encode, model, BATCH_SIZE),
    }
    for name, stored in parts.items():
        workloads |= {f"write, {name}": stored.write, f"score, {name}": stored.score}
    workloads["index"] = partial(_write_database, parts["full, float32"].folder, folder / "databases")
    for function in workloads.values():  # warm up; the data sets are written before they are scored
        function()
    with progress_bar("measuring", len(workloads) * repeats, "runs") as advance:
        seconds = {
            name: statistics.median(times)
            for name, times in time_interleaved(workloads, repeats, advance).items()
        }
    flops = image_flops(config.image_transformer, config.embed_dim) + text_flops(
        config.text_transformer, config.embed_dim, config.text_transformer.tokenizer.context_length
    )
    stages = {
        name: {"core_seconds": seconds[name] / photos}
        for name in workloads
        if name not in ("product", "encode")
    }
    stages["read"]["fetched"] = fetched
    stages["encode"] = {
        "flops": flops,
        "seconds_here": seconds["encode"] / BATCH_SIZE,
        "fraction_of_rate": BATCH_SIZE * flops / seconds["encode"] / (2 * PRODUCT**3 / seconds["product"]),
    }
    for name, stored in parts.items():
        # scoring reads what was written
        stages[f"write, {name}"]["moved"] = stages[f"score, {name}"]["moved"] = stored.count_bytes() / photos
    dataset_bytes = stages["write, full, float32"]["moved"]
    stages["index"]["moved"] = dataset_bytes + _count_bytes(folder / "databases" / "0") / photos
    return stages


def _write_shard(folder: Path, photos: int) -> tuple[TarShards, float]:
    """Write a shard of JPEGs with captions to `folder`; returns it and the bytes per sample."""
    files = [make_photo(*PHOTO, seed) for seed in range(NUM_JPEGS)]
    path = folder / "00000.tar"
    members = (
        {"jpg": files[i % NUM_JPEGS], "txt": CAPTION.encode(), "json": b'{"uid": "%032x"}' % i}
        for i in range(photos)
    )
    write_tar(path, ((f"{i:08d}", sample) for i, sample in enumerate(members)))
    return TarShards(str(path)), path.stat().st_size / photos


def _read_all(shards: TarShards) -> None:
    """Read all samples, without decoding them."""
    for index in range(len(shards)):
        shards.read(index)


def _decode_all(samples: list[Sample]) -> None:
    """Decode and preprocess the images of all samples."""
    for sample in samples:
        TEST.process(sample, 0)


@torch.no_grad()
def _encode(model: ProLIP, count: int) -> None:
    """Encode `count` constant images and texts of the full context: their values don't matter for time."""
    size, length = model.config.image.preprocessing.size, model.config.text.tokenizer.context_length
    model.encode_image(torch.zeros(count, 3, size, size))
    model.encode_text(torch.full((count, length), 5))


@dataclass(frozen=True)
class _StoredPart:
    """An embedding data set of one part in `folder`, written and scored as embedding and filtering do."""

    header: DatasetHeader
    part: EncodedPart
    texts: Gaussian
    folder: Path

    @classmethod
    def create(cls, dim: int, photos: int, folder: Path, variances: Any, precision: Any) -> _StoredPart:
        """Draw random embeddings of `photos` pairs; creates the folder with a header, but not yet the part."""
        header = DatasetHeader(
            model="bench", identity="0" * 16, dim=dim, has_uncertainty=True, scale=10.0, logit_bias=-10.0,
            variances=variances,
            precision=precision, modality=None, data="bench", captions=None, image=None, fingerprint="",
            part_size=photos, parts=1, columns={"uid": "string"},
        )  # fmt: skip
        metadata = [
            SampleMetadata(f"{i:08d}", (CAPTION,), {"json": {"uid": f"{i:032x}"}}, f"{i:016x}")
            for i in range(photos)
        ]
        images, texts = (_draw_gaussians(photos, dim, seed) for seed in (0, 1))
        stored = cls(
            header, EncodedPart([images], list(range(photos)), metadata, [None] * photos, {}), texts, folder
        )
        folder.mkdir()
        header.write(folder)
        return stored

    def write(self) -> None:
        """Write the part, replacing the one before."""
        write_part(self.folder, 0, make_part_table(self.header, 0, self.part, self.texts))

    def score(self) -> None:
        """Read the part and compute the scores of its pairs."""
        compute_scores(EmbeddingDataset.open(self.folder).read_part(0))

    def count_bytes(self) -> int:
        """Bytes of all files of the data set."""
        return _count_bytes(self.folder)


def _draw_gaussians(count: int, dim: int, seed: int) -> Gaussian:
    """Draw Gaussians (count, dim) with unit means and log-variances from -8 to -7."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=-1)
    return Gaussian(mean, -8 + torch.rand(count, dim, generator=generator))


def _write_database(folder: Path, databases: Path) -> None:
    """Write the embeddings of `folder` to a new database in the folder `databases`; it gets the next free number.

    Without an approximate index, which `python -m benchmarks search` times.
    """
    databases.mkdir(exist_ok=True)
    index_embeddings(
        databases / str(len(list(databases.iterdir()))), [EmbeddingDataset.open(folder)], progress=False
    )


def _count_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as two tables."""
    print_tables([_make_stage_table(result), _make_hour_table(result)])


def _make_stage_table(result: dict[str, Any]) -> Any:
    """Table of the cost per pair of each stage."""
    width, height = PHOTO
    title = f"{result['size']}, per pair (JPEG of {width} x {height}, one caption), one core of this machine"
    numbers = ("core s per million", "bytes fetched", "bytes to or from disk", "GFLOP", "here")
    table = make_table(title, ("stage",), numbers)
    for name, stage in result["stages"].items():
        here = ""
        if "seconds_here" in stage:
            rate = 1 / stage["seconds_here"]
            here = f"{rate:.2f} pairs/s, {stage['fraction_of_rate']:.0%} of a matrix product's rate"
        table.add_row(
            name,
            f"{stage['core_seconds'] * 1e6:,.0f}" if "core_seconds" in stage else "",
            f"{stage['fetched']:,.0f}" if "fetched" in stage else "",
            f"{stage['moved']:,.0f}" if "moved" in stage else "",
            f"{stage['flops'] / 1e9:.1f}" if "flops" in stage else "",
            here,
        )
    return table


def _make_hour_table(result: dict[str, Any]) -> Any:
    """Table of the hours of each pass by resource, with its duration and the resource that bounds it."""
    cluster = result["machines"]
    hardware = (
        f"{cluster['gpus']} GPUs of {cluster['flops'] / 1e12:.0f} TFLOP/s, {cluster['cores']} cores, "
        f"{cluster['network'] / 1e9:g} GB/s in, {cluster['disk'] / 1e9:g} GB/s to and from disk"
    )
    title = f"{result['pool']:,.0f} pairs on {hardware}: hours"
    rows = []
    for name, hours in result["hours"].items():
        bound_by = max(hours, key=lambda resource: hours[resource])
        formatted = (f"{hours[resource]:.2f}" for resource in ("network", "cores", "gpus", "disk"))
        rows.append((name, *formatted, f"{hours[bound_by]:.1f}", bound_by))
    return make_table(title, ("pass",), ("network", "cores", "gpus", "disk", "takes", "bound by"), rows)
