"""Cache of the Embedder: safetensors files, one per part of a source or list of texts."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from prolip.data.sample import SampleError
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.files import atomic_write
from prolip.gaussian import Gaussian
from prolip.model.folder import compute_digest, write_safetensors


def write_image_part(folder: Path, start: int, part: EncodedPart) -> Path:
    """Write the encoded images of a part atomically.

    Args:
        folder: Folder of the model and the data in the cache.
        start: Index of the part's first sample.
        part: Its samples.

    Returns:
        The file.
    """
    # The metadata of samples is a tensor of JSON bytes: safetensors limits the length of its own header.
    content = {
        "indices": part.indices,
        "metadata": part.metadata,
        "file_stamps": part.file_stamps,
        "errors": {str(index): error for index, error in part.errors.items()},
    }
    z = Gaussian.cat(part.gaussians) if part.gaussians else Gaussian(torch.empty(0, 0), torch.empty(0, 0))
    return _write_gaussians(folder / _get_image_file(start), z, json.dumps(content))


def read_image_part(folder: Path, indices: range) -> EncodedPart | None:
    """Read the encoded images of a part.

    Args:
        folder: Folder of the model and the data in the cache.
        indices: Indices of the part's samples.

    Returns:
        The part; None if its file does not exist or is damaged.
    """
    stored = _read_gaussians(folder / _get_image_file(indices.start))
    if stored is None:
        return None
    z, json_text = stored
    try:
        content = json.loads(json_text)
        metadata = [
            SampleMetadata(key, tuple(captions), *rest) for key, captions, *rest in content["metadata"]
        ]
        errors = {int(index): SampleError(*error) for index, error in content["errors"].items()}
        stamps = [None if stamp is None else tuple(stamp) for stamp in content["file_stamps"]]
        good_indices = list(content["indices"])
    except (ValueError, TypeError, KeyError):
        return None
    # every sample is either good or bad, and each good one has all its values
    if sorted([*good_indices, *errors]) != list(indices):
        return None
    if not len(good_indices) == len(z) == len(metadata) == len(stamps):
        return None
    return EncodedPart([z] if good_indices else [], good_indices, metadata, stamps, errors)


def write_text_part(folder: Path, identity: str, z: Gaussian) -> Path:
    """Write the Gaussians of texts atomically.

    Args:
        folder: Folder of the model in the cache.
        identity: Identity of the texts, see `texts_identity`.
        z: Gaussian (N, D).

    Returns:
        The file.
    """
    return _write_gaussians(folder / _get_text_file(identity), z, "")


def read_text_part(folder: Path, identity: str, count: int) -> Gaussian | None:
    """Read the Gaussians of texts.

    Args:
        folder: Folder of the model in the cache.
        identity: Identity of the texts, see `texts_identity`.
        count: N, the number of texts.

    Returns:
        Gaussian (N, D); None if their file does not exist, is damaged or has another number of rows.
    """
    stored = _read_gaussians(folder / _get_text_file(identity))
    return stored[0] if stored is not None and len(stored[0]) == count else None


def _get_image_file(start: int) -> str:
    """Name of the file of a part whose first sample has this index."""
    return f"images-{start:09d}.safetensors"


def _get_text_file(identity: str) -> str:
    """Name of the file of the texts with this identity."""
    return f"texts-{identity}.safetensors"


def _write_gaussians(path: Path, z: Gaussian, json_text: str) -> Path:
    """Write Gaussians (n, D) and a JSON text to a safetensors file, atomically, with a digest; returns the path."""
    # torch.frombuffer rejects an empty buffer
    json_bytes = torch.frombuffer(bytearray(json_text.encode() or b" "), dtype=torch.uint8)
    tensors = {"mean": z.mean.contiguous(), "log_var": z.log_var.contiguous(), "json": json_bytes}
    return atomic_write(
        path, lambda temporary: write_safetensors(tensors, temporary, {"digest": compute_digest(tensors)})
    )


def _read_gaussians(path: Path) -> tuple[Gaussian, str] | None:
    """Read the Gaussians (n, D) and the JSON text of a file; None if it is missing or damaged.

    A damaged file is no error: the caller computes the embeddings again.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            digest = (file.metadata() or {}).get("digest")
        if digest != compute_digest(tensors):  # bits do flip on disks
            return None
        z = Gaussian(tensors["mean"], tensors["log_var"])
        json_text = tensors["json"].numpy().tobytes().decode()
        if len(z):  # all samples of a part may be bad
            z.check("cached embeddings")
    except (SafetensorError, ValueError, TypeError, KeyError, OSError):
        return None
    return z, json_text
