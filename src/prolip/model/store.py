"""The files of our own folder: config.json, model.safetensors, tokenizer.json. Written whole, read with a sentence."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from prolip.files import write_json, write_whole
from prolip.model.config import ModelConfig
from prolip.preprocessing.tokenizer import Tokenizer

FORMAT, VERSION = "prolip", 1
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def write(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    origin: Mapping[str, Any],
) -> Path:
    """The weights go first, config.json last: a folder without it was never finished."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a model is saved into a folder")
    require_numbers(tensors, "the model")
    values = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    found = digest(values)
    write_whole(folder / WEIGHTS, lambda path: save_tensors(values, path, {"weights": found}))
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
    else:
        (folder / TOKENIZER).unlink(missing_ok=True)  # an older model's, that this one would be given
    write_json(folder / CONFIG, {**description(config, origin), "weights": found})
    return folder


def require_numbers(tensors: Mapping[str, Tensor], source: object) -> None:
    """Every tensor holds finite floats of 16 bits or more."""
    for name, value in tensors.items():
        if value.dtype not in TYPES or value.is_meta or not bool(value.isfinite().all()):
            raise ValueError(
                f"{source}: {name} ({value.dtype}) holds no weights, or weights that are not finite numbers"
            )


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """A safetensors file. At most one entry of metadata keeps its bytes the same: their order is left to chance."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"{path.parent} can't take the weights: {error}") from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of the weights. It stands in both files, so that parts of two saves are never taken for one."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def fingerprint(path: Path) -> str | None:
    """The fingerprint in a file of weights; None if it has none, or can't be read: `read_tensors` says why."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("weights")
    except (SafetensorError, OSError):
        return None


def description(config: ModelConfig, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": config.to_dict()}
    return {**content, "origin": dict(origin)} if origin else content


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file; a sentence if it is missing, truncated or something else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: without it there are no weights")
    try:
        # not the mapped file itself: whoever overwrites it would change the model, or end the process
        return {name: value.clone() for name, value in load_file(path).items()}
    except (SafetensorError, ValueError, OSError, struct.error) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, incomplete or no safetensors file: {error}. "
            "Copy or download it again"
        ) from None
