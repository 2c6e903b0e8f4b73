"""Encoders from transformers and sentence-transformers: a folder, or a name on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prolip.checks import join_names
from prolip.extras import import_extra
from prolip.files import read_json
from prolip.model.frozen_config import EncoderConfig
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_inference import infer_tokenizer_config
from prolip.weights import hub
from prolip.weights.encoders.base import (
    ImageEncoder,
    TextEncoder,
    find_tokens,
    hash_files,
    pool_map,
    pool_tokens,
)
from prolip.weights.formats.preprocessing import approximate_transformers

MAX_CONTEXT = 256
"""Token ids per text: captions are short, and attention is quadratic."""
WEIGHTS = "*.safetensors"
MODULES_FILE = "modules.json"
"""Of sentence-transformers: the modules of a model, in order."""


def open_image_folder(folder: Path, *, name: str = "", license: str = "") -> ImageEncoder:
    """Open an image model of transformers (ViT, DINOv2, ResNet, ...).

    Args:
        folder: With config.json, model.safetensors and preprocessor_config.json.
        name: Name of the encoder; "": the folder.
        license: License of the weights.

    Returns:
        The encoder: the last map or tokens, pooled.

    Raises:
        ValueError, OSError: Files are missing or can't be used.
    """
    processor = folder / "preprocessor_config.json"
    weights = _list_weights(folder)
    settings = read_json(processor) if processor.is_file() else {}
    size = _read_image_size(settings, read_json(folder / "config.json"))
    preprocessing = approximate_transformers(settings, size)
    network = _ImageNetwork(_load_model(folder, "pixel_values"))
    digest = hash_files([*weights, folder / "config.json"], preprocessing)
    dim = network(torch.zeros(1, 3, size, size)).shape[1]
    config = EncoderConfig(name=name or str(folder), digest=digest, dim=dim, license=license)
    return ImageEncoder(config, preprocessing, network, _list_files(folder))


def open_text_folder(folder: Path, *, name: str = "", license: str = "") -> TextEncoder:
    """Open a text model of transformers or sentence-transformers (BERT, MiniLM, MPNet, ...).

    Args:
        folder: With config.json, model.safetensors and tokenizer.json.
        name: Name of the encoder; "": the folder.
        license: License of the weights.

    Returns:
        The encoder: mean and maximum over tokens.

    Raises:
        ValueError, OSError: Files are missing or can't be used.
    """
    backend = tokenizer_builders.read_folder_tokenizer(folder)
    if backend is None:
        raise FileNotFoundError(f"{folder} has no tokenizer.json")
    model_config = read_json(folder / "config.json")
    context = min(MAX_CONTEXT, int(model_config.get("max_position_embeddings") or MAX_CONTEXT))
    tokenizer_config = infer_tokenizer_config(backend, folder, context, str(folder), "whitespace")
    tokenizer = Tokenizer(backend, tokenizer_config)
    weights = _list_weights(folder)
    network = _TextNetwork(_load_model(folder, "input_ids"), tokenizer_config.pad_id)
    digest = hash_files(
        [*weights, folder / "config.json"], tokenizer.copy_backend().to_str(), tokenizer_config
    )
    dim = network(tokenizer(["a"])).shape[1]
    config = EncoderConfig(name=name or str(folder), digest=digest, dim=dim, license=license)
    return TextEncoder(config, tokenizer, network, _list_files(folder))


def find_first_module(folder: Path) -> Path:
    """Find the network of a folder of sentence-transformers, which may be in a subfolder such as 0_Transformer.

    Args:
        folder: Any path.

    Returns:
        The subfolder of the first module that modules.json names; the path itself if it has none.
    """
    listing = folder / MODULES_FILE
    if (folder / "config.json").is_file() or not listing.is_file():
        return folder
    try:
        subfolder = json.loads(listing.read_text(encoding="utf-8"))[0]["path"]
        return folder / str(subfolder)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{listing} names no module of sentence-transformers: {error}") from None


def find_folder(name: str) -> Path:
    """The folder of a model: a local one, or the snapshot of a hub id, which is downloaded.

    Args:
        name: A path or a hub id.

    Returns:
        The folder.

    Raises:
        OSError: The hub can't be reached, or has no such model.
    """
    path = Path(name).expanduser()
    return path if path.is_dir() else hub.fetch(name)


def _load_model(folder: Path, expected_input: str) -> Any:
    """The model of a folder, from its safetensors, float32, in eval mode; pickles and remote code are refused.

    Args:
        folder: The folder.
        expected_input: Name of the input that the model must have: pixel_values or input_ids.

    Raises:
        ValueError: Its files can't be used, tensors are missing, or it has another input.
    """
    transformers = import_extra("transformers", "photos")
    transformers.utils.logging.disable_progress_bar()
    try:
        model, report = transformers.AutoModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False,
            dtype=torch.float32, output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # of transformers, safetensors and torch, without a common base
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{folder} can't be opened by transformers: {reason}") from error
    # transformers would draw what is missing at random; poolers are not read
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise ValueError(
            f"the weights of {folder} lack {join_names(missing)}: the file is damaged or incomplete"
        )
    if model.main_input_name != expected_input:
        raise ValueError(
            f"{folder} is a model of {model.main_input_name}, but an encoder of {expected_input} is needed: images are "
            "pixel_values, texts are input_ids"
        )
    return model.eval().requires_grad_(False)


def _list_weights(folder: Path) -> list[Path]:
    """The files of weights, by name; FileNotFoundError if there are none."""
    weights = sorted(folder.glob(WEIGHTS))
    if not weights:
        raise FileNotFoundError(
            f"{folder} has no safetensors file. Pickled weights are not loaded: convert them with transformers' "
            "save_pretrained"
        )
    return weights


def _list_files(folder: Path) -> tuple[Path, ...]:
    """The files that a copy of the encoder needs."""
    return (*_list_weights(folder), *sorted(folder.glob("*.json")), *sorted(folder.glob("vocab.txt")))


def _read_image_size(processor: dict[str, Any], config: dict[str, Any]) -> int:
    """Side of the images in pixels, from the image processor or the model's config; 224 if neither has it."""
    size = processor.get("crop_size") or processor.get("size") or config.get("image_size") or 224
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or 224
    return int(size)


class _ImageNetwork(nn.Module):
    """Normalized pixels (B, 3, S, S) -> pooled features (B, F)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Encode a batch, see the class."""
        x: Tensor = self.model(pixel_values=inputs).last_hidden_state
        return pool_map(x) if x.ndim == 4 else pool_tokens(x)


class _TextNetwork(nn.Module):
    """Ids (B, T) -> mean and maximum over tokens (B, F)."""

    def __init__(self, model: nn.Module, pad_id: int) -> None:
        super().__init__()
        self.model, self._pad_id = model, pad_id

    def forward(self, inputs: Tensor) -> Tensor:
        """Encode a batch, see the class."""
        is_token = find_tokens(inputs, self._pad_id)
        x: Tensor = self.model(input_ids=inputs, attention_mask=is_token.long()).last_hidden_state
        return pool_tokens(x, is_token)
