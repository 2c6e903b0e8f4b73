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

from benchmarks.data import TEST, photo
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
"""Pixels of a picture of a pool, as img2dataset keeps them."""
FEW = 4
"""Pairs that are encoded at a time: a core takes seconds for them."""
CAPTION = "a photograph of two dogs on a beach in the evening sun"
STORES = {"full, float32": ("full", "float32"), "trace, float16": ("trace", "float16")}


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What a pool is embedded on. Rates are of one piece of hardware, in its own unit a second.

    gpus, flops:  GPUs, and floating-point operations that one does a second in the end (not on its data sheet).
    cores, speed: CPU cores, and how fast one is against one of this machine.
    network:      bytes a second that come from where the pool lies, in all. disk: bytes a second that can be written.
    """

    gpus: int = 64
    flops: float = 1.5e14
    cores: int = 1024
    speed: float = 1.0
    network: float = 2.5e10
    disk: float = 8e9


def run(
    *,
    size: str = "ViT-B-16-768",
    photos: int = 256,
    repeats: int = 3,
    pool: float = 1.4e9,
    machines: Machines | None = None,
) -> dict[str, Any]:
    """Stages, what a pair costs in each, and the hours that a pool of pairs takes on a cluster."""
    if photos < 8 or repeats < 1 or pool < 1:
        raise ValueError(f"photos {photos} must be at least 8, repeats {repeats} and pool {pool} at least 1")
    import_extra("lancedb", "search")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            stages = _measured(size, photos, repeats, Path(folder))
    finally:
        torch.set_num_threads(threads)
    return {
        "size": size,
        "photos": photos,
        "pool": pool,
        "stages": stages,
        "machines": vars(machines or Machines()),
        "hours": hours(stages, pool, machines or Machines()),
    }


PASSES = {
    "embed, full, float32": ("read", "decode", "encode", "write, full, float32"),
    "embed, trace, float16": ("read", "decode", "encode", "write, trace, float16"),
    "score, full, float32": ("score, full, float32",),
    "score, trace, float16": ("score, trace, float16",),
    "index": ("index",),
}
"""Stages that go over a pool together."""


def hours(
    stages: Mapping[str, Mapping[str, float]],
    pool: float,
    machines: Machines,
    passes: Mapping[str, Sequence[str]] = PASSES,
) -> dict[str, dict[str, float]]:
    """Of each pass over a pool the hours that it keeps each resource busy. They work at the same time: the largest
    counts."""
    rates = {
        "network": ("fetched", machines.network),
        "cores": ("core_seconds", machines.cores * machines.speed),
        "gpus": ("flops", machines.gpus * machines.flops),
        "disk": ("moved", machines.disk),
    }
    return {
        name: {
            resource: sum(stages[stage].get(quantity, 0.0) for stage in chosen) * pool / rate / 3600
            for resource, (quantity, rate) in rates.items()
        }
        for name, chosen in passes.items()
    }


def _measured(size: str, photos: int, repeats: int, folder: Path) -> dict[str, dict[str, float]]:
    """Of a pair: core_seconds (one thread), fetched (bytes of the pool), moved (bytes to or from disk), flops."""
    config = get_config(size, TOKENS)
    model = ProLIP(config).init_weights(torch.Generator().manual_seed(0)).eval()
    shards, fetched = _shards(folder, photos)
    samples = [shards.read(number) for number in range(len(shards))]
    parts = {
        name: _Stored.made(config.embed_dim, photos, folder / name, *kind) for name, kind in STORES.items()
    }
    works: dict[str, Callable[[], Any]] = {
        "read": partial(_read_all, shards),
        "decode": partial(_decode_all, samples),
        "product": partial(torch.matmul, *[torch.randn(PRODUCT, PRODUCT)] * 2),
        "encode": partial(_encode, model, FEW),
    }
    for name, stored in parts.items():
        works |= {f"write, {name}": stored.write, f"score, {name}": stored.score}
    works["index"] = partial(_index, parts["full, float32"].folder, folder / "databases")
    for work in works.values():
        work()
    with progress_bar("measuring", len(works) * repeats, "runs") as advance:
        seconds = {
            name: statistics.median(times)
            for name, times in time_interleaved(works, repeats, advance).items()
        }
    flops = image_flops(config.image, config.embed_dim) + text_flops(
        config.text, config.embed_dim, config.text.tokenizer.context_length
    )
    stages = {
        name: {"core_seconds": seconds[name] / photos} for name in works if name not in ("product", "encode")
    }
    stages["read"]["fetched"] = fetched
    stages["encode"] = {
        "flops": flops,
        "seconds_here": seconds["encode"] / FEW,
        "fraction_of_rate": FEW * flops / seconds["encode"] / (2 * PRODUCT**3 / seconds["product"]),
    }
    for name, stored in parts.items():
        stages[f"write, {name}"]["moved"] = stages[f"score, {name}"]["moved"] = stored.bytes() / photos
    read = stages["write, full, float32"]["moved"]
    stages["index"]["moved"] = read + _bytes_below(folder / "databases" / "0") / photos
    return stages


def _shards(folder: Path, photos: int) -> tuple[TarShards, float]:
    """A shard of JPEGs with captions, and the bytes of a sample."""
    different = [photo(*PHOTO, seed) for seed in range(8)]
    path = folder / "00000.tar"
    members = (
        {"jpg": different[i % 8], "txt": CAPTION.encode(), "json": b'{"uid": "%032x"}' % i}
        for i in range(photos)
    )
    write_tar(path, ((f"{i:08d}", files) for i, files in enumerate(members)))
    return TarShards(str(path)), path.stat().st_size / photos


def _read_all(shards: TarShards) -> None:
    for number in range(len(shards)):
        shards.read(number)


def _decode_all(samples: list[Sample]) -> None:
    for sample in samples:
        TEST.process(sample, 0)


@torch.no_grad()
def _encode(model: ProLIP, count: int) -> None:
    size, length = model.config.image.preprocessing.size, model.config.text.tokenizer.context_length
    model.encode_image(torch.zeros(count, 3, size, size))
    model.encode_text(torch.full((count, length), 5))


@dataclass(frozen=True)
class _Stored:
    """A part of so many pairs, written and read as embedding and filtering do."""

    header: DatasetHeader
    part: EncodedPart
    texts: Gaussian
    folder: Path

    @classmethod
    def made(cls, dim: int, photos: int, folder: Path, variances: Any, precision: Any) -> _Stored:
        header = DatasetHeader(
            model="bench", identity="0" * 16, dim=dim, scale=10.0, bias=-10.0, variances=variances, precision=precision,
            modality=None, data="bench", captions=None, image=None, fingerprint="", part_size=photos, parts=1,
            columns={"uid": "string"},
        )  # fmt: skip
        facts = [
            SampleMetadata(f"{i:08d}", (CAPTION,), {"json": {"uid": f"{i:032x}"}}, f"{i:016x}")
            for i in range(photos)
        ]
        images, texts = (_random(photos, dim, seed) for seed in (0, 1))
        stored = cls(
            header, EncodedPart([images], list(range(photos)), facts, [None] * photos, {}), texts, folder
        )
        folder.mkdir()
        header.write(folder)
        return stored

    def write(self) -> None:
        write_part(self.folder, 0, make_part_table(self.header, 0, self.part, self.texts))

    def score(self) -> None:
        compute_scores(EmbeddingDataset.open(self.folder).read_part(0))

    def bytes(self) -> int:
        return _bytes_below(self.folder)


def _random(count: int, dim: int, seed: int) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=-1)
    return Gaussian(mean, -8 + torch.rand(count, dim, generator=generator))


def _index(folder: Path, databases: Path) -> None:
    """Rows into a new database; not the training of its index, which `python -m benchmarks search` times."""
    databases.mkdir(exist_ok=True)
    index_embeddings(
        databases / str(len(list(databases.iterdir()))), [EmbeddingDataset.open(folder)], progress=False
    )


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as two tables."""
    print_tables([_make_stage_table(result), _make_hour_table(result)])


def _make_stage_table(result: dict[str, Any]) -> Any:
    width, height = PHOTO
    title = f"a pair (JPEG of {width} x {height}, a caption) of {result['size']}, one core of this machine"
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
    c = result["machines"]
    title = (
        f"{result['pool']:,.0f} pairs on {c['gpus']} GPUs of {c['flops'] / 1e12:.0f} TFLOP/s, {c['cores']} cores, "
        f"{c['network'] / 1e9:g} GB/s in, {c['disk'] / 1e9:g} GB/s to and from disk: hours"
    )
    rows = []
    for name, busy in result["hours"].items():
        bound_by = max(busy, key=lambda resource: busy[resource])
        hours = (f"{busy[r]:.2f}" for r in ("network", "cores", "gpus", "disk"))
        rows.append((name, *hours, f"{busy[bound_by]:.1f}", bound_by))
    return make_table(title, ("pass",), ("network", "cores", "gpus", "disk", "takes", "bound by"), rows)
