"""COCO annotation files: captions as a source; instances with their masks (polygons, RLE)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeGuard

import numpy as np

from prolip.data.sample import BadSampleError, Sample, parse_captions
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import require_sample_file, resolve_image_path
from prolip.files import read_json
from prolip.preprocessing.images import MAX_PIXELS

Id = int | str
"""Id of an image, an annotation or a category."""


class RunLengths(TypedDict):
    """A mask as COCO's run lengths: column by column from the left (off, on, off, ...), and [H, W]."""

    counts: list[int]
    size: list[int]


class InstanceAnnotation(TypedDict):
    """An entry of "annotations" of an instances file: bbox is left, top, width, height, in pixels."""

    id: Id
    image_id: Id
    category_id: int
    bbox: list[int]
    area: int
    segmentation: RunLengths
    iscrowd: int


class _ImageEntry(NamedTuple):
    """An entry of "images"; `values` are all its values, not checked."""

    id: Id
    file_name: str
    values: Mapping[str, object]


class _AnnotationEntry(NamedTuple):
    """An entry of "annotations" whose image exists; `location` is for messages, `values` are not checked."""

    image_id: Id
    location: str
    values: Mapping[str, object]


class CocoCaptions(SingleChunkSource):
    """Images with all their captions, in the order of the file's "images".

    Args:
        annotations: a file {"images": [{id, file_name}], "annotations": [{id, image_id, caption}]}.
        images: folder of the images; by default it is looked for near the file: `val2017` next to `annotations`.
        captions: whether to read captions; False: the images alone.
    """

    def __init__(
        self, annotations: str | Path, images: str | Path | None = None, *, captions: bool = True
    ) -> None:
        """Read the file and find the folder of images; ValueError or FileNotFoundError if that fails."""
        self.path = Path(annotations)
        content = read_json(self.path)
        images_of_file = _read_images(content, self.path)
        self._ids = [image.id for image in images_of_file]
        self._files = [image.file_name for image in images_of_file]
        if not self._ids:
            raise ValueError(f"{self.path}: the list of images is empty")
        self.images = Path(images) if images is not None else _find_images_folder(self.path, self._files)
        if not self.images.is_dir():
            raise FileNotFoundError(f"{self.images}: no such folder")
        self._captions = _group_captions(content, self._ids, self.path) if captions else None

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, index: int) -> Sample:
        """Read a sample, as `Source.read`; its key is the image's id, which `extra` has as "image_id"."""
        require_index(index, len(self))
        location = f"{self.path}: image {self._ids[index]} ({self._files[index]})"
        path = resolve_image_path(self._files[index], self.images, location)
        captions = () if self._captions is None else parse_captions(self._captions[index], location)
        return Sample(str(self._ids[index]), location, path, captions, {"image_id": self._ids[index]})

    def files(self) -> list[Path]:
        return [self.path]

    def fingerprint(self) -> str:
        return compute_fingerprint("coco", self._ids, ascii(self._files), ascii(self._captions))


@dataclass(frozen=True, slots=True)
class Segment:
    """One annotated object of an image.

    id:           id of the annotation.
    category:     its name, or its id if the file has no name.
    bbox:         left, top, width, height, in pixels.
    area:         as given in the file, in pixels.
    segmentation: polygons or run lengths; see `decode_mask`.
    crowd:        COCO's iscrowd: a group of objects.
    """

    id: Id
    category: str
    bbox: tuple[float, float, float, float]
    area: float
    segmentation: object
    crowd: bool


@dataclass(frozen=True, slots=True)
class SegmentedImage:
    """An image of an instances file; its size in pixels, its segments in the order of the file."""

    id: Id
    file_name: str
    height: int
    width: int
    segments: tuple[Segment, ...]


def read_instances(annotations: str | Path) -> list[SegmentedImage]:
    """Read a COCO instances file.

    Args:
        annotations: path of the file.

    Returns:
        The images with their segments, in the order of the file; an image may have none.

    Raises:
        ValueError: If an entry is malformed; the message names it.
    """
    path = Path(annotations)
    content = read_json(path)
    images = _read_images(content, path)
    categories = _get_entries(content, "categories", path, required=False)
    category_names = {id: entry.get("name") for entry in categories if _is_id(id := entry.get("id"))}
    segments: dict[Id, list[Segment]] = {image.id: [] for image in images}
    for annotation in _iter_annotations(content, segments, path):
        segments[annotation.image_id].append(_parse_segment(annotation, category_names))
    return [
        SegmentedImage(
            image.id,
            image.file_name,
            *_parse_image_size(image.values, f"{path}: image {image.id}"),
            tuple(segments[image.id]),
        )
        for image in images
    ]


def decode_mask(segment: Segment, height: int, width: int) -> np.ndarray:
    """Decode the mask of a segment.

    The mask of polygons is the pixels whose center is inside any of them, by the even-odd rule. (pycocotools rounds
    the outline in another way; a few pixels along it differ.)

    Args:
        segment: a segment of an image.
        height, width: size of the image, in pixels.

    Returns:
        bool (H, W): True on the object.

    Raises:
        ValueError: If the segmentation is malformed or of another size.
    """
    encoded = segment.segmentation
    location = f"annotation {segment.id}"
    if isinstance(encoded, list):
        mask = np.zeros((height, width), dtype=bool)
        for polygon in encoded:
            mask |= _rasterize_polygon(_parse_polygon(polygon, location), height, width)
        return mask
    if not isinstance(encoded, dict) or "counts" not in encoded:
        raise ValueError(
            f"{location}: the segmentation is neither a list of polygons nor RLE (a dict with size and counts)"
        )
    if encoded.get("size") != [height, width]:
        raise ValueError(
            f"{location}: the mask has size {encoded.get('size')}, but the image [height, width] = {[height, width]}"
        )
    counts = encoded["counts"]
    counts = decode_rle_counts(counts, location) if isinstance(counts, str) else counts
    if not isinstance(counts, list) or not all(
        type(count) is int and 0 <= count <= height * width for count in counts
    ):
        raise ValueError(
            f"{location}: the run lengths must be integers from 0 to {height * width}, the number of pixels"
        )
    if sum(counts) != height * width:
        raise ValueError(
            f"{location}: the run lengths sum to {sum(counts)}, not to {height} x {width} pixels"
        )
    is_on = np.arange(len(counts)) % 2 == 1  # runs alternate, beginning with off
    return np.repeat(is_on, counts).reshape(width, height).T  # runs go down the columns


def encode_rle(mask: np.ndarray) -> RunLengths:
    """Encode a mask as COCO's run lengths.

    Args:
        mask: bool (H, W).

    Returns:
        The lengths of the runs, and [H, W].
    """
    height, width = mask.shape
    # An extra pixel that is off comes first, because the first run is of pixels that are off; its length may be 0.
    pixels = np.concatenate([[False], mask.T.ravel().astype(bool)])
    run_ends = np.append(np.flatnonzero(pixels[1:] != pixels[:-1]), height * width)
    return {"counts": np.diff(run_ends, prepend=0).tolist(), "size": [height, width]}


def make_annotation(mask: np.ndarray, *, id: Id, image_id: Id, category_id: int) -> InstanceAnnotation:
    """Make an entry of an instances file.

    Args:
        mask: mask of the object, bool (H, W).
        id: id of the annotation.
        image_id: id of its image.
        category_id: id of its category.

    Returns:
        The entry: ids, mask as run lengths, bounding box and area in pixels.

    Raises:
        ValueError: If the mask has no pixels.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        raise ValueError(f"annotation {id}: the mask has no pixels")
    left, top = int(columns[0]), int(rows[0])
    return {
        "id": id,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
        "area": int(np.count_nonzero(mask)),
        "segmentation": encode_rle(mask),
        "iscrowd": 0,
    }


def decode_rle_counts(text: str, location: str) -> list[int]:
    """Decode COCO's compressed run lengths.

    A number is 5 bits per character, lowest first, plus 48; bit 32 is set if more follow; bit 16 of the last character
    is the sign. From the fourth number on they are differences to the one two before.

    Args:
        text: the compressed counts.
        location: name of the annotation, for the error.

    Returns:
        Lengths of runs, in pixels.

    Raises:
        ValueError: If a character is invalid, or if the text ends within a number.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 40:  # no run length has more than 45 bits
            raise ValueError(f"{location}: {character!r} is not valid in compressed run lengths")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        value -= (1 << shift) if bits & 16 else 0
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError(f"{location}: the compressed run lengths end within a number")
    return counts


def _parse_polygon(polygon: object, location: str) -> np.ndarray:
    """The V corners (x, y) of a list x, y, x, y, ... as float64 (V, 2); ValueError if it is malformed."""
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"{location}: a polygon must be a list x, y, x, y, ... of at least three corners")
    if not all(map(_is_number, polygon)):
        raise ValueError(f"{location}: the coordinates of a polygon must be finite numbers below 1e18")
    return np.array(polygon, dtype=np.float64).reshape(-1, 2)


def _rasterize_polygon(corners: np.ndarray, height: int, width: int) -> np.ndarray:
    """The pixels whose center is inside a polygon, by the even-odd rule: bool (H, W). Corners (x, y): float64 (V, 2).

    Along a row of pixel centers from the left, each crossed edge toggles between outside and inside.
    """
    (x0, y0), (x1, y1) = corners.T, np.roll(corners, -1, axis=0).T  # both ends of each edge
    centers = np.arange(height) + 0.5  # y of each row of pixels
    # Every pair of an edge and a row that it crosses: one end above the row's center, the other not.
    edge, row = ((y0[:, None] <= centers) != (y1[:, None] <= centers)).nonzero()
    crossing_x = x0[edge] + (centers[row] - y0[edge]) * (x1 - x0)[edge] / (y1 - y0)[edge]
    column = np.clip(np.ceil(crossing_x - 0.5), 0, width).astype(np.int64)  # first center at or after it
    toggles = np.zeros((height, width + 1), dtype=np.int32)
    np.add.at(toggles, (row, column), 1)
    odd: np.ndarray = toggles.cumsum(axis=1)[:, :width] % 2 == 1
    return odd


def _get_entries(
    content: Mapping[str, object], key: str, path: Path, required: bool = True
) -> list[Mapping[str, object]]:
    """The list of objects under a key of a COCO file; [] if the key is absent and not `required`.

    ValueError if a required key is absent, or if its value is not a list of objects.
    """
    entries = content.get(key, None if required else [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must have a list of objects {key!r}. Is it a COCO annotation file?")
    return entries


def _read_images(content: Mapping[str, object], path: Path) -> list[_ImageEntry]:
    """All images of a COCO file, in its order.

    ValueError if an image has no id or no file name, or if two have the same id.
    """
    images: list[_ImageEntry] = []
    for number, entry in enumerate(_get_entries(content, "images", path)):
        image_id, file_name = entry.get("id"), entry.get("file_name")
        if not _is_id(image_id) or not isinstance(file_name, str):
            raise ValueError(f"{path}: entry {number} of 'images', counted from 0, has no id or no file_name")
        images.append(_ImageEntry(image_id, file_name, entry))
    ids = [image.id for image in images]
    if len(set(ids)) < len(ids):
        duplicate = next(image_id for image_id in ids if ids.count(image_id) > 1)
        raise ValueError(f"{path}: several images have the id {duplicate}")
    return images


def _iter_annotations(
    content: Mapping[str, object], image_ids: Container[Id], path: Path
) -> Iterator[_AnnotationEntry]:
    """The annotations of a COCO file; ValueError if the image of one is not in `image_ids`."""
    for number, entry in enumerate(_get_entries(content, "annotations", path)):
        location = f"{path}: annotation {entry.get('id', f'number {number}')}"
        image_id = entry.get("image_id")
        if not _is_id(image_id) or image_id not in image_ids:
            raise ValueError(f"{location}: its image_id {image_id!r} is not the id of an image")
        yield _AnnotationEntry(image_id, location, entry)


def _group_captions(content: Mapping[str, object], ids: Sequence[Id], path: Path) -> list[tuple[object, ...]]:
    """The captions of each image, in the order of `ids`; () for an image without captions.

    ValueError if an annotation has no caption, or if its image doesn't exist.
    """
    captions: dict[Id, list[object]] = {image_id: [] for image_id in ids}
    for image_id, location, entry in _iter_annotations(content, captions, path):
        if "caption" not in entry:
            hint = (
                ". This looks like an instances file: use the captions file"
                if "segmentation" in entry
                else ""
            )
            raise ValueError(f"{location} has no caption{hint}")
        captions[image_id].append(entry["caption"])
    return [tuple(texts) for texts in captions.values()]


def _find_images_folder(path: Path, files: Sequence[str]) -> Path:
    """The folder near an annotations file that has one of its first 20 images; ValueError if there is none."""
    base = path.parent.parent if path.parent.name == "annotations" else path.parent
    split = path.stem.rpartition("_")[2]  # val2017 of captions_val2017.json
    folders = [base / split, base / "images" / split, base / "images", path.parent]
    for folder in folders:
        if any(_is_file(folder / file) for file in files[:20]):
            return folder
    folder_names = ", ".join(str(folder) for folder in folders)
    raise ValueError(
        f"{path}: the images are in none of {folder_names}. Give their folder: open_data(path, image=FOLDER) or "
        "--image FOLDER."
    )


def _is_file(path: Path) -> bool:
    """Whether a path is a regular file; False also for a name that no file can have (too long, or with a NUL)."""
    try:
        require_sample_file(path, str(path))
    except BadSampleError:
        return False
    return True


def _parse_segment(annotation: _AnnotationEntry, category_names: Mapping[Id, object]) -> Segment:
    """Parse an annotation of an instances file; `category_names` by id.

    ValueError if it is malformed. Its mask is checked only by `decode_mask`.
    """
    entry, location = annotation.values, annotation.location
    annotation_id = entry.get("id")
    if not _is_id(annotation_id):
        raise ValueError(f"{location}: the id must be an integer or a text")
    if not isinstance(entry.get("segmentation"), list | dict):
        raise ValueError(f"{location} has no segmentation (a list or an object)")
    box, pixels = entry.get("bbox"), entry.get("area")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, [*box, pixels])):
        raise ValueError(f"{location}: the bbox must be four numbers, and the area one")
    category_id = entry.get("category_id")
    category = str(category_names.get(category_id) or category_id) if _is_id(category_id) else "unknown"
    left, top, width, height, area = map(float, [*box, pixels])
    crowd = bool(entry.get("iscrowd", 0))
    return Segment(annotation_id, category, (left, top, width, height), area, entry["segmentation"], crowd)


def _parse_image_size(entry: Mapping[str, object], location: str) -> tuple[int, int]:
    """(height, width) of an entry of "images", in pixels.

    ValueError if one is missing or not an integer of at least 1, or if the image has more than MAX_PIXELS.
    """
    height, width = entry.get("height"), entry.get("width")
    if type(height) is not int or type(width) is not int or min(height, width) < 1:
        raise ValueError(
            f"{location}: height and width must be integers of at least 1, not {height!r} and {width!r}"
        )
    if height * width > MAX_PIXELS:
        raise ValueError(f"{location} has {width} x {height} pixels; at most {MAX_PIXELS:,} are allowed")
    return height, width


def _is_id(value: object) -> TypeGuard[Id]:
    """Whether a value of a COCO file can be an id: an integer or a text."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Whether a value of a COCO file is a finite number, below 1e18 so that it fits into int64."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
