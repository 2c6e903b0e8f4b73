"""`adapt`: image-text pairs and frozen encoders -> a model folder with uncertainty; a stopped run can be resumed."""

from __future__ import annotations

import logging
from pathlib import Path

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders, FeatureDatasets, attach, compute_features
from prolip.adaptation.heads import make_initial_model, make_train_config
from prolip.adaptation.pairs import fit_map, split_samples, write_pairs
from prolip.adaptation.run_folder import claim_folder, require_random_access
from prolip.adaptation.sizes import choose_sizes
from prolip.configs import takes_config
from prolip.data.source import Source
from prolip.files import atomic_write_folder
from prolip.model.prolip import ProLIP
from prolip.training.run_folder import MODEL
from prolip.training.trainer import train
from prolip.weights.encoders import packaged
from prolip.weights.encoders.bundle import require_bundleable, save_with_encoders
from prolip.weights.encoders.open import (
    open_image_encoder,
    open_text_encoder,
)
from prolip.weights.load import load

log = logging.getLogger("prolip.adaptation")


@takes_config(AdaptConfig)
def adapt(data: str | Path | Source, out: str | Path, config: AdaptConfig) -> ProLIP:
    """Train heads on the features of frozen encoders, from image-text pairs.

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
    require_random_access(data)
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
    folder = Path(out).expanduser()
    require_random_access(data)
    if config.bundle:
        require_bundleable(encoders.image, encoders.text)
    source = str(data) if isinstance(data, str | Path) else data
    with claim_folder(folder, encoders, config):
        datasets = compute_features(encoders, source, folder / "features", config)
        _train_heads(encoders, datasets, folder, config)
    if config.bundle:  # with the copies, whose digests may differ
        return load(folder / MODEL, device="cpu")
    return attach(ProLIP.from_folder(folder / MODEL), encoders).eval()


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
    if not (run / MODEL).is_dir():  # a signal stopped the training, which has saved a checkpoint
        raise KeyboardInterrupt("stopped; the same command continues it")
    model = ProLIP.from_folder(run / MODEL)
    bundled = (encoders.image, encoders.text) if config.bundle else ()
    atomic_write_folder(folder / MODEL, lambda path: save_with_encoders(model, path, bundled, load))
