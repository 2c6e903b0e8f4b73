"""Our own folder: config.json, model.safetensors, tokenizer.json. Written whole, read with a sentence for what is wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from prolip.files import write_whole
from prolip.inputs.tokens import Tokenizer
from prolip.model.config import ModelConfig
from prolip.model.prolip import ProLIP

FORMAT, VERSION = "prolip", 1
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def save(model: ProLIP, folder: Path) -> Path:
    """The weights go first, config.json last: a folder without it was never finished."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a model is saved into a folder")
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_whole(folder / WEIGHTS, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER)
    else:
        (folder / TOKENIZER).unlink(missing_ok=True)  # an older model's, that this one would be given
    write_json(folder / CONFIG, describe(model))
    return folder


def describe(model: ProLIP) -> dict[str, Any]:
    """What config.json says."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": model.config.to_dict()}
    return {**content, "origin": model.origin} if model.origin else content


def is_native(config: Mapping[str, Any]) -> bool:
    return config.get("format") == FORMAT


def load(folder: Path) -> ProLIP:
    """The model in a folder that `save` wrote, in float32 or whatever it was saved in, on the CPU."""
    content = read_json(folder / CONFIG)
    if not is_native(content):
        raise ValueError(f"{folder / CONFIG} is not of a prolip model: it has no \"format\": \"{FORMAT}\"")
    if content.get("version") != VERSION:
        raise ValueError(
            f"{folder / CONFIG} has version {content.get('version')!r}; this prolip reads {VERSION}: update prolip"
        )
    try:
        config = ModelConfig.from_dict(content.get("model", {}))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from None
    model = fill(config, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    model.origin = dict(content.get("origin", {}))
    if (folder / TOKENIZER).exists():
        model.use_tokenizer(Tokenizer.from_file(folder / TOKENIZER, config.text.tokens))
    return model


def empty(config: ModelConfig) -> ProLIP:
    """A model without memory behind its parameters, to be filled."""
    with torch.device("meta"):
        return ProLIP(config)


def fill(config: ModelConfig, tensors: Mapping[str, Tensor], source: object) -> ProLIP:
    """A model that holds these tensors; all must be there, none more, each of its shape, none with NaN or infinity."""
    model = empty(config)
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != found:
        raise ValueError(f"{source} does not fit its config: {_difference(wanted, found)}")
    for name, value in tensors.items():
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise ValueError(f"{source}: {name} holds values that are not finite numbers ({value.dtype})")
    model.load_state_dict(dict(tensors), assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file; a sentence if it is missing, truncated or something else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: without it there are no weights")
    try:
        return load_file(path)
    except (SafetensorError, ValueError, OSError, struct.error) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, incomplete or no safetensors file: {error}. "
            "Copy or download it again"
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; a sentence if it is missing or something else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(content).__name__}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def _difference(wanted: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    missing = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    shapes = [f"{k} is {found[k]}, not {wanted[k]}" for k in sorted(wanted.keys() & found.keys()) if wanted[k] != found[k]]
    parts = [
        f"{len(missing)} tensors are missing ({_some(missing)})" if missing else "",
        f"{len(extra)} are unknown ({_some(extra)})" if extra else "",
        f"{len(shapes)} have another shape ({_some(shapes)})" if shapes else "",
    ]
    return "; ".join(part for part in parts if part)


def _some(names: list[str], count: int = 3) -> str:
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")
