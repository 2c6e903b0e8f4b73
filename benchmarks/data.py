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

PHOTOS = {"512 x 384": (512, 384), "1280 x 960": (1280, 960), "2560 x 1920": (2560, 1920)}
RULES = ImagePreprocessing()
TRAIN = Preprocessor(pixels=RULES, tokenizer=None, augmentation=Augmentation())
TEST = Preprocessor(pixels=RULES, tokenizer=None)
SAMPLES = 1000
SCENES = 200


def run(*, photos: int = 24, repeats: int = 5) -> dict[str, Any]:
    """Seconds a picture (median), one thread; pairs of (reference, ours) in one run, in turn."""
    if photos < 1 or repeats < 1:
        raise ValueError(f"photos {photos} and repeats {repeats} must be at least 1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            pairs, each = _pairs(photos, Path(folder))
            works = {f"{name}/{who}": work for name, pair in pairs.items() for who, work in pair.items()}
            for work in works.values():
                work()
            with progress_bar("measuring", len(works) * repeats, "runs") as advance:
                seconds = time_interleaved(works, repeats, advance)
    finally:
        torch.set_num_threads(threads)
    rows = {}
    for name, pair in pairs.items():
        median = {who: statistics.median(seconds[f"{name}/{who}"]) / each[name] for who in pair}
        rows[name] = {f"{who}_seconds": value for who, value in median.items()}
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


Pairs = dict[str, dict[str, Callable[[], Any]]]


def _pairs(photos: int, folder: Path) -> tuple[Pairs, dict[str, int]]:
    """name -> {"reference": work, "ours": work}, and how many pictures or members each work goes through."""
    pairs: Pairs = {}
    each: dict[str, int] = {}
    for name, (width, height) in PHOTOS.items():
        files = [photo(width, height, seed) for seed in range(photos)]
        pairs[f"training, JPEG {name}"] = {
            "reference": partial(_all, plain_training, files),
            "ours": partial(_all, partial(_item, TRAIN), files),
        }
        pairs[f"evaluation, JPEG {name}"] = {
            "reference": partial(_all, plain_evaluation, files),
            "ours": partial(_all, partial(_item, TEST), files),
        }
    each |= dict.fromkeys(pairs, photos)
    tar = folder / "shard.tar"
    files_of_a_sample = {"jpg": b"x" * 3000, "txt": b"a text", "json": b"{}"}
    write_tar(tar, ((f"{i:08d}", files_of_a_sample) for i in range(SAMPLES)))
    pairs["files in a tar, indexed"] = {"reference": partial(plain_index, tar), "ours": partial(_index, tar)}
    each["files in a tar, indexed"] = SAMPLES * len(files_of_a_sample)
    for level, size in (("simple", 48), ("hard", 48), ("hard", 224)):
        pairs[f"{level} scenes of {size} pixels, drawn"] = {"ours": partial(_draw, level, size)}
        each[f"{level} scenes of {size} pixels, drawn"] = SCENES
    pairs["hard scenes of 48 pixels, batches"] = {"ours": _batches}
    each["hard scenes of 48 pixels, batches"] = SCENES
    return pairs, each


def _batches() -> None:
    """Pictures, one of four captions each, tokens: all that a training step needs, in this process."""
    preprocessor = Preprocessor(pixels=ImagePreprocessing(size=48), tokenizer=_tokens())
    for _ in Loader(
        Scenes("hard", length=SCENES, size=48), preprocessor, global_batch_size=SCENES, shuffle=False
    ):
        pass


@lru_cache(maxsize=1)
def _tokens() -> Tokenizer:
    return make_tokenizer()


def _all(work: Callable[[bytes, int], Tensor], files: list[bytes]) -> None:
    for seed, file in enumerate(files):
        work(file, seed)


def _draw(level: str, size: int) -> None:
    for index in range(SCENES):
        render(get_world(level).draw_scene(0, index), size)


def photo(width: int, height: int, seed: int) -> bytes:
    """A JPEG with the detail of a photograph: noise whose power falls with frequency, as in nature."""
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
    """The paper's augmentation as one would write it: crop, resize, ImageEnhance, hue through NumPy, grayscale."""
    generator = torch.Generator().manual_seed(seed)
    augmentation = Augmentation()
    image = Image.open(io.BytesIO(file)).convert("RGB")
    left, top, width, height = draw_crop(image.width, image.height, augmentation, generator)
    image = image.crop((left, top, left + width, top + height)).resize(
        (RULES.size,) * 2, Image.Resampling.BICUBIC
    )
    if torch.rand((), generator=generator, dtype=torch.float64) < augmentation.jitter_probability:
        for name, amount in draw_jitter(augmentation, generator):
            image = _plain_hue(image, amount) if name == "hue" else ENHANCERS[name](image).enhance(amount)
    if torch.rand((), generator=generator, dtype=torch.float64) < augmentation.grayscale_probability:
        image = image.convert("L").convert("RGB")
    return _plain_tensor(image)


def plain_evaluation(file: bytes, seed: int) -> Tensor:
    """Short side to 224, the middle cut out."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    scale = RULES.size / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - RULES.size) // 2, (image.height - RULES.size) // 2
    return _plain_tensor(image.crop((left, top, left + RULES.size, top + RULES.size)))


def plain_index(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path) as tar:
        return [(member.name, member.offset_data, member.size) for member in tar]


def _index(path: Path) -> Any:
    with open(path, "rb") as file:
        return scan_tar(file.fileno())


ENHANCERS: dict[str, Any] = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def _plain_hue(image: Image.Image, shift: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + round(shift * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")


def _plain_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _item(preprocessor: Preprocessor, file: bytes, seed: int) -> Tensor:
    return preprocessor.process(Sample("", "", file, ()), seed).pixels
