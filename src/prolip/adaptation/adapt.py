"""`adapt`: image-text pairs and frozen encoders -> a model folder with uncertainty; a stopped run can be resumed."""

from __future__ import annotations

from pathlib import Path

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.distillation import Pairs, distill_widths, make_finished_model
from prolip.adaptation.features import Encoders, FeatureDatasets, compute_features
from prolip.adaptation.heads import make_initial_model, make_train_config
from prolip.adaptation.pairs import Maps, Split, fit_map, split_samples, write_pairs
from prolip.adaptation.run_folder import FEATURES, claim_folder, require_usable_data, train_or_continue
from prolip.adaptation.sizes import TrainingSizes, choose_sizes
from prolip.configs import takes_config
from prolip.data.source import Source
from prolip.files import atomic_write_folder
from prolip.model.frozen_tower import FeatureMap, FrozenTower
from prolip.model.prolip import ProLIP
from prolip.training.run_folder import MODEL
from prolip.weights.encoders import packaged
from prolip.weights.encoders.base import ImageEncoder, TextEncoder
from prolip.weights.encoders.bundle import require_bundleable, save_with_encoders
from prolip.weights.encoders.open import (
    open_image_encoder,
    open_text_encoder,
)
from prolip.weights.encoders.towers import make_tower_encoders
from prolip.weights.load import load


@takes_config(AdaptConfig)
def adapt(data: str | Path | Source, out: str | Path, config: AdaptConfig) -> ProLIP:
    """Train heads on the features of frozen encoders, from image-text pairs; or widths alone, for a finished model.

    Features are computed once and cached in OUT/features; a run that was stopped resumes there, and in the training.

    Args:
        data: Pairs: shards, a table, a folder (docs/data.md); or a source.
        out: Folder for features, training and the model, OUT/model.
        config: How to adapt; or its fields as keywords.

    Returns:
        The model, with its encoders.

    Raises:
        ValueError, OSError: Data, encoders or folder can't be used.
    """
    if config.means == "frozen":
        return adapt_model(_load_finished_model(config), data, out, config)
    return adapt_encoders(open_encoders(config), data, out, config)


@takes_config(AdaptConfig)
def adapt_encoders(
    encoders: Encoders, data: str | Path | Source, out: str | Path, config: AdaptConfig
) -> ProLIP:
    """Train heads on encoders that are open already, such as Python objects (`Encoders.from_objects`).

    Args:
        encoders: The frozen encoders; the config's names are not read.
        data, out, config: As for `adapt`.

    Returns:
        The model, with its encoders.
    """
    if config.means == "frozen":
        raise ValueError(
            "means frozen needs a finished model, not encoders: use adapt_model(model, ...), or adapt(...) with a name"
        )
    folder = Path(out).expanduser()
    require_usable_data(data, config)
    if config.bundle:
        require_bundleable(encoders.image, encoders.text)
    with claim_folder(folder, encoders, config):
        datasets = compute_features(encoders, _get_address(data), folder / FEATURES, config)
        return _train_heads(encoders, datasets, folder, config)


def _train_heads(encoders: Encoders, datasets: FeatureDatasets, folder: Path, config: AdaptConfig) -> ProLIP:
    """Fit feature maps, write pairs, train heads, and write the model folder; returns the model."""
    split = split_samples(datasets, config.held_out, config.seed)
    sizes = choose_sizes(len(split.train), config)
    maps = _fit_maps(encoders, datasets, split, sizes)
    pairs = _write_pairs(folder, datasets, split, maps)
    initial = make_initial_model(encoders, maps, sizes, config)
    atomic_write_folder(folder / "initial", initial.save_pretrained)
    model = train_or_continue(make_train_config(folder, sizes, len(split.train), config))
    if config.learns_from_pool:
        model = distill_widths(model, pairs, folder / "distillation", sizes, config)
    return _write_model(folder, model, encoders, config)


@takes_config(AdaptConfig)
def adapt_model(model: ProLIP, data: str | Path | Source, out: str | Path, config: AdaptConfig) -> ProLIP:
    """Give a finished model widths that learn from a pool; its means stay as they are, to the bit.

    Args:
        model: The model: CLIP, SigLIP, ProLIP, also one that `adapt` made. It must not be changed afterwards.
        data, out: As for `adapt`.
        config: With means frozen; `image_encoder` is the name by which the model is loaded again.

    Returns:
        The model with widths.

    Raises:
        ValueError, OSError: The model, data or folder can't be used.
    """
    if config.means != "frozen":
        raise ValueError("adapt_model keeps the means of a model: set means frozen")
    folder, is_tower = Path(out).expanduser(), not model.config.is_frozen
    encoders = _get_encoders(model.eval(), config.image_encoder)
    require_usable_data(data, config)
    if config.bundle:
        require_bundleable(encoders.image, encoders.text)
    with claim_folder(folder, encoders, config):
        datasets = compute_features(encoders, _get_address(data), folder / FEATURES, config)
        split = split_samples(datasets, config.held_out, config.seed)
        sizes = choose_sizes(len(split.train), config)
        base = model
        if is_tower:
            base = make_finished_model(model, encoders, _fit_maps(encoders, datasets, split, sizes))
        assert isinstance(base.image, FrozenTower)
        assert isinstance(base.text, FrozenTower)
        maps = None if is_tower else (base.image.feature_map, base.text.feature_map)
        pairs = _write_pairs(folder, datasets, split, maps)
        result = distill_widths(base, pairs, folder / "distillation", sizes, config)
        return _write_model(folder, result, encoders, config)


def _load_finished_model(config: AdaptConfig) -> ProLIP:
    """The model whose means stay; ValueError if the name is that of an encoder alone."""
    name = config.image_encoder
    is_encoder = name in packaged.IMAGE_ENCODERS or name.endswith(".onnx") or name.startswith("transformers:")
    if is_encoder:
        raise ValueError(
            f"means frozen needs a finished model, whose images and texts match; {name} is an image encoder alone. Set "
            "image_encoder to a model that prolip.load reads: CLIP, SigLIP, ProLIP"
        )
    return load(name)


def _get_encoders(model: ProLIP, name: str) -> Encoders:
    """The frozen encoders of a finished model: its towers, or those that it has itself."""
    if not isinstance(model.image, FrozenTower) or not isinstance(model.text, FrozenTower):
        return Encoders(*make_tower_encoders(model, name))
    if model.config.has_raw_features:
        raise ValueError(f"{name} has no heads: its features are not comparable means")
    image, text = model.image.encoder, model.text.encoder
    assert isinstance(image, ImageEncoder)
    assert isinstance(text, TextEncoder)
    return Encoders(image, text)


def _get_address(data: str | Path | Source) -> str | Source:
    """Data as `embed` takes it."""
    return str(data) if isinstance(data, str | Path) else data


def _fit_maps(
    encoders: Encoders, datasets: FeatureDatasets, split: Split, sizes: TrainingSizes
) -> tuple[FeatureMap, FeatureMap]:
    """Fit the feature maps of images and texts to the training samples."""
    return (
        fit_map(datasets.images[0], split.train, min(sizes.components, encoders.image.config.dim)),
        fit_map(datasets.texts[0], split.train, min(sizes.components, encoders.text.config.dim)),
    )


def _write_pairs(folder: Path, datasets: FeatureDatasets, split: Split, maps: Maps) -> Pairs:
    """Write the feature pairs of both parts of the data."""
    return Pairs(
        write_pairs(folder / "pairs" / "train", datasets, split.train, maps),
        write_pairs(folder / "pairs" / "held_out", datasets, split.held_out, maps),
    )


def _write_model(folder: Path, model: ProLIP, encoders: Encoders, config: AdaptConfig) -> ProLIP:
    """Write the model folder, and return the model with its encoders."""
    bundled = (encoders.image, encoders.text) if config.bundle else ()
    atomic_write_folder(folder / MODEL, lambda path: save_with_encoders(model, path, bundled, load))
    if config.bundle:  # with the copies, whose digests may differ
        return load(folder / MODEL, device="cpu")
    model = ProLIP.from_folder(folder / MODEL)
    return model.set_encoders(encoders.image, encoders.text).eval()


def open_encoders(config: AdaptConfig) -> Encoders:
    """Open the encoders of a config.

    Args:
        config: Their names.

    Returns:
        The encoders.
    """
    name = config.text_encoder
    if name is None:
        is_image_alone = config.image_encoder in packaged.IMAGE_ENCODERS
        name = packaged.MINILM if is_image_alone else config.image_encoder
    return Encoders(open_image_encoder(config.image_encoder, load), open_text_encoder(name, load))
