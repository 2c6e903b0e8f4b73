"""The model folder (config.json, model.safetensors, tokenizer.json, words.txt): writing, reading, checks."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from prolip.files import atomic_write, read_json, write_json
from prolip.model.config import ModelConfig
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.words import WORDS_FILE, read_words, write_words

FORMAT, VERSION = "prolip", 2
MODEL_TYPE = "prolip"
"""By this entry of config.json transformers finds its classes, see prolip.integrations."""
WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE = "config.json", "model.safetensors", "tokenizer.json"


@dataclass(frozen=True, eq=False)
class ModelContents:
    """What a model folder holds.

    Attributes:
        config: The architecture and the preprocessing.
        tensors: The state dict.
        tokenizer: None if the model has none.
        origin: Where the weights came from, if they were converted.
        training_words: Words of the captions that the model was trained on; None: unknown.
    """

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    training_words: frozenset[str] | None = None


def write_model_folder(folder: Path, contents: ModelContents) -> Path:
    """Write config.json, model.safetensors and, if the model has them, tokenizer.json and words.txt.

    The weights are written first and config.json last: a folder without config.json was never finished.

    Args:
        folder: Created if need be; files of an older model in it are replaced.
        contents: The model.

    Returns:
        The folder.

    Raises:
        ValueError: If the folder is a file, or a weight is not finite.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a model is saved into a folder: choose another path")
    require_finite_weights(contents.tensors, "the model")
    tensors = {name: value.detach().cpu().contiguous() for name, value in contents.tensors.items()}
    digest = compute_digest(tensors)
    atomic_write(folder / WEIGHTS_FILE, lambda path: write_safetensors(tensors, path, {"weights": digest}))
    if contents.tokenizer is not None:
        contents.tokenizer.save(folder / TOKENIZER_FILE)
    else:
        # an older model's tokenizer.json would otherwise be loaded with this model
        (folder / TOKENIZER_FILE).unlink(missing_ok=True)
    write_words(folder / WORDS_FILE, contents.training_words)
    write_json(
        folder / CONFIG_FILE, {**make_config_json(contents.config, contents.origin), "weights": digest}
    )
    return folder


def read_model_folder(folder: Path, *, verify: bool = True) -> ModelContents:
    """Read a folder that `write_model_folder` wrote.

    Args:
        folder: The model folder.
        verify: Hash the weights and compare them with their fingerprint; it takes about as long as reading them.

    Returns:
        Its contents, with tensors on the CPU in the dtype in which they were saved. Whether the tensors fit the
        config is checked by `ProLIP.from_tensors`.

    Raises:
        ValueError: If a file is of another format or version, damaged, or of another save than the others.
        FileNotFoundError: If config.json or model.safetensors is missing.
    """
    path = folder / CONFIG_FILE
    config_json = read_json(path)
    if not is_prolip_config(config_json):
        raise ValueError(
            f'{path} is not the config of a prolip model: "format" must be "{FORMAT}". '
            "prolip.load reads models of other formats"
        )
    version = config_json.get("version")
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        advice = "Convert or train the model again" if older else "Update prolip"
        raise ValueError(
            f"{path} has format version {version!r}; this prolip reads version {VERSION}. {advice}"
        )
    try:
        config = ModelConfig.from_dict(config_json.get("model", {}))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    tensors = read_safetensors(folder / WEIGHTS_FILE)
    if verify:
        _require_fingerprint(folder, config_json.get("weights"), tensors)
    tokenizer = None
    if (folder / TOKENIZER_FILE).exists():
        tokenizer = Tokenizer.from_file(folder / TOKENIZER_FILE, config.text.tokenizer)
    origin = dict(config_json.get("origin") or {})
    return ModelContents(config, tensors, tokenizer, origin, read_words(folder / WORDS_FILE))


def _require_fingerprint(folder: Path, config_digest: object, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless config.json, model.safetensors and the hash of the tensors are one fingerprint.

    Args:
        folder: The model folder.
        config_digest: The fingerprint in config.json.
        tensors: The weights that were read.
    """
    weights = folder / WEIGHTS_FILE
    weights_digest = read_digest(weights)
    advice = (
        "Copy or download the folder again. If the file was changed on purpose, load the model with "
        f"prolip.ProLIP.from_folder(Path({str(folder)!r}), verify=False) and save it again"
    )
    for name, digest in ((CONFIG_FILE, config_digest), (WEIGHTS_FILE, weights_digest)):
        if not digest:
            raise ValueError(f'{folder / name} has no fingerprint of the weights ("weights"). {advice}')
    if config_digest != weights_digest:
        raise ValueError(
            f"{folder}: {CONFIG_FILE} and {WEIGHTS_FILE} are of different saves "
            f"({config_digest} and {weights_digest}). The last save was interrupted: save the model again"
        )
    if (digest := compute_digest(tensors)) != weights_digest:
        raise ValueError(
            f"{weights} is damaged or was changed: its weights have the fingerprint {digest}, but were saved with "
            f"{weights_digest}. {advice}"
        )


def is_prolip_config(config_json: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, and not of open_clip or transformers.

    Args:
        config_json: Content of a config.json.

    Returns:
        True if `write_model_folder` wrote it, in any version of the format.
    """
    return config_json.get("format") == FORMAT


def make_config_json(config: ModelConfig, origin: Mapping[str, object]) -> dict[str, object]:
    """Make the content of config.json, without the digest of the weights.

    Args:
        config: Config of the model.
        origin: Origin of its weights; empty: it isn't stored.

    Returns:
        A JSON object.
    """
    content: dict[str, object] = {
        "format": FORMAT, "version": VERSION, "model_type": MODEL_TYPE, "model": config.to_dict(),
    }  # fmt: skip
    return {**content, "origin": dict(origin)} if origin else content


def require_finite_weights(tensors: Mapping[str, Tensor], source: object) -> None:
    """Raise ValueError unless every tensor holds finite floats of 16 bits or more, in memory (not on "meta").

    Args:
        tensors: A state dict.
        source: Where it came from, for the message.
    """
    for name, value in tensors.items():
        if value.is_meta:
            problem = "has no values yet: draw them with init_weights(generator)"
        elif value.dtype not in WEIGHT_DTYPES:
            problem = f"is {value.dtype}, but weights must be one of {', '.join(map(str, WEIGHT_DTYPES))}"
        elif not bool(value.isfinite().all()):
            problem = "holds NaN or infinity: the training diverged, or the file is damaged. Use an earlier checkpoint"
        else:
            continue
        raise ValueError(f"{source}: {name} {problem}")


def write_safetensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file.

    Args:
        tensors: Contiguous tensors on the CPU.
        path: The file.
        metadata: At most one entry: safetensors writes several in random order, and the bytes would differ.

    Raises:
        OSError: If the file can't be written.
    """
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        if number := re.search(r"\(os error (\d+)\)", str(error)):  # as Python would raise it
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        # the folder, since the file itself may be a temporary one of `atomic_write`
        raise OSError(f"the weights can't be written to {path.parent}: {error}") from error


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file into memory.

    Args:
        path: The file.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is truncated, damaged or of another format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder has no weights. Copy or download it again")
    try:
        # a clone, not the memory-mapped file: overwriting the file would change the model, or end the process
        return {name: value.clone() for name, value in load_file(path).items()}
    except (SafetensorError, ValueError, OSError, struct.error) as error:
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, incomplete or no safetensors file: {error}. "
            "Copy or download it again"
        ) from None


def compute_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash the names and bytes of tensors.

    `write_model_folder` stores the hash in config.json and in model.safetensors, so that `read_model_folder` can refuse
    damaged weights and files of two different saves. Shapes don't enter it: they are the config's.

    Args:
        tensors: By name, on the CPU.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_state(digest: hashlib.blake2b, tensors: Mapping[str, Tensor]) -> None:
    """Add names, dtypes and bytes of tensors to a hash, in the order of their names.

    Args:
        digest: The hash; changed in place.
        tensors: By name, on any device.
    """
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def read_digest(path: Path) -> str | None:
    """Read the digest (see `compute_digest`) from the metadata of a safetensors file.

    Args:
        path: The file.

    Returns:
        The digest; None if there is none or the file can't be read.
    """
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("weights")
    except (SafetensorError, OSError):
        return None
