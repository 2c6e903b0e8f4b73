"""Encoders that are ONNX graphs, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.extras import import_extra
from prolip.files import read_json
from prolip.model.frozen_config import EncoderConfig
from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_inference import infer_tokenizer_config
from prolip.weights.encoders.base import (
    ImageEncoder,
    TextEncoder,
    find_tokens,
    hash_files,
    pool_map,
    pool_tokens,
)
from prolip.weights.formats.preprocessing import approximate_transformers

PREPROCESSOR_FILE = "preprocessor_config.json"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
)  # fmt: skip
CONTEXT_LENGTH = 128
"""Token ids per text, if the tokenizer doesn't say it."""


def open_onnx_image_encoder(path: Path) -> ImageEncoder:
    """Open an ONNX graph with one image input (B, 3, S, S).

    The first output is the features: (B, F) as they are; a map (B, C, H, W) or tokens (B, T, W) are pooled.

    Args:
        path: The graph; `preprocessor_config.json` of transformers, with size, mean and std, lies next to it.

    Returns:
        The encoder.

    Raises:
        ValueError: The graph or its preprocessing can't be used.
        FileNotFoundError: A file is missing.
    """
    _require_file(path)
    settings = path.parent / PREPROCESSOR_FILE
    if not settings.is_file():
        raise FileNotFoundError(
            f"{path} needs {PREPROCESSOR_FILE} next to it, which says how an image becomes pixels, for example "
            '{"size": {"height": 224, "width": 224}, "image_mean": [0.485, 0.456, 0.406], '
            '"image_std": [0.229, 0.224, 0.225]}'
        )
    session = open_session(path)
    processor = read_json(settings)
    size = _read_size(session, processor, path)
    preprocessing = approximate_transformers(processor, size)
    weights = list_weight_files(path)
    digest = hash_files([path, *weights], preprocessing)
    return make_onnx_image_encoder(
        str(path), session, preprocessing, digest, files=(path, *weights, settings)
    )


def make_onnx_image_encoder(
    name: str,
    session: Any,
    preprocessing: ImagePreprocessing,
    digest: str,
    *,
    license: str = "",
    files: tuple[Path, ...],
) -> ImageEncoder:
    """Make an encoder of an open graph.

    Args:
        name: Name of the encoder.
        session: Session of onnxruntime.
        preprocessing: Of its images.
        digest: 16 hexadecimal digits.
        license: License of the weights.
        files: Its files, for bundling; the graph is the first.

    Returns:
        The encoder.
    """
    network = ImageGraph(session, files[0])
    dim = network(torch.zeros(1, 3, preprocessing.size, preprocessing.size)).shape[1]
    return ImageEncoder(
        EncoderConfig(name=name, digest=digest, dim=dim, license=license), preprocessing, network, files
    )


def open_onnx_text_encoder(path: Path) -> TextEncoder:
    """Open an ONNX graph with the input `input_ids` (B, T) and, if it has them, `attention_mask`, `token_type_ids`.

    The first output is the features: (B, F) as they are; tokens (B, T, W) are pooled, without padding.

    Args:
        path: The graph; its tokenizer.json lies next to it.

    Returns:
        The encoder.

    Raises:
        ValueError: The graph or its tokenizer can't be used.
        FileNotFoundError: A file is missing.
    """
    _require_file(path)
    backend = tokenizer_builders.read_folder_tokenizer(path.parent)
    if backend is None:
        raise FileNotFoundError(f"{path} needs its tokenizer.json next to it")
    config = infer_tokenizer_config(backend, path.parent, CONTEXT_LENGTH, str(path), "whitespace")
    tokenizer = Tokenizer(backend, config)
    session = open_session(path)
    _require_text_inputs(session, path)
    network = TextGraph(session, path, config.pad_id)
    dim = network(tokenizer(["a"])).shape[1]
    weights = list_weight_files(path)
    digest = hash_files([path, *weights], tokenizer.copy_backend().to_str(), config)
    files = (path, *weights, *_list_tokenizer_files(path.parent))
    return TextEncoder(EncoderConfig(name=str(path), digest=digest, dim=dim), tokenizer, network, files)


def list_weight_files(path: Path) -> list[Path]:
    """The files in which a graph keeps its weights, besides its own: those of more than two gigabytes, for example.

    Args:
        path: The graph.

    Returns:
        Existing files, sorted.
    """
    onnx = import_extra("onnx", "onnx")
    model = onnx.load(str(path), load_external_data=False)
    names = {
        entry.value
        for tensor in onnx.external_data_helper._get_all_tensors(model)
        if onnx.external_data_helper.uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [path.parent / name for name in sorted(names)]


def _list_tokenizer_files(folder: Path) -> list[Path]:
    """The files of the tokenizer that a copy of the encoder needs."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def _require_file(path: Path) -> None:
    """Raise FileNotFoundError if a graph is missing."""
    if not path.is_file():
        raise FileNotFoundError(f"the encoder {path}: no such file")


def open_session(path: Path) -> Any:
    """A session of onnxruntime on the CPU, with torch's number of threads; ValueError if the file is no graph."""
    _require_file(path)
    runtime = import_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception class per failure, without a common base
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} can't be opened as an ONNX graph: {reason}") from None


def _read_size(session: Any, processor: dict[str, Any], path: Path) -> int:
    """Side of the images in pixels, of the graph's input or of the preprocessing; ValueError if neither has it."""
    shape = session.get_inputs()[0].shape
    if len(session.get_inputs()) != 1 or len(shape) != 4:
        inputs = [(entry.name, entry.shape) for entry in session.get_inputs()]
        raise ValueError(f"{path} must have one input of shape (B, 3, S, S), not {inputs}")
    if isinstance(shape[2], int) and shape[2] > 0:
        return shape[2]
    size = processor.get("crop_size") or processor.get("size")
    size = size.get("height") or size.get("shortest_edge") if isinstance(size, dict) else size
    if not isinstance(size, int):
        raise ValueError(
            f"{path.parent / PREPROCESSOR_FILE} has no size, and the graph takes any: add the size"
        )
    return size


def _require_text_inputs(session: Any, path: Path) -> None:
    """Raise ValueError unless a graph takes ids, and texts of any number and length."""
    inputs = {entry.name: entry.shape for entry in session.get_inputs()}
    unknown = sorted(inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"})
    if "input_ids" not in inputs or unknown:
        raise ValueError(
            f"{path} must have the input input_ids and no others than attention_mask and token_type_ids, not "
            f"{', '.join(inputs)}"
        )
    shape = inputs["input_ids"]
    if len(shape) != 2 or any(isinstance(length, int) for length in shape):
        raise ValueError(
            f"{path} takes input_ids of the shape {shape}: it must take any number of texts of any length. Export it "
            "with dynamic axes"
        )


class ImageGraph:
    """Normalized pixels (B, 3, S, S) -> features (B, F), one image at a time.

    A convolutional network on a CPU is faster so, since its maps stay in the cache; and a result doesn't depend on the
    other images of its batch.

    Attributes:
        path: The graph's file.
        input_name, output_name: Of the graph.
    """

    def __init__(self, session: Any, path: Path) -> None:
        self._session, self.path = session, path
        self.input_name: str = session.get_inputs()[0].name
        self.output_name: str = session.get_outputs()[0].name

    def __call__(self, inputs: Tensor) -> Tensor:
        images = inputs.float().cpu().split(1)
        return torch.cat([pool_output(self.run(image), None) for image in images]).to(inputs.device)

    def run(self, inputs: Tensor) -> Tensor:
        """The graph's output, float32, of pixels (B, 3, S, S)."""
        (output,) = self._session.run([self.output_name], {self.input_name: inputs.numpy()})
        return torch.from_numpy(np.asarray(output, dtype=np.float32))


class TextGraph:
    """Ids (B, T) -> features (B, F).

    Attributes:
        path: The graph's file.
        pad_id: Id of padding.
        input_names, output_name: Of the graph.
    """

    def __init__(self, session: Any, path: Path, pad_id: int) -> None:
        self._session, self.path, self.pad_id = session, path, pad_id
        self.input_names: tuple[str, ...] = tuple(entry.name for entry in session.get_inputs())
        self.output_name: str = session.get_outputs()[0].name

    def __call__(self, inputs: Tensor) -> Tensor:
        ids = inputs.cpu()
        return pool_output(self.run(ids), find_tokens(ids, self.pad_id)).to(inputs.device)

    def run(self, ids: Tensor) -> Tensor:
        """The graph's output, float32, of ids (B, T)."""
        values = {
            "input_ids": ids.long().numpy(),
            "attention_mask": find_tokens(ids, self.pad_id).long().numpy(),
            "token_type_ids": torch.zeros_like(ids).long().numpy(),
        }
        (output,) = self._session.run([self.output_name], {name: values[name] for name in self.input_names})
        return torch.from_numpy(np.asarray(output, dtype=np.float32))


def pool_output(x: Tensor, is_token: Tensor | None) -> Tensor:
    """Pool the output of a graph.

    Args:
        x: (B, F), tokens (B, T, W) or a map (B, C, H, W).
        is_token: bool (B, T), False for padding; None: there is none.

    Returns:
        Features (B, F).

    Raises:
        ValueError: The output has another number of axes.
    """
    if x.ndim not in (2, 3, 4):
        raise ValueError(
            f"the first output of the graph has the shape {tuple(x.shape)}; features are (B, F), tokens (B, T, W) or a "
            "map (B, C, H, W)"
        )
    if x.ndim == 4:
        return pool_map(x)
    return pool_tokens(x, is_token) if x.ndim == 3 else x
