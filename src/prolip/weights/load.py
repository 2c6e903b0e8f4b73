"""prolip.load: models from our folders, foreign folders and files, the hub, or the package."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prolip.checks import join_names
from prolip.files import read_json
from prolip.model import folder as model_folder
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.tokenizer import MASK_TOKENS, Tokenizer, TokenizerConfig, read_tokenizer_file
from prolip.weights import hub
from prolip.weights.encoders.attach import attach_encoders, attach_named_encoders
from prolip.weights.encoders.open import ImageEncoderName, TextEncoderName
from prolip.weights.formats import huggingface, open_clip, release
from prolip.weights.formats.base import WeightFormat
from prolip.weights.formats.files import ForeignModel, read_foreign_model
from prolip.weights.formats.rules import LoadingReport, apply_rules

RUN_MODEL_FOLDER = "model"
"""Subfolder of a training run that holds its model."""
SHIPPED_FOLDER = Path(__file__).parent / "shipped"
"""Models that come with the package."""
FORMATS = (release.FORMAT, huggingface.FORMAT, open_clip.FORMAT)
"""The release comes first: it has the tensor names of open_clip, too."""


@dataclass(frozen=True)
class LoadedModel:
    """A model, what happened to its tensors, and the format of its files."""

    model: ProLIP
    report: LoadingReport
    format: str


def load(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    config: str | Path | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
) -> ProLIP:
    """Load a model for inference.

    Supported formats are folders of `ProLIP.save_pretrained`, the ProLIP release, and CLIP and SigLIP of open_clip and
    transformers. CLIP and SigLIP become models of zero variance.

    Args:
        name_or_path: A local folder (also of a finished training run) or file of weights, "scenes-tiny" (a small model
            of procedural scenes that comes with the package), or a hub id `owner/name`.
        revision: Branch, tag or commit of a hub id.
        device: None: CUDA if available, else the CPU.
        dtype: None: as saved.
        tokenizer: A `Tokenizer`, or a folder or hub id that has one, for weights without a tokenizer.
        config: Config of a file of weights; None: it is in the same folder. A JSON file of open_clip's model_configs
            can be used.
        image_size, context_length: If they differ from the model's own, position embeddings are resized; the first 20
            text positions are kept.

    Returns:
        The model.

    Raises:
        ValueError, OSError: No model is found, its files can't be read, or an argument is not valid for the model.
    """
    if dtype is not None and dtype not in model_folder.WEIGHT_DTYPES:
        raise ValueError(
            f"dtype {dtype} is not one of {', '.join(str(t) for t in model_folder.WEIGHT_DTYPES)}"
        )
    config_path = None if config is None else Path(config)
    loaded = open_model(name_or_path, revision=revision, tokenizer=tokenizer, config=config_path)
    model = resize_model(loaded.model, image_size=image_size, context_length=context_length)
    return model.to(device=_resolve_device(device), dtype=dtype)


def _resolve_device(name: str | torch.device | None) -> torch.device:
    """The torch device of a name; None: CUDA if available, else the CPU. Raises ValueError if it can't be used."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"The device {str(name)!r} is not available: {reason}") from None


def open_model(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    config: Path | None = None,
    with_encoders: bool = True,
) -> LoadedModel:
    """Load a model with its stored dtype, image size and context length, on the CPU.

    Args:
        name_or_path, revision, tokenizer, config: As for `load`.
        with_encoders: Whether a model with frozen encoders gets them; without, it encodes features only.

    Returns:
        The model, what happened to its tensors, and the format of its files.

    Raises:
        ValueError, OSError: As for `load`.
    """
    path = find_model(name_or_path, revision)
    # the folder of a training run: its model is in a subfolder
    if (path / RUN_MODEL_FOLDER / model_folder.CONFIG_FILE).is_file() and not (
        path / model_folder.WEIGHTS_FILE
    ).exists():
        path = path / RUN_MODEL_FOLDER
    if (
        path.is_dir()
        and (path / model_folder.CONFIG_FILE).is_file()
        and model_folder.is_prolip_config(read_json(path / model_folder.CONFIG_FILE))
    ):
        if config is not None:
            raise ValueError(
                f"{path} is a model folder of prolip and has its own config.json: remove the argument config"
            )
        model = ProLIP.from_folder(path)
        if model.config.is_frozen and with_encoders:
            attach_named_encoders(model, load, path)
        loaded = LoadedModel(
            model, LoadingReport(loaded=tuple(sorted(model.state_dict()))), model_folder.FORMAT
        )
    else:
        loaded = _load_foreign_model(read_foreign_model(path, config))
    if tokenizer is not None:
        loaded.model.set_tokenizer(resolve_tokenizer(loaded.model, tokenizer))
    return loaded


def set_encoders(
    model: ProLIP, image: ImageEncoderName | None = None, text: TextEncoderName | None = None
) -> ProLIP:
    """Give a model with frozen towers its encoders, see `ProLIP.set_encoders`.

    Args:
        model: Changed in place.
        image, text: The encoders; None: the model keeps the one that it has.

    Returns:
        The model itself.
    """
    return attach_encoders(model, load, image, text)


def find_model(name_or_path: str | Path, revision: str | None = None) -> Path:
    """The folder or file of a model.

    Args:
        name_or_path, revision: As for `load`. A model on the hub is downloaded to the hub's cache.

    Returns:
        A local folder or file.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If a revision is given for a model that is not on the hub, or the hub's repository has no model.
        OSError: If the hub is unreachable, or the repository is missing, private or gated.
    """
    path, name = Path(name_or_path), str(name_or_path)
    if path.exists():
        if revision is not None:
            raise ValueError(f"{name} is a local folder or file; only a hub id has a revision")
        return path
    if name in list_shipped_models():
        if revision is not None:
            raise ValueError(f"{name} comes with the package; only a hub id has a revision")
        return SHIPPED_FOLDER / name
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.startswith("."):
        if path.parent.is_dir():  # runs/miniature: a misspelled path, not an owner on the hub
            raise FileNotFoundError(f"The folder {path.parent} exists, but there is no {path.name} in it")
        return hub.fetch(name, revision)
    raise FileNotFoundError(
        f"There is no folder or file {name}. A hub id has the form owner/name; {join_names(list_shipped_models())} "
        "come with the package."
    )


def list_shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    if not SHIPPED_FOLDER.is_dir():
        return []
    return sorted(path.name for path in SHIPPED_FOLDER.iterdir() if path.is_dir())


def _load_foreign_model(source: ForeignModel) -> LoadedModel:
    """Convert a foreign model by the first format of `FORMATS` that matches; raises ValueError if none does."""
    for format in FORMATS:
        if format.matches(source):
            return _convert_foreign_model(source, format)
    names = sorted(source.tensors)
    known_formats = [model_folder.FORMAT, *(format.name for format in FORMATS)]
    raise ValueError(
        f"{source.path} is not in a known format ({', '.join(known_formats)}): its "
        f"{len(names)} tensors are called {', '.join(names[:3])}, ..."
    )


def _convert_foreign_model(source: ForeignModel, format: WeightFormat) -> LoadedModel:
    """Build our model from a foreign one; raises ValueError if config or tensors are not valid for the format.

    A tokenizer that can't be found or downloaded is no error: `tokenizer_error` of the model has the reason.
    """
    try:
        config = format.read_config(source)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(
            f"{source.path}: its config is not valid for the format {format.name}: {error}"
        ) from error
    tensors, report = apply_rules(
        format.make_rules(source, config),
        source.tensors,
        format.ignored,
        f"{source.path}, read as {format.name}",
    )
    model = ProLIP.from_tensors(config, tensors, source.path)
    model.origin = {"format": format.name, "config": dict(source.config)}
    try:
        _add_tokenizer(model, source, format.tokenizer_name(source, config))
    except (ValueError, OSError) as error:  # images need no tokenizer; embedding a text reports the error
        model.tokenizer_error = str(error)
    return LoadedModel(model, report, format.name)


def _add_tokenizer(model: ProLIP, source: ForeignModel, name: str | None) -> None:
    """Set the model's tokenizer: that of the source's folder, or else the one with the hub id `name`, downloaded.

    The hub id, if any, is stored in `model.origin`. Without either, the model stays without a tokenizer. Raises
    OSError or ValueError if the tokenizer can't be downloaded or read.
    """
    if name:
        model.origin["tokenizer"] = name
    backend = tokenizer_builders.read_folder_tokenizer(source.folder)
    folder: Path | None = source.folder
    if backend is None and name:
        folder = hub.fetch_tokenizer(name)
        backend = None if folder is None else tokenizer_builders.read_folder_tokenizer(folder)
    if backend is not None and folder is not None:
        model.set_tokenizer(Tokenizer(backend, _add_mask_id(model.config.text.tokenizer, backend, folder)))


def resolve_tokenizer(model: ProLIP, tokenizer: str | Path | Tokenizer) -> Tokenizer:
    """Make a tokenizer for a model from the one that a user has chosen. The model is not changed.

    Args:
        model: The model.
        tokenizer: A tokenizer, a folder or file, or a hub id.

    Returns:
        A new tokenizer with the vocabulary size and context length of the model. Special ids are those of a given
        `Tokenizer`, or else the model's.

    Raises:
        ValueError: If the folder or repository has no tokenizer.
        OSError: If a hub id can't be downloaded.
    """
    if isinstance(tokenizer, Tokenizer):
        return Tokenizer(tokenizer.copy_backend(), _fit_tower(tokenizer.config, model))
    path = Path(tokenizer)
    folder = path if path.exists() else hub.fetch_tokenizer(str(tokenizer))
    backend = None
    if folder is not None:
        backend = (
            read_tokenizer_file(folder)
            if folder.is_file()
            else tokenizer_builders.read_folder_tokenizer(folder)
        )
    if backend is None or folder is None:
        raise ValueError(
            f"{tokenizer} has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"
        )
    return Tokenizer(backend, _add_mask_id(model.config.text.tokenizer, backend, folder))


def _fit_tower(config: TokenizerConfig, model: ProLIP) -> TokenizerConfig:
    """The config with the settings that the text tower fixes: vocab_size, context_length and pad_to."""
    tower = model.config.text.tokenizer
    return replace(
        config, vocab_size=tower.vocab_size, context_length=tower.context_length, pad_to=tower.pad_to
    )


def _add_mask_id(config: TokenizerConfig, backend: Any, path: Path) -> TokenizerConfig:
    """The config with the id of the mask token; unchanged if the tokenizer has no usable one.

    The mask token is the one that the tokenizer's files name, or else the first of `MASK_TOKENS` in the vocabulary.
    `path` is the folder or file of the tokenizer. The padding id stays: the tower was trained with that of its format,
    whatever others pad this vocabulary with (CLIP's is padded with 0 by the release and open_clip, with the end token
    by transformers).
    """
    special_tokens = tokenizer_builders.read_special_tokens(path if path.is_dir() else path.parent)
    for token in (special_tokens.get("mask"), *MASK_TOKENS):
        token_id = None if token is None else backend.token_to_id(token)
        if (
            token_id is not None
            and token_id < config.vocab_size
            and token_id not in (config.pad_id, config.start_id, config.end_id)
        ):
            return replace(config, mask_id=token_id)
    return config
