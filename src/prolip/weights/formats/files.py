"""Files of a foreign model: config, tensors, preprocessing. Pickles are loaded with weights_only."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.files import read_json
from prolip.model.folder import read_safetensors

CONFIG_AND_WEIGHTS = (
    (
        "open_clip_config.json",
        ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"),
    ),
    ("config.json", ("model.safetensors", "pytorch_model.bin")),
)
"""File names of configs, and of the weights that belong to them, by priority. Some folders have both."""

PREPROCESSING_FILES = ("preprocessor_config.json", "processor_config.json")
"""Image preprocessing of transformers: until version 4, and from version 5."""


def describe_expected_files() -> str:
    """The files that a model folder must have, for messages."""
    return " or ".join(f"{config} with {names[0]}" for config, names in CONFIG_AND_WEIGHTS)


@dataclass(frozen=True)
class ForeignModel:
    """A foreign model, read but not interpreted yet.

    Attributes:
        path: Its folder or file.
        config: Content of its config file.
        tensors: Foreign tensors by name.
        preprocessing: Config of transformers' image processor; empty if there is no such file.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.path if self.path.is_dir() else self.path.parent

    def has(self, *names: str) -> bool:
        """Whether the model has tensors of all these names."""
        return all(name in self.tensors for name in names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor; raises ValueError if it is missing."""
        if name not in self.tensors:
            raise ValueError(f"the tensor {name} is missing")
        return tuple(self.tensors[name].shape)


def read_foreign_model(path: Path, config: Path | None = None) -> ForeignModel:
    """Read the files of a foreign model.

    Args:
        path: A folder as on the hub, or a file of weights.
        config: Config file to use instead of the one in the folder of the weights.

    Returns:
        Its config, tensors and preprocessing.

    Raises:
        FileNotFoundError: If config or weights are missing.
        ValueError: If a file can't be read.
    """
    if path.is_dir():
        folder_config, weights = _find_files(path)
        config = config or folder_config
    else:
        weights = path
        config = config or _find_config(path)
    return ForeignModel(
        path=path,
        config=read_json(config),
        tensors=_get_state_dict(read_weights(weights), weights),
        preprocessing=_read_preprocessing(weights.parent),
    )


def read_weights(path: Path) -> Mapping[str, object]:
    """Read a file of weights.

    Args:
        path: safetensors, or a file of torch.save. Loaded with weights_only: a file that would run code is refused.

    Returns:
        Its content; mostly tensors by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, holds more than tensors, or is a TorchScript archive.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix == ".safetensors":
        return dict(read_safetensors(path))
    try:
        is_torchscript = _is_torchscript(path)
        content = None if is_torchscript else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle or zip can raise nearly anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) can't be loaded: it is damaged or incomplete (copy it again), or "
            "holds Python objects besides tensors, which could run code (save its state_dict alone, best as "
            f".safetensors): {lines[0]}"
        ) from None
    if is_torchscript:
        raise ValueError(
            f"{path} is a TorchScript archive, as OpenAI's original files are, and can't be loaded. Use the model in "
            "the format of transformers or open_clip, such as the hub id openai/clip-vit-base-patch32."
        )
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not named tensors")
    return content


def _read_preprocessing(folder: Path) -> Mapping[str, Any]:
    """The config of transformers' image processor in a folder; empty if the folder has no such file."""
    for name in PREPROCESSING_FILES:
        if (folder / name).is_file():
            config = read_json(folder / name)
            # version 5 stores the configs of image processor and tokenizer in one file
            return dict(config.get("image_processor") or {}) if name == "processor_config.json" else config
    return {}


def _is_torchscript(path: Path) -> bool:
    """Whether the file is a TorchScript archive, a zip file with constants.pkl."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") for name in archive.namelist())


def _get_state_dict(content: Mapping[str, object], path: Path) -> dict[str, Tensor]:
    """Tensors of a checkpoint or of its `state_dict`, by name without the prefixes of DDP and torch.compile.

    `content` is what the file `path` holds. Values that are no tensors are skipped. Raises ValueError if there is no
    tensor, or if two get the same name.
    """
    state_dict = content.get("state_dict", content)
    if not isinstance(state_dict, Mapping):
        raise ValueError(f"{path}: its state_dict is a {type(state_dict).__name__}, not named tensors")
    tensors: dict[str, Tensor] = {}
    for name, value in state_dict.items():
        if isinstance(value, Tensor) and isinstance(name, str):
            bare_name = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
            if bare_name in tensors:
                raise ValueError(f"{path} has the tensor {bare_name} twice, with and without a prefix")
            tensors[bare_name] = value
    if not tensors:
        raise ValueError(f"{path} has no named tensors")
    return tensors


def _find_files(folder: Path) -> tuple[Path, Path]:
    """Paths of config and weights in a folder, the first pair of `CONFIG_AND_WEIGHTS` that is complete.

    Raises FileNotFoundError if there is none, and ValueError if the weights are sharded.
    """
    for config, weight_files in CONFIG_AND_WEIGHTS:
        for weights in weight_files:
            if (folder / config).is_file() and (folder / weights).is_file():
                return folder / config, folder / weights
    if list(folder.glob("*.index.json")):
        raise ValueError(
            f"{folder}: its weights are sharded into several files. Save them as one model.safetensors first: "
            'transformers does it with save_pretrained(folder, max_shard_size="100GB").'
        )
    file_names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise FileNotFoundError(
        f"{folder} is not a model in a known format: expected {describe_expected_files()}, found {file_names}"
    )


def _find_config(weights: Path) -> Path:
    """The path of the config in the folder of a file of weights; raises FileNotFoundError if there is none."""
    for name, _ in CONFIG_AND_WEIGHTS:
        if (config := weights.with_name(name)).is_file():
            return config
    raise FileNotFoundError(
        f"{weights}: there is no config in its folder, so the number of heads, the activation and the resolution are "
        "unknown. Pass a config file, for example of open_clip's model_configs: as the argument config of prolip.load, "
        "or with --model-config of prolip convert."
    )
