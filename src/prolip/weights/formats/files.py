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
        tensors: By name.
        preprocessing: Image preprocessing of transformers, if there is one.
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
        """Whether it has all these tensors."""
        return all(name in self.tensors for name in names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor; raises ValueError if it is missing."""
        if name not in self.tensors:
            raise ValueError(f"{self.path}: the tensor {name} is missing")
        return tuple(self.tensors[name].shape)


def read_foreign_model(path: Path, config: Path | None = None) -> ForeignModel:
    """Read a foreign model.

    Args:
        path: A folder as on the hub, or a file of weights.
        config: Config of a file of weights; None: it is in the same folder.

    Returns:
        Its config, tensors and preprocessing.

    Raises:
        FileNotFoundError: If config or weights are missing.
        ValueError: If a file can't be read.
    """
    found_config, weights = _find_files(path) if path.is_dir() else (_find_config(path, config), path)
    return ForeignModel(
        path=path,
        config=read_json(config or found_config),
        tensors=_get_state_dict(read_weights(weights), weights),
        preprocessing=_read_preprocessing(weights.parent),
    )


def read_weights(path: Path) -> dict[str, Any]:
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
        if _is_torchscript(path):
            raise ValueError(
                "it is a TorchScript archive, like OpenAI's original files; use a copy in another format"
            )
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle or zip can raise nearly anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, incomplete, or holds more than tensors "
            f"(loading that could run foreign code, so it is refused): {lines[0]}"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not named tensors")
    return content


def _read_preprocessing(folder: Path) -> dict[str, Any]:
    """The image preprocessing of transformers in a folder; empty if it has no such file."""
    for name in PREPROCESSING_FILES:
        if (folder / name).is_file():
            content = read_json(folder / name)
            return dict(content.get("image_processor") or {}) if name == "processor_config.json" else content
    return {}


def _is_torchscript(path: Path) -> bool:
    """Whether the file is a TorchScript archive, a zip file with constants.pkl."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") for name in archive.namelist())


def _get_state_dict(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Tensors of a checkpoint or of its `state_dict`, by name without the prefixes of DDP and torch.compile.

    Values that are no tensors are skipped. Raises ValueError if no tensor is left, or if two get the same name.
    """
    inner = content.get("state_dict", content)
    if not isinstance(inner, Mapping):
        raise ValueError(f"{path}: its state_dict is a {type(inner).__name__}")
    tensors: dict[str, Tensor] = {}
    for name, value in inner.items():
        if isinstance(value, Tensor) and isinstance(name, str):
            bare = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
            if bare in tensors:
                raise ValueError(f"{path} has the tensor {bare} twice, with and without a prefix")
            tensors[bare] = value
    if not tensors:
        raise ValueError(f"{path} has no named tensors")
    return tensors


def _find_files(folder: Path) -> tuple[Path, Path]:
    """Paths of config and weights in a folder, the first pair of `CONFIG_AND_WEIGHTS` that is complete.

    Raises FileNotFoundError if there is none, and ValueError if the weights are sharded.
    """
    for config, names in CONFIG_AND_WEIGHTS:
        for name in names:
            if (folder / config).is_file() and (folder / name).is_file():
                return folder / config, folder / name
    if list(folder.glob("*.index.json")):
        raise ValueError(
            f"{folder}: its weights are sharded into several files. Save them as one model.safetensors first."
        )
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise FileNotFoundError(
        f"{folder} is not a model in a known format: expected {describe_expected_files()}, found {found}"
    )


def _find_config(path: Path, given: Path | None) -> Path:
    """The config of a file of weights: `given`, or else the one in its folder.

    Raises FileNotFoundError if there is none.
    """
    found = (
        [given]
        if given
        else [path.with_name(name) for name, _ in CONFIG_AND_WEIGHTS if path.with_name(name).is_file()]
    )
    if not found:
        raise FileNotFoundError(
            f"{path}: there is no config in its folder, so the number of heads, the activation and the resolution are "
            "unknown. Pass one as `config`, for example a JSON file of open_clip's model_configs."
        )
    return found[0]
