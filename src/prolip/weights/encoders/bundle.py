"""Bundling: a model folder that holds its encoders' files, so that it needs nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from prolip.files import write_json
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing
from prolip.weights.encoders.base import ImageEncoder, TextEncoder
from prolip.weights.encoders.onnx_graph import PREPROCESSOR_FILE
from prolip.weights.encoders.open import LoadModel, open_image_encoder, open_text_encoder
from prolip.weights.encoders.towers import TowerNetwork

BUNDLE = "encoders"
"""Subfolder of a model folder: encoders/image and encoders/text; or the model whose towers they are."""
TOLERANCE = 1e-3
"""Largest difference between features of an encoder and of its copy, relative to the largest feature."""
RESAMPLING = {"bilinear": 2, "bicubic": 3}
"""Pillow's constants."""


def require_bundleable(*encoders: ImageEncoder | TextEncoder) -> None:
    """Raise ValueError if an encoder has nothing that could be copied.

    Args:
        *encoders: The encoders.
    """
    for encoder in encoders:
        if not encoder.files and not isinstance(encoder.network, TowerNetwork):
            raise ValueError(
                f"the encoder {encoder.config.name} has no files, so that it can't be bundled: turn bundle off"
            )


def save_with_encoders(
    model: ProLIP, folder: Path, encoders: Sequence[ImageEncoder | TextEncoder], load_model: LoadModel
) -> Path:
    """Save a model folder with copies of its encoders.

    Args:
        model: The model; it is changed: its config names the copies.
        folder: The folder, created if need be.
        encoders: The image and the text encoder; (): nothing is copied.
        load_model: Loads finished models, whose towers are encoders.

    Returns:
        The folder.

    Raises:
        ValueError: An encoder can't be bundled, or its copy computes other features.
    """
    require_bundleable(*encoders)
    config = model.config
    for modality, encoder in zip(("image", "text"), encoders, strict=False):
        name = _copy(encoder, folder, modality)
        open_copy = open_image_encoder if isinstance(encoder, ImageEncoder) else open_text_encoder
        copy = open_copy(str(folder / name), load_model)
        _require_equal_features(encoder, copy)
        # the digest of the copy: that of an encoder of a package is a hash of the package's file
        bundled = replace(copy.config, name=name, license=encoder.config.license, is_bundled=True)
        config = replace(config, **{modality: replace(getattr(config, modality), encoder=bundled)})
    model.config = config
    return model.save_pretrained(folder)


def _copy(encoder: ImageEncoder | TextEncoder, folder: Path, modality: str) -> str:
    """Copy an encoder into a model folder; return the name by which it is opened there, a relative path."""
    if isinstance(encoder.network, TowerNetwork):
        # both towers of a model share a copy
        name = f"{BUNDLE}/{encoder.network.identity}"
        if not (folder / name).exists():
            encoder.network.model.save_pretrained(folder / name)
        return name
    target = folder / BUNDLE / modality
    target.mkdir(parents=True)
    for file in encoder.files:
        shutil.copyfile(file, target / file.name)
    graphs = [file.name for file in encoder.files if file.suffix.lower() == ".onnx"]
    if graphs and isinstance(encoder, ImageEncoder) and not (target / PREPROCESSOR_FILE).exists():
        write_json(target / PREPROCESSOR_FILE, _make_processor(encoder.preprocessing))
    return "/".join((BUNDLE, modality, *graphs[:1]))


def _make_processor(preprocessing: ImagePreprocessing) -> dict[str, object]:
    """The config of an image processor of transformers that does the same."""
    size = preprocessing.size
    is_square = preprocessing.resize_mode == "squash"
    return {
        "size": {"height": size, "width": size} if is_square else {"shortest_edge": size},
        "do_center_crop": not is_square,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
        "resample": RESAMPLING[preprocessing.interpolation],
    }


def _require_equal_features(encoder: ImageEncoder | TextEncoder, copy: ImageEncoder | TextEncoder) -> None:
    """Raise ValueError unless an encoder and its copy get the same inputs, and make the same features of them."""
    if isinstance(encoder, ImageEncoder):
        assert isinstance(copy, ImageEncoder)
        is_same = copy.preprocessing == encoder.preprocessing
        size = encoder.preprocessing.size
        inputs = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    else:
        assert isinstance(copy, TextEncoder)
        is_same = copy.tokenizer.config == encoder.tokenizer.config
        inputs = encoder.tokenizer(["a dog on a beach", "two"])
    if is_same:
        expected, actual = encoder.encode(inputs), copy.encode(inputs)
        is_same = expected.shape == actual.shape and bool(
            (expected - actual).abs().max() <= TOLERANCE * expected.abs().max()
        )
    if not is_same:
        raise ValueError(
            f"a copy of the encoder {encoder.config.name} computes other features: it can't be bundled. Turn bundle off"
        )
