"""Open encoders by name: a package's, a finished model's, transformers', an ONNX graph, or a Python object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from prolip.files import read_json
from prolip.model.folder import MODEL_TYPE
from prolip.model.prolip import ProLIP
from prolip.weights.encoders import huggingface, onnx_graph, packaged, python_object, towers
from prolip.weights.encoders.base import ImageEncoder, TextEncoder

E = TypeVar("E", ImageEncoder, TextEncoder)
LoadModel = Callable[[str], ProLIP]
"""Name of a finished model -> the model; `prolip.load`, which is above this module."""
ImageEncoderName = str | Path | ImageEncoder | python_object.PythonEncoder
TextEncoderName = str | Path | TextEncoder | python_object.PythonEncoder
TRANSFORMERS_PREFIX = "transformers:"
TOWER_TYPES = ("clip", "siglip", MODEL_TYPE)
"""model_type in config.json of the folders that `prolip.load` reads itself."""


def open_image_encoder(encoder: ImageEncoderName, load_model: LoadModel) -> ImageEncoder:
    """Open an image encoder.

    Args:
        encoder: "efficientnet-lite0" (extra photos); a file GRAPH.onnx; "transformers:NAME", or the folder of a model
            of transformers; what `prolip.load` takes; or an object, see `PythonEncoder`.
        load_model: Loads finished models.

    Returns:
        The encoder.

    Raises:
        ValueError, OSError: There is no such encoder, or it can't be used.
    """
    if isinstance(encoder, ImageEncoder):
        return encoder
    if not isinstance(encoder, str | Path):
        return python_object.make_image_encoder(encoder)
    name = _make_absolute(str(encoder))
    _require_openable(name)
    if name in packaged.IMAGE_ENCODERS:
        return packaged.IMAGE_ENCODERS[name]()
    if name.lower().endswith(".onnx"):
        return onnx_graph.open_onnx_image_encoder(Path(name))
    if (folder := _find_transformers_folder(name)) is not None:
        return huggingface.open_image_folder(folder, name=name)
    return _open_towers(name, load_model, packaged.IMAGE_ENCODERS)[0]


def open_text_encoder(encoder: TextEncoderName, load_model: LoadModel) -> TextEncoder:
    """Open a text encoder.

    Args:
        encoder: "all-minilm-l6-v2" (extra photos); a file GRAPH.onnx; "transformers:NAME", or the folder of a model of
            transformers or sentence-transformers; what `prolip.load` takes; or an object, see `PythonEncoder`.
        load_model: Loads finished models.

    Returns:
        The encoder.

    Raises:
        ValueError, OSError: There is no such encoder, or it can't be used.
    """
    if isinstance(encoder, TextEncoder):
        return encoder
    if not isinstance(encoder, str | Path):
        return python_object.make_text_encoder(encoder)
    name = _make_absolute(str(encoder))
    _require_openable(name)
    if name in packaged.TEXT_ENCODERS:
        return packaged.TEXT_ENCODERS[name]()
    if name.lower().endswith(".onnx"):
        return onnx_graph.open_onnx_text_encoder(Path(name))
    if (folder := _find_transformers_folder(name)) is not None:
        return huggingface.open_text_folder(folder, name=name)
    return _open_towers(name, load_model, packaged.TEXT_ENCODERS)[1]


def _open_towers(
    name: str, load_model: LoadModel, packaged_names: Iterable[str]
) -> tuple[ImageEncoder, TextEncoder]:
    """The encoders of a finished model; FileNotFoundError, with what else a name may be, if there is none."""
    try:
        return towers.make_tower_encoders(load_model(name), name)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no encoder {name}. An encoder is {', '.join(packaged_names)} (extra photos), a file GRAPH.onnx, "
            f"transformers:NAME, a folder of transformers, or a model: {error}"
        ) from error


def _make_absolute(name: str) -> str:
    """A name whose path, if it is one of this machine, is absolute: a model names its encoders in any folder."""
    prefix = TRANSFORMERS_PREFIX if name.startswith(TRANSFORMERS_PREFIX) else ""
    path = huggingface.find_first_module(Path(name.removeprefix(prefix)).expanduser())
    return prefix + str(path.absolute()) if path.exists() or path.suffix.lower() == ".onnx" else name


def _require_openable(name: str) -> None:
    """Raise ValueError if a name is that of a Python object, which no name can open."""
    if name.startswith("python:"):
        raise ValueError(
            f"the encoder {name} is a Python object: pass it with model.set_encoders(image=..., text=...)"
        )


def _find_transformers_folder(name: str) -> Path | None:
    """The folder of a model that transformers loads, and `prolip.load` doesn't; None if `name` isn't one."""
    if name.startswith(TRANSFORMERS_PREFIX):
        return huggingface.find_folder(name.removeprefix(TRANSFORMERS_PREFIX))
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        return None
    model_type = read_json(folder / "config.json").get("model_type")
    is_foreign = isinstance(model_type, str) and model_type not in TOWER_TYPES
    return folder if is_foreign else None
