"""Benchmark of decoding for embedding: fast against exact, in time, and in what becomes of the embeddings."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import get_args

import torch
from PIL import Image
from torch import Tensor

from benchmarks.data import make_photo
from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.choices import Decoding
from prolip.console import make_table, print_tables
from prolip.data.batch import decode_image
from prolip.data.open import open_data
from prolip.data.sample import Sample
from prolip.embeddings.inference_loop import prepare_sample
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing, normalize
from prolip.weights.load import load

WIDTH, HEIGHT, GRID, QUALITY = 1280, 960, 4, 90
SIZES = ((512, 384), (1280, 960), (2560, 1920))
NEIGHBORS = 10


@dataclass(frozen=True, kw_only=True)
class EmbeddingChange:
    """How fast decoding changes the embeddings of images.

    Attributes:
        cosine, least_cosine: Of the two means of each image: mean and least.
        same_first: Fraction of images whose nearest other image, by cosine, stays the same.
        common_neighbors: Mean fraction of the ten nearest that stay among the ten nearest.
        uncertainty_factor: Largest factor between the two uncertainties of an image.
    """

    cosine: float
    least_cosine: float
    same_first: float
    common_neighbors: float
    uncertainty_factor: float


@dataclass(frozen=True, kw_only=True)
class DecodingResult:
    """Time per image by size and way of decoding (median seconds), and the change of embeddings by kind of image."""

    seconds: dict[str, dict[str, float]]
    changes: dict[str, EmbeddingChange]
    model: str
    data: str
    images: int


def run(
    *, model: str = "photos-small", data: str | None = None, images: int = 100, repeats: int = 5
) -> DecodingResult:
    """Time reading images for the model with each way of decoding, and compare the embeddings.

    Args:
        model: What `prolip.load` takes.
        data: Images to compare embeddings on, which are made large in two ways; None: noise like photographs.
        images: Number of images of each kind.
        repeats: Interleaved runs of each.

    Returns:
        Seconds per image, on one thread, and the changes.
    """
    require_positive_int(images, "--images")
    require_positive_int(repeats, "--repeats")
    network = load(model, device="cpu").eval()
    preprocessing = network.config.image.preprocessing
    seconds = {}
    for width, height in SIZES:
        files = [make_photo(width, height, seed) for seed in range(8)]
        works: dict[str, Callable[[], object]] = {
            decode: partial(_read_all, files, preprocessing, decode) for decode in get_args(Decoding)
        }
        times = time_interleaved(works, repeats, group=f"{width} x {height}")
        seconds[f"{width} x {height}"] = {
            name: statistics.median(runs) / len(files) for name, runs in times.items()
        }
    kinds = {
        kind: [_encode(image) for image in large] for kind, large in _make_large_images(data, images).items()
    }
    return DecodingResult(
        seconds=seconds,
        changes={kind: measure_change(network, files) for kind, files in kinds.items()},
        model=model,
        data=data or "noise",
        images=images,
    )


def measure_change(model: ProLIP, files: Sequence[bytes]) -> EmbeddingChange:
    """Embed images with either decoding, and compare.

    Args:
        model: The model.
        files: Encoded images, at least two.

    Returns:
        The change.
    """
    preprocessing = model.config.image.preprocessing
    exact, fast = (_embed(model, _read_all(files, preprocessing, decode)) for decode in get_args(Decoding))
    cosine = torch.nn.functional.cosine_similarity(exact.mean, fast.mean)
    count = min(NEIGHBORS, len(files) - 1)
    neighbors = [_find_nearest(z.mean, count) for z in (exact, fast)]
    common = [len(set(a.tolist()) & set(b.tolist())) / count for a, b in zip(*neighbors, strict=True)]
    factors = (exact.uncertainty / fast.uncertainty).log().abs().exp()
    return EmbeddingChange(
        cosine=cosine.mean().item(), least_cosine=cosine.min().item(),
        same_first=(neighbors[0][:, 0] == neighbors[1][:, 0]).float().mean().item(),
        common_neighbors=statistics.mean(common), uncertainty_factor=factors.max().item(),
    )  # fmt: skip


def print_result(result: DecodingResult) -> None:
    """Print what `run` returned as tables."""
    speed = make_table(
        "from a JPEG to the model's pixels, one thread, medians", ("size",), ("exact", "fast", "times faster")
    )
    for size, times in result.seconds.items():
        milliseconds = [f"{1000 * seconds:.2f} ms" for seconds in times.values()]
        speed.add_row(size, *milliseconds, f"{times['exact'] / times['fast']:.2f}")
    changes = make_table(
        f"{result.model}, {result.data}: {result.images} images of {WIDTH} x {HEIGHT} of each kind, fast against exact",
        ("images",),
        ("cosine", "least cosine", "same nearest", "of ten nearest", "uncertainty, at most"),
    )
    for kind, change in result.changes.items():
        changes.add_row(
            kind, f"{change.cosine:.5f}", f"{change.least_cosine:.5f}", f"{change.same_first:.0%}",
            f"{change.common_neighbors:.0%}", f"x {change.uncertainty_factor:.4f}",
        )  # fmt: skip
    print_tables([speed, changes])


def _read_all(files: Sequence[bytes], preprocessing: ImagePreprocessing, decode: Decoding) -> list[Tensor]:
    """Pixels of encoded images, as `prolip embed` reads them."""
    prepared = (prepare_sample(Sample("", "", file, ()), preprocessing, decode).pixels for file in files)
    return [pixels for pixels in prepared if pixels is not None]


@torch.no_grad()
def _embed(model: ProLIP, pixels: Sequence[Tensor]) -> Gaussian:
    """Gaussians (N, D) of pixels, in batches."""
    batches = [
        model.encode_image(normalize(torch.stack(list(pixels[i : i + 16])), model.config.image.preprocessing))
        for i in range(0, len(pixels), 16)
    ]
    return Gaussian.cat(batches)


def _find_nearest(mean: Tensor, count: int) -> Tensor:
    """Indices (N, count) of the nearest other rows, by cosine."""
    return (mean @ mean.mT).fill_diagonal_(-2.0).topk(count).indices


def _make_large_images(data: str | None, count: int) -> dict[str, list[Image.Image]]:
    """Large images of two kinds: enlarged ones, which lack fine detail, and sheets of 16 images, which are full of it.

    Of noise: as it is, because it has detail at every size.
    """
    if data is None:
        return {"noise": [Image.open(io.BytesIO(make_photo(WIDTH, HEIGHT, seed))) for seed in range(count)]}
    source = open_data(data, captions=())
    small = [decode_image(source.read(index)) for index in range(min(len(source), GRID**2 * count))]
    return {
        "enlarged": [image.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC) for image in small[:count]],
        f"sheets of {GRID**2}": list(islice(_iter_sheets(small), count)),
    }


def _iter_sheets(images: Sequence[Image.Image]) -> cycle[Image.Image]:
    """Iterate without end over sheets of GRID x GRID images."""
    tile = (WIDTH // GRID, HEIGHT // GRID)
    sheets = []
    for first in range(0, max(1, len(images) - GRID**2 + 1), GRID**2):
        sheet = Image.new("RGB", (WIDTH, HEIGHT))
        for place, image in enumerate(islice(cycle(images[first:]), GRID**2)):
            row, column = divmod(place, GRID)
            sheet.paste(image.resize(tile, Image.Resampling.BICUBIC), (column * tile[0], row * tile[1]))
        sheets.append(sheet)
    return cycle(sheets)


def _encode(image: Image.Image) -> bytes:
    """An image as JPEG."""
    file = io.BytesIO()
    image.convert("RGB").save(file, format="jpeg", quality=QUALITY)
    return file.getvalue()
