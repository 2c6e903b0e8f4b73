"""Pictures that grow, segment by segment, from a blank canvas to the whole: HierarImgs, by the paper's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prolip import progress
from prolip.checks import require_positive_int
from prolip.data.sample import BadSampleError
from prolip.data.sources.coco import SegmentedImage, decode_mask, read_instances
from prolip.data.sources.columns import require_image_file
from prolip.files import write_json
from prolip.preprocessing.images import read_image

LEAST_PIXELS = 5000
LEVELS = 3
WHITE = 255


@dataclass(frozen=True, slots=True)
class Built:
    """What `build` made. left_out: images, by reason. crowds: segments that COCO marks as crowds, not used."""

    index: Path
    kept: int
    left_out: dict[str, int]
    crowds: int


def eligible(masks: Sequence[np.ndarray], min_pixels: int = LEAST_PIXELS, levels: int = LEVELS) -> bool:
    """Whether an image with these segments, bool (H, W) each, is used.

    It has a segment for each level, and its smallest segment has more than `min_pixels` pixels.
    """
    _check_least(min_pixels)
    return _objection(masks, min_pixels, levels) is None


def paste_levels(
    image: np.ndarray, masks: Sequence[np.ndarray], levels: int = LEVELS, canvas: int = WHITE
) -> list[np.ndarray]:
    """The largest segment on a blank canvas, then the two largest, ...: `levels` pictures of the image's shape.

    image: uint8 (H, W, 3). masks: bool (H, W) each; of equally large ones the first counts as larger.
    canvas: its grey level, 0 to 255.
    """
    _check_rules(levels, canvas)
    _check_picture(image, masks, levels)
    picture = np.full_like(image, canvas)
    pictures = []
    for number in _largest_first(masks)[:levels]:
        picture = np.where(masks[number][..., None], image, picture)
        pictures.append(picture)
    return pictures


def build(
    annotations: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    min_pixels: int = LEAST_PIXELS,
    levels: int = LEVELS,
    canvas: int = WHITE,
    show: bool | None = None,
) -> Built:
    """From a COCO instances file and its images to `<out>/<image>/original.png, level-0.png, ...`, and index.json.

    Areas are counted in the masks; the file's "area" is not used. Crowds are no segments. An image that is missing or
    damaged is left out and counted. index.json comes last: without it, `out` is not whole.
    show: the progress bar; None: if stderr is a terminal.
    """
    annotations, images, out = Path(annotations), Path(images), Path(out)
    _check_least(min_pixels)
    _check_rules(levels, canvas)
    entries = read_instances(annotations)
    _check_folders(entries, annotations, images, out)
    kept: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    with progress.progress_bar("pasting segments", len(entries), "images", show) as advance:
        for entry in entries:
            outcome = _build_one(entry, annotations, images, out, (min_pixels, levels, canvas))
            if isinstance(outcome, str):
                left_out[outcome] += 1
            else:
                kept.append(outcome)
            advance(1)
    crowds = sum(segment.crowd for entry in entries for segment in entry.segments)
    index = {
        "annotations": annotations.name,
        "min_pixels": min_pixels,
        "levels": levels,
        "canvas": canvas,
        "left_out": dict(left_out),
        "crowd_segments_left_out": crowds,
        "images": kept,
    }
    return Built(write_json(out / "index.json", index), len(kept), dict(left_out), crowds)


def _build_one(
    entry: SegmentedImage, annotations: Path, images: Path, out: Path, rules: tuple[int, int, int]
) -> dict[str, Any] | str:
    """What the index says of an image, whose pictures are then written; or why it is left out."""
    min_pixels, levels, canvas = rules
    try:
        segments = [segment for segment in entry.segments if not segment.crowd]
        masks = [decode_mask(segment, entry.height, entry.width) for segment in segments]
    except ValueError as error:
        raise ValueError(f"{annotations}: {error}") from None
    if (objection := _objection(masks, min_pixels, levels)) is not None:
        return objection
    try:
        image = np.asarray(read_image(require_image_file(images / entry.file_name, entry.file_name)))
    except BadSampleError as error:
        return error.record.reason
    except ValueError:
        return "unreadable image"
    if image.shape[:2] != (entry.height, entry.width):
        return "not of the size that its annotations say"
    pictures = {"original": image}
    for level, picture in enumerate(paste_levels(image, masks, levels, canvas)):
        pictures[f"level-{level}"] = picture
    folder = Path(entry.file_name).stem
    (out / folder).mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        Image.fromarray(picture).save(out / folder / f"{name}.png")
    order = _largest_first(masks)[:levels]
    return {
        "image_id": entry.id,
        "original": f"{folder}/original.png",
        "levels": [f"{folder}/level-{level}.png" for level in range(levels)],
        "areas": [int(masks[number].sum()) for number in order],
        "categories": [segments[number].category for number in order],
    }


def _objection(masks: Sequence[np.ndarray], min_pixels: int, levels: int) -> str | None:
    if len(masks) < levels:
        return f"fewer than {levels} segments"
    if min(int(mask.sum()) for mask in masks) <= min_pixels:
        return f"a segment of {min_pixels} pixels or fewer"
    return None


def _largest_first(masks: Sequence[np.ndarray]) -> list[int]:
    areas = [int(mask.sum()) for mask in masks]
    # sorting is stable: ties stay in the order of the file
    return sorted(range(len(masks)), key=lambda number: -areas[number])


def _check_least(min_pixels: object) -> None:
    if not isinstance(min_pixels, int) or isinstance(min_pixels, bool) or min_pixels < 0:
        raise ValueError(f"min_pixels must be a whole number of at least 0, not {min_pixels!r}")


def _check_rules(levels: int, canvas: int) -> None:
    require_positive_int(levels, "levels", maximum=100)
    if not isinstance(canvas, int) or not 0 <= canvas <= 255:
        raise ValueError(f"canvas must be a grey level from 0 to 255, not {canvas}")


def _check_picture(image: np.ndarray, masks: Sequence[np.ndarray], levels: int) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"the image must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    for number, mask in enumerate(masks):
        if mask.dtype != np.bool_ or mask.shape != image.shape[:2]:
            raise ValueError(f"mask {number} must be bool {image.shape[:2]}, not {mask.dtype} {mask.shape}")
    if len(masks) < levels:
        raise ValueError(f"{levels} levels need as many segments; there are {len(masks)}")


def _check_folders(entries: Sequence[SegmentedImage], annotations: Path, images: Path, out: Path) -> None:
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: there is no such folder")
    if (out / "index.json").exists():
        raise FileExistsError(
            f"{out} holds an index.json of an earlier build; delete it, or give another folder"
        )
    stems: Counter[str] = Counter(Path(entry.file_name).stem for entry in entries)
    if stems and (most := stems.most_common(1)[0])[1] > 1:
        raise ValueError(
            f"{annotations}: {most[1]} images are called {most[0]!r}; their folders would be one"
        )
    if odd := stems.keys() & {"", ".", "..", "index.json"}:
        raise ValueError(f"{annotations}: an image can't be called {odd.pop()!r}: its folder gets that name")
