"""Valid inputs of each kind, made from nothing: what is damaged."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import prolip
from prolip import scenes
from prolip.data.open import open_data
from prolip.embeddings.embed import embed
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.retrieval import evaluate_retrieval
from prolip.extras import import_extra
from prolip.retrieval.index.build import index
from prolip.training.public import train

CAPTIONS = (
    "a red circle", "a small green square", "a thing", "two yellow stars – 👀", "an “odd” <b>one</b>, &amp; more",
)  # fmt: skip
SCENES = "scenes:simple,length=8,size=32"
IMAGE_FORMATS: dict[str, tuple[str, dict[str, object]]] = {
    "png": ("RGB", {}), "jpeg": ("RGB", {"quality": 80}), "gif": ("P", {}), "webp": ("RGB", {}), "bmp": ("RGB", {}),
    "tiff": ("RGB", {"compression": "tiff_lzw"}), "palette": ("P", {}), "alpha": ("RGBA", {}), "gray16": ("I;16", {}),
    "cmyk": ("CMYK", {}),
}  # fmt: skip
"""Mode of an image and options of its file, by name: a file format, or one of FILE_FORMATS."""
FILE_FORMATS = {"palette": "png", "alpha": "png", "gray16": "png", "cmyk": "jpeg"}


def make_images(folder: Path | None = None) -> dict[str, bytes]:
    """An image file of each format and mode."""
    ramp = np.arange(24 * 20 * 3, dtype=np.uint32).reshape(24, 20, 3) % 251
    whole = Image.fromarray(ramp.astype(np.uint8))
    files = {}
    for name, (mode, options) in IMAGE_FORMATS.items():
        file = io.BytesIO()
        image = Image.fromarray(ramp[..., 0].astype(np.uint16)) if mode == "I;16" else whole.convert(mode)
        image.save(file, format=FILE_FORMATS.get(name, name), **options)
        files[name] = file.getvalue()
    return files


def make_tars(folder: Path) -> dict[str, bytes]:
    """A shard of four samples, each with an image, a caption, JSON, a label and an array."""
    images = list(make_images().values())
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(4):
            array = io.BytesIO()
            np.save(array, np.arange(3))
            members = {
                "png": images[number], "txt": CAPTIONS[number].encode(), "npy": array.getvalue(),
                "json": json.dumps({"url": "http://x", "n": number, "a": [1, {"b": None}]}).encode(), "cls": b"3",
            }  # fmt: skip
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{number:03d}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return {"tar": file.getvalue()}


def write_images(folder: Path, count: int = 4) -> list[str]:
    """Write image files; returns their names."""
    contents = list(make_images().items())[:count]
    for name, content in contents:
        (folder / f"{name}.png").write_bytes(content)
    return [f"{name}.png" for name, _ in contents]


def make_tables(folder: Path) -> dict[str, bytes]:
    """CSV and TSV tables of image paths and captions."""
    names = write_images(folder)
    rows = [["image", "caption"], *map(list, zip(names, CAPTIONS, strict=False))]
    return {
        "csv": "".join(f'{name},"{caption}"\n' for name, caption in rows).encode(),
        "tsv": "".join(f"{name}\t{caption}\n" for name, caption in rows).encode(),
    }


def make_parquets(folder: Path) -> dict[str, bytes]:
    """A Parquet table of images and captions."""
    pa, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    images = list(make_images().values())[:4]
    file = io.BytesIO()
    parquet.write_table(pa.table({"image": images, "caption": list(CAPTIONS[:4]), "n": range(4)}), file)
    return {"parquet": file.getvalue()}


def make_coco(folder: Path) -> dict[str, bytes]:
    """COCO's captions of image files."""
    names = write_images(folder)
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    annotations = [
        {"id": number, "image_id": number, "caption": caption} for number, caption in enumerate(CAPTIONS[:4])
    ]
    return {"coco": json.dumps({"images": images, "annotations": annotations}).encode()}


def make_model_file(name: str) -> Callable[[Path], Mapping[str, bytes]]:
    """What makes a file of a model folder."""

    def make_inputs(folder: Path) -> Mapping[str, bytes]:
        make_model().save_pretrained(folder / "model")
        return {name: (folder / "model" / name).read_bytes()}

    return make_inputs


def make_run_file(name: str) -> Callable[[Path], Mapping[str, bytes]]:
    """What makes a file of a run folder, by two steps of training."""

    def make_inputs(folder: Path) -> Mapping[str, bytes]:
        train("nano", {"log.display": "none"}, out=str(folder / "run"), samples=64)
        return {name: (folder / "run" / name).read_bytes()}

    return make_inputs


def make_results(folder: Path) -> dict[str, bytes]:
    """The JSON file of a result, as `prolip evaluate` writes it."""
    result = evaluate_retrieval(Embedder(model=make_model()), open_data(SCENES))
    return {"retrieval": json.dumps({"command": "retrieval", "result": result.to_dict()}).encode()}


def make_judgements(folder: Path) -> dict[str, bytes]:
    """A table of judgements."""
    rows = [
        ("key", "caption", "score"),
        ("a", "a dog", 0.5),
        ("a", "a cat", 0.25),
        ("b", "a “dog”", 1),
        ("b", "x", 0),
    ]
    return {"csv": "".join(f"{key},{caption},{score}\n" for key, caption, score in rows).encode()}


def make_conditions(folder: Path) -> dict[str, bytes]:
    """Conditions in SQL."""
    conditions = (
        "uncertainty < 0.4", "caption LIKE '%red%' AND uncertainty BETWEEN 0 AND 1", "id IN ('a', 'b') OR NOT row > 2",
        "length(caption) > 3", "caption IS NOT NULL", "modality = 'text'",
    )  # fmt: skip
    return {str(number): condition.encode() for number, condition in enumerate(conditions)}


def make_captions(folder: Path) -> dict[str, bytes]:
    """Captions, as texts of a user."""
    return {str(number): caption.encode() for number, caption in enumerate(CAPTIONS)}


def make_embedding_file(name: str) -> Callable[[Path], Mapping[str, bytes]]:
    """What makes a file of an embedding data set; `name` is a pattern."""

    def make_inputs(folder: Path) -> Mapping[str, bytes]:
        path = next(iter(sorted(write_embeddings(folder).glob(name))))
        return {path.name: path.read_bytes()}

    return make_inputs


def write_embeddings(folder: Path) -> Path:
    """Write an embedding data set of a few scenes; returns its folder."""
    embed(make_model(), SCENES, folder / "embeddings")
    return folder / "embeddings"


def write_database(folder: Path) -> Path:
    """Write a database of a few scenes; returns its folder."""
    index(write_embeddings(folder), folder / "database")
    return folder / "database"


def make_model() -> prolip.ProLIP:
    """A tiny model with random weights, the same every time."""
    torch.manual_seed(0)
    return prolip.create("nano", scenes.make_tokenizer(16))
