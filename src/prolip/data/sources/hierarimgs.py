"""HierarImgs: images built up from their largest segments on a blank canvas; making and reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from PIL import Image

from prolip import progress
from prolip.configs import takes_config
from prolip.data.config import (
    LEVELS,
    MIN_PIXELS,
    WHITE,
    HierarImgsBuildConfig,
    check_levels_and_canvas,
    check_min_pixels,
)
from prolip.data.sample import BadSampleError
from prolip.data.sources.coco import Id, SegmentedImage, decode_mask, read_instances
from prolip.data.sources.columns import require_image_file
from prolip.files import read_json, write_json
from prolip.preprocessing.images import read_image


@dataclass(frozen=True, kw_only=True)
class HierarImgs:
    """N images of K levels.

    path:      the index.json.
    originals: files of the N original images.
    levels:    K tuples of N files each; level 0 shows the largest segment only.
    """

    path: Path
    originals: tuple[Path, ...]
    levels: tuple[tuple[Path, ...], ...]


@dataclass(frozen=True, slots=True)
class HierarImgsSummary:
    """What `build_hierarimgs` made.

    index:      the path of index.json.
    num_images: number of images that were written.
    left_out:   number of images that were not used, by reason.
    crowds:     number of segments that COCO marks as crowds; they are not used.
    """

    index: Path
    num_images: int
    left_out: dict[str, int]
    crowds: int


def is_eligible(masks: Sequence[np.ndarray], min_pixels: int = MIN_PIXELS, levels: int = LEVELS) -> bool:
    """Return whether an image is used: it has a segment for each level, and none is too small.

    Args:
        masks: masks of its segments, bool (H, W) each.
        min_pixels: the smallest segment must have more than this.
        levels: number of levels.

    Returns:
        Whether it is used.
    """
    check_min_pixels(min_pixels)
    return _find_exclusion_reason(masks, min_pixels, levels) is None


def paste_levels(
    image: np.ndarray, masks: Sequence[np.ndarray], levels: int = LEVELS, canvas: int = WHITE
) -> list[np.ndarray]:
    """Paste the largest segment onto a blank canvas, then the two largest, and so on.

    Args:
        image: uint8 (H, W, 3).
        masks: masks of its segments, bool (H, W) each; of equally large ones the first counts as larger.
        levels: number of images to make.
        canvas: gray level of the canvas, 0 to 255.

    Returns:
        One image per level, uint8 (H, W, 3).

    Raises:
        ValueError: If there are fewer masks than levels, or if shapes or dtypes differ from these.
    """
    check_levels_and_canvas(levels, canvas)
    _check_image_and_masks(image, masks, levels)
    pixels = np.full_like(image, canvas)
    results = []
    for number in _order_by_area(masks)[:levels]:
        pixels = np.where(masks[number][..., None], image, pixels)
        results.append(pixels)
    return results


@takes_config(HierarImgsBuildConfig)
def build_hierarimgs(
    annotations: str | Path, images: str | Path, out: str | Path, config: HierarImgsBuildConfig
) -> HierarImgsSummary:
    """Build HierarImgs from a COCO instances file: `<out>/<image>/original.png, level-0.png, ...` and index.json.

    Areas are counted in the masks; the file's "area" is not used. Crowds are not segments. An image that is missing or
    damaged is skipped and counted. index.json is written last: without it, `out` is incomplete.

    Args:
        annotations: the instances file.
        images: the folder of its images.
        out: the folder to write.
        config: which images are used, and how many levels are made of each; or its fields as keywords.

    Returns:
        What was made.

    Raises:
        FileNotFoundError: If the folder of images or the file does not exist.
        FileExistsError: If `out` has an index.json.
        ValueError: If the file is malformed, or if two images would be written to one folder.
    """
    annotations, images, out = Path(annotations), Path(images), Path(out)
    entries = read_instances(annotations)
    _check_folders(entries, annotations, images, out)
    index_entries: list[_IndexEntry] = []
    left_out: Counter[str] = Counter()
    with progress.progress_bar("pasting segments", len(entries), "images", config.progress) as advance:
        for entry in entries:
            outcome = _build_levels_of_image(
                entry, annotations, images, out,
                min_pixels=config.min_pixels, levels=config.levels, canvas=config.canvas,
            )  # fmt: skip
            if isinstance(outcome, str):
                left_out[outcome] += 1
            else:
                index_entries.append(outcome)
            advance(1)
    crowds = sum(segment.crowd for entry in entries for segment in entry.segments)
    index = {
        "annotations": annotations.name,
        "min_pixels": config.min_pixels,
        "levels": config.levels,
        "canvas": config.canvas,
        "left_out": dict(left_out),
        "crowd_segments_left_out": crowds,
        "images": index_entries,
    }
    return HierarImgsSummary(
        write_json(out / "index.json", index), len(index_entries), dict(left_out), crowds
    )


def read_hierarimgs(path: str | Path) -> HierarImgs:
    """Read what `build_hierarimgs` (`prolip data hierarimgs`) wrote.

    Args:
        path: the folder, or its index.json.

    Returns:
        The paths of its images; the files themselves are not checked.

    Raises:
        ValueError: If the index is malformed.
    """
    path = Path(path).expanduser()
    index = path / "index.json" if path.is_dir() else path
    entries = read_json(index).get("images")
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{index} lists no images. Make it with `prolip data hierarimgs`.")
    try:
        originals = tuple(index.parent / entry["original"] for entry in entries)
        levels_by_image = [tuple(index.parent / name for name in entry["levels"]) for entry in entries]
    except (KeyError, TypeError):
        raise ValueError(f'{index}: each image must have "original" and "levels"') from None
    if len({len(levels) for levels in levels_by_image}) != 1 or not levels_by_image[0]:
        raise ValueError(f"{index}: all images must have the same number of levels, at least one")
    return HierarImgs(path=index, originals=originals, levels=tuple(zip(*levels_by_image, strict=True)))


class _IndexEntry(TypedDict):
    """An entry of "images" of index.json; paths are relative to it, and areas are in pixels."""

    image_id: Id
    original: str
    levels: list[str]
    areas: list[int]
    categories: list[str]


def _build_levels_of_image(
    entry: SegmentedImage, annotations: Path, images: Path, out: Path,
    *, min_pixels: int, levels: int, canvas: int,
) -> _IndexEntry | str:  # fmt: skip
    """Write the files of one image below `out`, and return its entry of index.json.

    If the image is not used, nothing is written, and the reason is returned as text. ValueError if a mask is
    malformed.
    """
    try:
        segments = [segment for segment in entry.segments if not segment.crowd]
        masks = [decode_mask(segment, entry.height, entry.width) for segment in segments]
    except ValueError as error:
        raise ValueError(f"{annotations}: {error}") from None
    if (reason := _find_exclusion_reason(masks, min_pixels, levels)) is not None:
        return reason
    try:
        image = np.asarray(read_image(require_image_file(images / entry.file_name, entry.file_name)))
    except BadSampleError as error:
        return error.record.reason
    except ValueError:
        return "unreadable image"
    if image.shape[:2] != (entry.height, entry.width):
        return "not of the size that the annotations give"
    files = {"original": image}
    for level, pixels in enumerate(paste_levels(image, masks, levels, canvas)):
        files[f"level-{level}"] = pixels
    folder = Path(entry.file_name).stem
    (out / folder).mkdir(parents=True, exist_ok=True)
    for name, pixels in files.items():
        Image.fromarray(pixels).save(out / folder / f"{name}.png")
    order = _order_by_area(masks)[:levels]
    return {
        "image_id": entry.id,
        "original": f"{folder}/original.png",
        "levels": [f"{folder}/level-{level}.png" for level in range(levels)],
        "areas": [int(masks[number].sum()) for number in order],
        "categories": [segments[number].category for number in order],
    }


def _find_exclusion_reason(masks: Sequence[np.ndarray], min_pixels: int, levels: int) -> str | None:
    """Why an image with these masks is not used, as text; None if it is eligible."""
    if len(masks) < levels:
        return f"fewer than {levels} segments"
    if min(int(mask.sum()) for mask in masks) <= min_pixels:
        return f"a segment of {min_pixels} pixels or fewer"
    return None


def _order_by_area(masks: Sequence[np.ndarray]) -> list[int]:
    """Indices of masks by decreasing number of pixels; equally large ones stay in their order."""
    areas = [int(mask.sum()) for mask in masks]
    return sorted(range(len(masks)), key=lambda number: -areas[number])


def _check_image_and_masks(image: np.ndarray, masks: Sequence[np.ndarray], levels: int) -> None:
    """Raise ValueError unless the image is uint8 (H, W, 3) and there is a mask, bool (H, W), for each level."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"the image must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
    for number, mask in enumerate(masks):
        if mask.dtype != np.bool_ or mask.shape != image.shape[:2]:
            raise ValueError(f"mask {number} must be bool {image.shape[:2]}, not {mask.dtype} {mask.shape}")
    if len(masks) < levels:
        raise ValueError(
            f"{levels} levels need at least {levels} masks, one per segment; there are {len(masks)}"
        )


def _check_folders(entries: Sequence[SegmentedImage], annotations: Path, images: Path, out: Path) -> None:
    """Check the folders of `build_hierarimgs`, and that each image can have a folder of its own in `out`.

    The folder is named as the image, without its folder and extension. FileNotFoundError if `images` doesn't exist,
    FileExistsError if `out` has an index.json, ValueError if two images have the same name or one is no folder name.
    """
    if not images.is_dir():
        raise FileNotFoundError(f"{images}: no such folder")
    if (out / "index.json").exists():
        raise FileExistsError(
            f"{out} has an index.json of an earlier build. Delete that folder, or write to another one."
        )
    stems: Counter[str] = Counter(Path(entry.file_name).stem for entry in entries)
    stem, count = stems.most_common(1)[0] if stems else ("", 0)
    if count > 1:
        raise ValueError(
            f"{annotations}: {count} images are called {stem!r}; they would be written to one folder"
        )
    if invalid_names := stems.keys() & {"", ".", "..", "index.json"}:
        raise ValueError(
            f"{annotations}: an image can't be called {invalid_names.pop()!r}, because its folder gets that name"
        )
