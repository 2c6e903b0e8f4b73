"""The end of the demo, with the extra photos: photos-small on sample photographs that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image
from rich.table import Table

from prolip.console import make_table
from prolip.extras import import_extra, missing_modules
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.preprocessing.image_views import occlude_box
from prolip.weights.load import load

MODEL = "photos-small"
PHOTOS = ("china.jpg", "flower.jpg")
"""Sample images of scikit-learn, both CC BY: a summer palace and a red dahlia."""
CAPTIONS = (
    "a large building with a roof by the water", "a red flower in a garden", "a dog runs through the snow",
    "two people play football",
)  # fmt: skip
CHAIN = ("an animal", "a dog", "a brown dog runs", "a brown dog runs through deep snow towards a man")
"""Captions from general to specific."""
HIDDEN = 0.5
GRAY = (124, 116, 104)


def can_show_photos() -> bool:
    """Whether the extra photos and the photographs are installed; imports nothing."""
    return not missing_modules("photos")


def make_photo_tables() -> list[Table]:
    """Embed the photographs, captions and a photograph of which a half is hidden.

    Returns:
        Two tables: photographs with their best caption, and captions from general to specific.
    """
    model = load(MODEL, device="cpu")
    photos = read_photos()
    images, texts = model.embed_images(photos), model.embed_texts(CAPTIONS)
    hidden = model.embed_images([occlude_box(photo, HIDDEN, GRAY) for photo in photos])
    return [make_photo_table(model, images, hidden, texts), _make_chain_table(model.embed_texts(CHAIN))]


def read_photos() -> list[Image.Image]:
    """The sample photographs."""
    datasets = import_extra("sklearn.datasets", "photos")
    return [Image.fromarray(datasets.load_sample_image(name)) for name in PHOTOS]


def make_photo_table(model: ProLIP, images: Gaussian, hidden: Gaussian, texts: Gaussian) -> Table:
    """A row per photograph: its best caption, and its uncertainty whole and with the middle hidden.

    Args:
        model: For its match probabilities.
        images: (N, D), the photographs.
        hidden: (N, D), the same with a half hidden.
        texts: (M, D), `CAPTIONS`.

    Returns:
        The table.
    """
    match, best = model.match_probability_matrix(images, texts).max(1)
    rows = [
        (name, CAPTIONS[int(index)], f"{float(p):.1%}", f"{float(whole):.3f}", f"{float(half):.3f}")
        for name, index, p, whole, half in zip(
            PHOTOS, best, match, images.uncertainty, hidden.uncertainty, strict=True
        )
    ]
    texts_of, numbers = ["photograph", "best of four captions"], ["match", "uncertainty", "middle hidden"]
    return make_table(f"Photographs, by {MODEL}", texts_of, numbers, rows)


def _make_chain_table(texts: Gaussian, captions: Sequence[str] = CHAIN) -> Table:
    """A row per caption with its uncertainty."""
    rows = [
        (caption, f"{float(value):.3f}") for caption, value in zip(captions, texts.uncertainty, strict=True)
    ]
    return make_table("Captions, from general to specific", ["caption"], ["uncertainty"], rows)
