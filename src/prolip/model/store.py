"""The files of our own folder: config.json, model.safetensors, tokenizer.json. Written whole, read with a sentence."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from prolip.files import write_whole
from prolip.inputs.tokens import Tokenizer
from prolip.model.config import ModelConfig

FORMAT, VERSION = "prolip", 1
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
    values = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_whole(folder / WEIGHTS, lambda path: save_file(values, path, metadata={"format": "pt"}))
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
    else:
        (folder / TOKENIZER).unlink(missing_ok=True)  # an older model's, that this one would be given
    write_json(folder / CONFIG, description(config, origin))
    return folder


def description(config: ModelConfig, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": config.to_dict()}
    return {**content, "origin": dict(origin)} if origin else content


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
