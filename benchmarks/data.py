"""Benchmark of data: decoding and augmentation against plain Pillow, tar indexing, scene rendering."""

from __future__ import annotations

import io
import statistics
import tarfile
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import MISSING, make_table, print_tables
from prolip.data.batch import Preprocessor
from prolip.data.loader import Loader
from prolip.data.sample import Sample
from prolip.data.sources.tar_format import write_tar
from prolip.data.sources.tar_index import scan_tar
from prolip.preprocessing.augmentation import Augmentation, draw_crop, draw_jitter
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.progress import progress_bar
from prolip.scenes import Scenes, make_tokenizer, render
from prolip.scenes.world import get_world

PHOTO_SIZES = {"512 x 384": (512, 384), "1280 x 960": (1280, 960), "2560 x 1920": (2560, 1920)}
PREPROCESSING = ImagePreprocessing()
TRAIN = Preprocessor(pixels=PREPROCESSING, tokenizer=None, augmentation=Augmentation())
TEST = Preprocessor(pixels=PREPROCESSING, tokenizer=None)
SAMPLES = 1000
"""Samples of the tar file, of three files each."""
SCENES = 200
"""Scenes that a run renders or loads."""


def run(*, photos: int = 24, repeats: int = 5) -> dict[str, Any]:
    """Time decoding, augmentation, tar indexing and scene rendering in one thread; torch's threads are restored after.

    Args:
        photos: JPEGs of each size.
        repeats: Interleaved runs of each workload.

    Returns:
        photos, repeats, and rows: by name reference_seconds and ours_seconds per item (medians), times_faster.
    """
    require_positive_int(photos, "--photos")
    require_positive_int(repeats, "--repeats")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            workloads, counts = _make_workloads(photos, Path(folder))
            functions = {
                f"{name}/{kind}": function
                for name, pair in workloads.items()
                for kind, function in pair.items()
            }
            for function in functions.values():  # warm up
                function()
            with progress_bar("measuring", len(functions) * repeats, "runs") as advance:
                seconds = time_interleaved(functions, repeats, advance)
    finally:
        torch.set_num_threads(threads)
    rows = {}
    for name, pair in workloads.items():
        median = {kind: statistics.median(seconds[f"{name}/{kind}"]) / counts[name] for kind in pair}
        rows[name] = {f"{kind}_seconds": value for kind, value in median.items()}
        if "reference" in median:
            rows[name]["times_faster"] = median["reference"] / median["ours"]
    return {"photos": photos, "repeats": repeats, "rows": rows}


def print_result(result: dict[str, Any]) -> None:
    """Print the result of `run` as a table."""
    rows = [
        (
            name,
            f"{1 / row['reference_seconds']:,.0f}" if "reference_seconds" in row else MISSING,
            f"{1 / row['ours_seconds']:,.0f}",
            f"{row['times_faster']:.2f}" if "times_faster" in row else MISSING,
        )
        for name, row in result["rows"].items()
    ]
    title = f"one core, medians of {result['repeats']}; rates are per second"
    print_tables([make_table(title, ("stage",), ("reference", "ours", "times faster"), rows)])


Workloads = dict[str, dict[str, Callable[[], Any]]]
"""By name {"ours": function}, with "reference": function where there is one."""


def _make_workloads(num_photos: int, folder: Path) -> tuple[Workloads, dict[str, int]]:
    """Make the functions to time, and count by name the items that a call processes; writes a tar file to `folder`."""
    workloads: Workloads = {}
    counts: dict[str, int] = {}
    for name, (width, height) in PHOTO_SIZES.items():
        files = [make_photo(width, height, seed) for seed in range(num_photos)]
        workloads[f"training, JPEG {name}"] = {
            "reference": partial(_process_all, plain_training, files),
            "ours": partial(_process_all, partial(_preprocess, TRAIN), files),
        }
        workloads[f"evaluation, JPEG {name}"] = {
            "reference": partial(_process_all, plain_evaluation, files),
            "ours": partial(_process_all, partial(_preprocess, TEST), files),
        }
    counts |= dict.fromkeys(workloads, num_photos)
    tar = folder / "shard.tar"
    sample_files = {"jpg": b"x" * 3000, "txt": b"a text", "json": b"{}"}
    write_tar(tar, ((f"{i:08d}", sample_files) for i in range(SAMPLES)))
    workloads["files in a tar, indexed"] = {
        "reference": partial(list_tar_members, tar),
        "ours": partial(_scan_tar, tar),
    }
    counts["files in a tar, indexed"] = SAMPLES * len(sample_files)
    for level, size in (("simple", 48), ("hard", 48), ("hard", 224)):
        workloads[f"{level} scenes of {size} pixels, rendered"] = {
            "ours": partial(_render_scenes, level, size)
        }
        counts[f"{level} scenes of {size} pixels, rendered"] = SCENES
    workloads["hard scenes of 48 pixels, batches"] = {"ours": _load_batches}
    counts["hard scenes of 48 pixels, batches"] = SCENES
    return workloads, counts


def _load_batches() -> None:
    """Load batches of scenes as for a training step (pixels, one of four captions, tokens), in this process."""
    preprocessor = Preprocessor(pixels=ImagePreprocessing(size=48), tokenizer=_make_tokenizer())
    for _ in Loader(
        Scenes("hard", length=SCENES, size=48), preprocessor, global_batch_size=SCENES, shuffle=False
    ):
        pass


@lru_cache(maxsize=1)
def _make_tokenizer() -> Tokenizer:
    """The tokenizer of scenes, made once: making it is not timed."""
    return make_tokenizer()


def _process_all(process: Callable[[bytes, int], Tensor], files: list[bytes]) -> None:
    """Call process(file, seed) on each encoded image; its number is the seed."""
    for seed, file in enumerate(files):
        process(file, seed)


def _render_scenes(level: str, size: int) -> None:
    """Draw and render `SCENES` scenes of a world (simple or hard) at `size` pixels."""
    for index in range(SCENES):
        render(get_world(level).draw_scene(0, index), size)


def make_photo(width: int, height: int, seed: int) -> bytes:
    """Make a JPEG with the detail of a photograph: noise whose power falls with frequency.

    Args:
        width, height: Pixels.
        seed: Seed of the noise.

    Returns:
        The encoded file.
    """
    rng = np.random.default_rng(seed)
    layers = np.zeros((height, width, 3))
    for step in (4, 8, 16, 32, 64, 128):
        small = rng.standard_normal((height // step + 2, width // step + 2, 3))
        small = (small - small.min()) / np.ptp(small) * 255
        layer = Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
        layers += (np.asarray(layer, dtype=np.float64) - 128) * step / 128
    levels = (128 + layers).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, format="jpeg", quality=90)
    return file.getvalue()


def plain_training(file: bytes, seed: int) -> Tensor:
    """Augment as the paper does, in plain Pillow: crop, resize, jitter (hue by NumPy), grayscale; returns (3, S, S)."""
    generator = torch.Generator().manual_seed(seed)
    augmentation = Augmentation()
    image = Image.open(io.BytesIO(file)).convert("RGB")
    left, top, width, height = draw_crop(image.width, image.height, augmentation, generator)
    image = image.crop((left, top, left + width, top + height)).resize(
        (PREPROCESSING.size,) * 2, Image.Resampling.BICUBIC
    )
    if torch.rand((), generator=generator, dtype=torch.float64) < augmentation.jitter_probability:
        for name, amount in draw_jitter(augmentation, generator):
            image = _shift_hue(image, amount) if name == "hue" else ENHANCERS[name](image).enhance(amount)
    if torch.rand((), generator=generator, dtype=torch.float64) < augmentation.grayscale_probability:
        image = image.convert("L").convert("RGB")
    return _to_tensor(image)


def plain_evaluation(file: bytes, seed: int) -> Tensor:
    """Resize the short side to S = 224 and crop the center, in plain Pillow; returns (3, S, S). `seed` is not used."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    scale = PREPROCESSING.size / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    size = PREPROCESSING.size
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return _to_tensor(image.crop((left, top, left + size, top + size)))


def list_tar_members(path: Path) -> list[tuple[str, int, int]]:
    """Name, offset and size of each member of a tar file, read by `tarfile`."""
    with tarfile.open(path) as tar:
        return [(member.name, member.offset_data, member.size) for member in tar]


def _scan_tar(path: Path) -> Any:
    """Index a tar file as the package does."""
    with open(path, "rb") as file:
        return scan_tar(file.fileno())


ENHANCERS: dict[str, Any] = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}
"""Pillow's class for each kind of jitter but hue, which Pillow lacks."""


def _shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Shift the hue by a fraction of the color circle, by way of HSV."""
    hue, saturation, value = image.convert("HSV").split()
    shifted = (np.asarray(hue).astype(np.int16) + round(shift * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(shifted.astype(np.uint8)), saturation, value)).convert("RGB")


def _to_tensor(image: Image.Image) -> Tensor:
    """Pixels as uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _preprocess(preprocessor: Preprocessor, file: bytes, seed: int) -> Tensor:
    """Pixels (3, S, S) of an encoded image, as the package makes them; the seed draws the augmentation."""
    return preprocessor.process(Sample("", "", file, ()), seed).pixels
