"""`adapt`: image-text pairs and frozen encoders -> a model folder with uncertainty; a stopped run can be resumed."""

from __future__ import annotations

import logging
from pathlib import Path

from prolip.adapt.config import AdaptConfig
from prolip.adapt.features import Encoders, FeatureDatasets, compute_features
from prolip.adapt.heads import make_initial_model, make_train_config
from prolip.adapt.pairs import fit_map, split_samples, write_pairs
from prolip.adapt.sizes import choose_sizes
from prolip.configs import takes_config
from prolip.data.source import Source
from prolip.files import atomic_write_folder
from prolip.model.prolip import ProLIP
from prolip.training.run_folder import MODEL
from prolip.training.trainer import train
from prolip.weights.encoders import packaged
from prolip.weights.encoders.open import (
    ImageEncoderName,
    TextEncoderName,
    open_image_encoder,
    open_text_encoder,
)
from prolip.weights.load import load

log = logging.getLogger("prolip.adapt")


@takes_config(AdaptConfig)
def adapt(
    data: str | Path | Source,
    out: str | Path,
    config: AdaptConfig,
    image_encoder: ImageEncoderName | None = None,
    text_encoder: TextEncoderName | None = None,
) -> ProLIP:
    """Train heads on the features of frozen encoders, from image-text pairs.

    Features are computed once and cached in OUT/features; a run that was stopped resumes there, and in the training.

    Args:
        data: Pairs: shards, a table, a folder (docs/data.md); or a source.
        out: Folder for features, training and the model, OUT/model.
        config: How to adapt; or its fields as keywords.
        image_encoder, text_encoder: Encoders that are Python objects, see `PythonEncoder`; they replace the config's.

    Returns:
        The model, with its encoders.

    Raises:
        ValueError, OSError: Data, encoders or folder can't be used.
    """
    folder = Path(out).expanduser()
    encoders = open_encoders(config, image_encoder, text_encoder)
    datasets = compute_features(encoders, _resolve(data), folder / "features", config)
    _train_heads(encoders, datasets, folder, config)
    return load_adapted(folder / MODEL, encoders)


def open_encoders(
    config: AdaptConfig,
    image_encoder: ImageEncoderName | None = None,
    text_encoder: TextEncoderName | None = None,
) -> Encoders:
    """Open the encoders of a config.

    Args:
        config: Their names.
        image_encoder, text_encoder: Encoders that replace the config's; None: none.

    Returns:
        The encoders.
    """
    image = open_image_encoder(image_encoder or config.image_encoder, load)
    name = text_encoder or config.text_encoder
    if name is None:
        is_finished = config.image_encoder not in packaged.IMAGE_ENCODERS and image_encoder is None
        name = config.image_encoder if is_finished else packaged.MINILM
    return Encoders(image, open_text_encoder(name, load))


def _resolve(data: str | Path | Source) -> str | Source:
    """A source as it is, a path as text."""
    return str(data) if isinstance(data, str | Path) else data


def _train_heads(encoders: Encoders, datasets: FeatureDatasets, folder: Path, config: AdaptConfig) -> None:
    """Fit feature maps, write pairs, train heads, and write the model folder."""
    split = split_samples(datasets, config.held_out, config.seed)
    sizes = choose_sizes(len(split.train), config)
    maps = (
        fit_map(datasets.images[0], split.train, min(sizes.components, encoders.image.config.dim)),
        fit_map(datasets.texts[0], split.train, min(sizes.components, encoders.text.config.dim)),
    )
    write_pairs(folder / "pairs" / "train", datasets, split.train, maps)
    write_pairs(folder / "pairs" / "held_out", datasets, split.held_out, maps)
    initial = make_initial_model(encoders, maps, sizes, config)
    atomic_write_folder(folder / "initial", initial.save_pretrained)
    run = train(make_train_config(folder, sizes, len(split.train), config), resume=True)
    model = ProLIP.from_folder(run / MODEL)
    atomic_write_folder(folder / MODEL, model.save_pretrained)


def load_adapted(folder: Path, encoders: Encoders) -> ProLIP:
    """Load an adapted model with encoders that are open already.

    Args:
        folder: Model folder.
        encoders: Its encoders.

    Returns:
        The model, in eval mode.
    """
    from prolip.adapt.features import attach

    return attach(ProLIP.from_folder(folder), encoders).eval()
