"""Built-in collections: pictures with captions for the models of the package, written as a table of images."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from prolip.app.inputs import NamedImage
from prolip.demo_photos import read_photos
from prolip.extras import import_extra, missing_modules
from prolip.preprocessing.image_views import occlude_box
from prolip.scenes.rendering import render
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import make_tasks
from prolip.scenes.world import get_world

CAPTION_COLUMNS = ("caption", "general")
"""Columns of the table that is written."""
SCENES, PHOTOS = "scenes-tiny", "photos-small"
NUM_SCENES, SCENE_SIZE, SCENE_SEED, VEILED = 160, 96, 11, 0.25
WRONG_EVERY, COPY_EVERY = 23, 40
"""Every so many scenes one has the caption of another scene, or is there twice."""
NUM_CLASSES, EXAMPLES_PER_CLASS, EXAMPLE_SEED = 6, 8, 5
GRAY = (124, 116, 104)
THUMBNAIL = (640, 640)


@dataclass(frozen=True)
class LabeledExamples:
    """Classes to begin with, and images of them.

    Attributes:
        class_names: The classes.
        templates: Templates of prompts, with {c} for the class name.
        images: Example images.
        labels: Index of each image's class.
    """

    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    images: tuple[NamedImage, ...] = ()
    labels: tuple[int, ...] = ()


class CaptionedImage(NamedTuple):
    """An image of a built-in collection.

    Attributes:
        name: Its name, without a suffix.
        image: RGB.
        captions: Two captions.
    """

    name: str
    image: Image.Image
    captions: tuple[str, ...]


@dataclass(frozen=True)
class BuiltinCollection:
    """A collection that comes with the package.

    Attributes:
        model: Name of its model.
        title: What it is, for people.
        captions: Captions to begin with.
        query: Search to begin with.
        traverse_captions: Captions to traverse; empty: those of the collection.
        make_samples: Makes the images, each with a name and two captions.
        make_examples: Makes the classes to begin with.
    """

    model: str
    title: str
    captions: tuple[str, ...]
    query: str
    traverse_captions: tuple[str, ...]
    make_samples: Callable[[], Iterator[CaptionedImage]]
    make_examples: Callable[[], LabeledExamples]


@dataclass(frozen=True)
class _Photo:
    """A photograph of free license: its name, its captions from general to specific, and the name of its class."""

    name: str
    captions: tuple[str, ...]
    class_name: str


PHOTO_CAPTIONS = (
    _Photo("palace", ("a building", "a large building with a roof by the water"), "a building by the water"),
    _Photo("dahlia", ("a flower", "an orange flower in a garden"), "a flower"),
    _Photo(
        "officer",
        ("a person", "a woman in a uniform with medals in front of a flag"),
        "a person in a uniform",
    ),
)
"""scikit-learn's china.jpg and flower.jpg (CC BY 2.0), and matplotlib's grace_hopper.jpg (public domain)."""
PHOTO_CHAINS = (
    "a thing", "a photo", "something outdoors", "a plant", "a flower", "an orange flower", "a dahlia in full bloom",
    "an orange dahlia with green leaves behind it", "a place", "a building", "an old building", "a palace",
    "a palace with a golden roof by a lake", "someone", "a person", "a woman", "a woman in uniform",
    "a smiling woman in a navy uniform with medals", "an animal", "a dog", "a brown dog runs through snow", "food",
    "a vehicle", "a car on a street", "people", "children who play in a park",
)  # fmt: skip
"""Captions from general to specific."""


def list_builtin() -> list[BuiltinCollection]:
    """The collections that this installation can show; imports nothing."""
    scenes = BuiltinCollection(
        SCENES, "Generated scenes",
        ("something", "a pink thing", "a blue circle", "a small purple cross at the top right"),
        "a red circle", (), _iter_scenes, _make_scene_examples,
    )  # fmt: skip
    photos = BuiltinCollection(
        PHOTOS, "Photographs of free license",
        ("a photo", "a flower", "an orange flower in a garden", "a building by the water", "a woman in uniform"),
        "an orange flower in a garden", PHOTO_CHAINS, _iter_photo_views, _make_photo_examples,
    )  # fmt: skip
    return [scenes, *([] if missing_modules("photos") or find_spec("sklearn") is None else [photos])]


def write_table(folder: Path, samples: Iterator[CaptionedImage]) -> Path:
    """Write images, and a CSV table with their captions.

    Args:
        folder: Created if need be.
        samples: The images.

    Returns:
        The path of the table; its columns are image and `CAPTION_COLUMNS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "captions.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", *CAPTION_COLUMNS])
        for name, image, captions in samples:
            image.save(folder / f"{name}.png")
            writer.writerow([f"{name}.png", *captions])
    return folder / "captions.csv"


def _iter_scenes() -> Iterator[CaptionedImage]:
    """Scenes, a quarter of them veiled; a few have captions of another scene, and a few are there twice."""
    source = Scenes("simple", length=NUM_SCENES, size=SCENE_SIZE, seed=SCENE_SEED, captions=2, veiled=VEILED)
    for index in range(NUM_SCENES):
        sample = source.read(index)
        captions = sample.captions
        if index % WRONG_EVERY == WRONG_EVERY - 1:
            captions = source.read((index + 1) % NUM_SCENES).captions
        assert isinstance(sample.image, Image.Image)
        yield CaptionedImage(f"scene-{index:03}", sample.image, captions)
        if index % COPY_EVERY == COPY_EVERY - 1:
            yield CaptionedImage(f"scene-{index:03}-copy", sample.image, sample.captions)


def _iter_photo_views() -> Iterator[CaptionedImage]:
    """The photographs, each whole, as a smaller copy, in parts, and with hidden parts."""
    views = [[(photo, *view) for view in _iter_views(image)] for photo, image in _iter_photos()]
    for same_view in zip(*views, strict=True):  # the whole photographs first
        for photo, name, view in same_view:
            yield CaptionedImage(f"{photo.name}-{name}", view, photo.captions)


def _iter_photos() -> Iterator[tuple[_Photo, Image.Image]]:
    """The photographs that are installed, at most `THUMBNAIL` large."""
    images = read_photos()
    if not missing_modules("report"):
        samples = Path(import_extra("matplotlib", "report").get_data_path()) / "sample_data"
        hopper = samples / "grace_hopper.jpg"
        images += [Image.open(hopper).convert("RGB")] if hopper.is_file() else []
    for photo, image in zip(PHOTO_CAPTIONS, images, strict=False):
        image.thumbnail(THUMBNAIL)
        yield photo, image


def _iter_views(image: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    """Views of a photograph by name: whole, a smaller copy, two halves, the center, a corner, two with hidden parts."""
    width, height = image.size
    yield "whole", image
    yield "copy", image.resize((width // 2, height // 2))
    yield "left", image.crop((0, 0, width // 2, height))
    yield "right", image.crop((width // 2, 0, width, height))
    yield "center", image.crop((width // 4, height // 4, 3 * width // 4, 3 * height // 4))
    yield "corner", image.crop((0, 0, width // 4, height // 4))
    yield "hidden", occlude_box(image, 0.5, GRAY)
    yield "hidden-more", occlude_box(image, 0.85, GRAY)


def _make_scene_examples() -> LabeledExamples:
    """The first classes of the first task of scenes, with images that are not in the collection."""
    world = get_world("simple")
    task = make_tasks(world)[0]
    images: list[NamedImage] = []
    labels: list[int] = []
    index = 0
    while len(images) < NUM_CLASSES * EXAMPLES_PER_CLASS:
        scene, label = task.sample(world, EXAMPLE_SEED, index)
        index += 1
        if label < NUM_CLASSES and labels.count(label) < EXAMPLES_PER_CLASS:
            images.append(NamedImage(task.class_names[label], render(scene, size=SCENE_SIZE)))
            labels.append(label)
    return LabeledExamples(task.class_names[:NUM_CLASSES], task.templates[:12], tuple(images), tuple(labels))


def _make_photo_examples() -> LabeledExamples:
    """One class per photograph, with its views as images; and two classes of which there is no image."""
    photos = list(_iter_photos())
    images: list[NamedImage] = []
    labels: list[int] = []
    for label, (photo, image) in enumerate(photos):
        for name, view in _iter_views(image):
            images.append(NamedImage(f"{photo.name}-{name}", view))
            labels.append(label)
    names = (*(photo.class_name for photo, _ in photos), "a dog", "people who play football")
    templates = (
        "{c}",
        "a photo of {c}",
        "a part of {c}",
        "a picture that shows {c}",
        "{c}, seen from near by",
    )
    return LabeledExamples(names, templates, tuple(images), tuple(labels))
