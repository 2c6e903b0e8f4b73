"""What a foreign model brings along: its config, its tensors, where they lie. Read with care: no pickle runs code."""

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
from prolip.model.store import read_tensors

FILES = (
    (
        "open_clip_config.json",
        ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"),
    ),
    ("config.json", ("model.safetensors", "pytorch_model.bin")),
)
"""Configs and the weights that belong to them, in folders of the formats that we know. Some folders have both."""

PREPROCESSING = ("preprocessor_config.json", "processor_config.json")
"""Where transformers writes how images are prepared: until version 4, and from 5."""


def wanted_files() -> str:
    return " or ".join(f"{config} with {names[0]}" for config, names in FILES)


@dataclass(frozen=True)
class Source:
    """A foreign model, read but not understood yet."""

    path: Path
    """The folder or file, for messages."""
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    preprocessing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def has(self, *names: str) -> bool:
        return all(name in self.tensors for name in names)

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.tensors:
            raise ValueError(f"{self.path}: the tensor {name} is missing")
        return tuple(self.tensors[name].shape)


def read_source(path: Path, config: Path | None = None) -> Source:
    """A folder as the hubs have it, or a single file of weights with a config (beside it, or given)."""
    found_config, weights = _pair_in(path) if path.is_dir() else (_config_beside(path, config), path)
    return Source(
        path=path,
        config=read_json(config or found_config),
        tensors=_named(read_weights(weights), weights),
        preprocessing=_preprocessing(weights.parent),
    )


def read_weights(path: Path) -> dict[str, Any]:
    """safetensors, or what torch.save wrote (`weights_only`: a file that wants to run code is refused)."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix == ".safetensors":
        return dict(read_tensors(path))
    try:
        if _is_torchscript(path):
            raise ValueError(
                "it is a TorchScript archive, as OpenAI's original files are: take a copy in another format"
            )
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle or zip can raise nearly anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, incomplete, or holds more than tensors "
            f"(loading that could run foreign code, so it is refused): {lines[0]}"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not tensors by name")
    return content


def _preprocessing(folder: Path) -> dict[str, Any]:
    for name in PREPROCESSING:
        if (folder / name).is_file():
            content = read_json(folder / name)
            return dict(content.get("image_processor") or {}) if name == "processor_config.json" else content
    return {}


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") for name in archive.namelist())


def _named(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint: of a training run's `state_dict` entry, without DDP's and compile's prefixes."""
    inner = content.get("state_dict", content)
    if not isinstance(inner, Mapping):
        raise ValueError(f"{path}: its state_dict is a {type(inner).__name__}")
    tensors: dict[str, Tensor] = {}
    for name, value in inner.items():
        if isinstance(value, Tensor) and isinstance(name, str):
            bare = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
            if bare in tensors:
                raise ValueError(f"{path} holds {bare} twice, with and without a prefix")
            tensors[bare] = value
    if not tensors:
        raise ValueError(f"{path} holds no tensors by name")
    return tensors


def _pair_in(folder: Path) -> tuple[Path, Path]:
    """Config and weights of a folder."""
    for config, names in FILES:
        for name in names:
            if (folder / config).is_file() and (folder / name).is_file():
                return folder / config, folder / name
    if list(folder.glob("*.index.json")):
        raise ValueError(
            f"{folder}: its weights are cut into several files; save them as one model.safetensors first"
        )
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise FileNotFoundError(
        f"{folder} is no model that we know: it should have {wanted_files()}; it holds {found}"
    )


def _config_beside(path: Path, given: Path | None) -> Path:
    found = (
        [given] if given else [path.with_name(name) for name, _ in FILES if path.with_name(name).is_file()]
    )
    if not found:
        raise FileNotFoundError(
            f"{path}: there is no config beside the weights, and without it the number of heads, the activation and "
            "the resolution are unknown; give one as `config` (a JSON file of open_clip's model_configs will do)"
        )
    return found[0]
