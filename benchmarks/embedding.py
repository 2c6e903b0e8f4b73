"""Benchmark of embedding end to end: `prolip embed` of a shard against the model alone on prepared batches."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.data import make_photo
from benchmarks.text_length import draw_captions, make_model
from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.data.open import open_data
from prolip.data.source import Source
from prolip.data.sources.tar_format import write_tar
from prolip.embeddings.embed import embed
from prolip.embeddings.identity import model_identity
from prolip.embeddings.inference_loop import prepare_sample
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalize

MODEL, EMBED, IDENTITY = "model alone", "prolip embed", "hash of the model"
PHOTO = (512, 384)
"""Width and height of an image of a pool, as img2dataset stores them."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRates:
    """Pairs per second of `prolip embed`, against the model alone.

    Attributes:
        size, pairs, batch, threads: Of the model, the number of pairs, pairs per forward pass, threads of torch.
        seconds, cpu_seconds: Medians, by what was timed. CPU time is of all threads: it counts reading and decoding
            beside the model in full, and not the time that other processes take.
        of_model, cpu_of_model: The model's time as a fraction of that of `prolip embed` without the hash of the model,
            which is computed once, however many pairs there are.
        decode_seconds: Seconds to read and decode an image, on one thread.
    """

    size: str
    pairs: int
    batch: int
    threads: int
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    of_model: float
    cpu_of_model: float
    decode_seconds: float


def run(*, size: str = "ViT-B-16-768", pairs: int = 64, batch: int = 16, repeats: int = 3) -> EmbeddingRates:
    """Time embedding a shard of JPEGs with captions, from the file to Parquet, against the towers alone.

    Args:
        size: A model size (docs/models.md).
        pairs: Images with a caption.
        batch: Pairs per forward pass.
        repeats: Interleaved runs of each.

    Returns:
        The rates. Threads of torch are as the process has them: they are not measured.
    """
    for value, option in ((pairs, "--pairs"), (batch, "--batch"), (repeats, "--repeats")):
        require_positive_int(value, option)
    model = make_model(size)
    with tempfile.TemporaryDirectory() as folder:
        source = write_shard(Path(folder), pairs)
        runs = iter(range(2 + repeats))
        works: dict[str, Callable[[], object]] = {
            MODEL: partial(encode_prepared, model, *prepare_all(model, source), batch),
            EMBED: lambda: embed(
                model, source, Path(folder) / f"out{next(runs)}", batch_size=batch, text_batch_size=batch,
                progress=False,
            ),
            IDENTITY: partial(model_identity, model),
        }  # fmt: skip
        start = time.perf_counter()
        prepare_all(model, source)
        decode_seconds = (time.perf_counter() - start) / pairs
        works[EMBED]()
        cpu_times: dict[str, list[float]] = {name: [] for name in works}
        timed = {name: partial(_run_with_cpu_time, work, cpu_times[name]) for name, work in works.items()}
        times = time_interleaved(timed, repeats)
    seconds, cpu_seconds = (
        {name: statistics.median(runs) for name, runs in kind.items()} for kind in (times, cpu_times)
    )
    return EmbeddingRates(
        size=size, pairs=pairs, batch=batch, threads=torch.get_num_threads(), seconds=seconds, cpu_seconds=cpu_seconds,
        of_model=compute_fraction(seconds), cpu_of_model=compute_fraction(cpu_seconds), decode_seconds=decode_seconds,
    )  # fmt: skip


def compute_fraction(seconds: Mapping[str, float]) -> float:
    """The model's time as a fraction of that of `prolip embed` without the hash of the model."""
    return seconds[MODEL] / (seconds[EMBED] - seconds[IDENTITY])


def _run_with_cpu_time(work: Callable[[], object], times: list[float]) -> None:
    """Call a function, and append the CPU time of this process."""
    start = time.process_time()
    work()
    times.append(time.process_time() - start)


def write_shard(folder: Path, pairs: int) -> Source:
    """Write a shard of JPEGs with captions to a folder, and open it."""
    captions = draw_captions(pairs)
    photos = [make_photo(*PHOTO, seed) for seed in range(min(pairs, 8))]
    files = (
        (f"{i:06d}", {"jpg": photos[i % len(photos)], "txt": captions[i].encode()}) for i in range(pairs)
    )
    write_tar(folder / "shard.tar", files)
    return open_data(folder / "shard.tar")


def prepare_all(model: ProLIP, source: Source) -> tuple[torch.Tensor, list[str]]:
    """Pixels (N, 3, S, S), uint8, and captions of all pairs."""
    samples = [source.read(index) for index in range(len(source))]
    prepared = (prepare_sample(sample, model.config.image.preprocessing).pixels for sample in samples)
    pixels = [image for image in prepared if image is not None]
    return torch.stack(pixels), [sample.captions[0] for sample in samples]


@torch.no_grad()
def encode_prepared(
    model: ProLIP, pixels: torch.Tensor, captions: list[str], batch: int
) -> tuple[Gaussian, Gaussian]:
    """Gaussians (N, D) of images that were read before, and of captions, batch by batch in one thread of Python."""
    images = [
        model.encode_image(normalize(block, model.config.image.preprocessing))
        for block in pixels.split(batch)
    ]
    return Gaussian.cat(images), model.embed_texts(captions, batch_size=batch, progress=False)


def print_result(result: EmbeddingRates) -> None:
    """Print what `run` returned as a table."""
    title = (
        f"{result.size}, {result.pairs} pairs (JPEG of {PHOTO[0]} x {PHOTO[1]}, one caption), batch {result.batch}, "
        f"threads of torch: {result.threads}"
    )
    table = make_table(title, ("what",), ("seconds", "CPU seconds"))
    for name, seconds in result.seconds.items():
        table.add_row(name, f"{seconds:.2f}", f"{result.cpu_seconds[name]:.2f}")
    table.add_row("model / (embed - hash)", f"{result.of_model:.0%}", f"{result.cpu_of_model:.0%}")
    table.caption = f"reading and decoding an image takes {1000 * result.decode_seconds:.1f} ms"
    print_tables([table])
