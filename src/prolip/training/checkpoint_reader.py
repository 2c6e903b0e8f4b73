"""Reads torch's checkpoints without unpickling objects that could run code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

METADATA_FILE = ".metadata"
"""torch's pickled list of the tensors of a checkpoint and of their places in its files."""
_METADATA = "torch.distributed.checkpoint.metadata"
ALLOWED = {
    *((_METADATA, name) for name in (
        "Metadata", "MetadataIndex", "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties", "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    )),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),
}  # fmt: skip
"""All that torch's metadata of tensors consists of, besides dtypes. Not BytesStorageMetadata: torch reads what it
describes by unpickling without limits, and our checkpoints hold tensors only."""


class CheckpointReader(FileSystemReader):
    """torch's reader of a checkpoint, for files that may come from others.

    torch reads tensors with weights_only=True, but their list by plain unpickling, which can run any code. Here only
    the classes of such a list can be made.
    """

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Read the list of tensors.

        Args:
            *args: Ignored, as torch's reader does.
            **kwargs: The same. All ranks read one list.

        Returns:
            The list.

        Raises:
            FileNotFoundError: There is none.
            ValueError: It is damaged, or contains something else than descriptions of tensors.
        """
        path = Path(self.path) / METADATA_FILE
        with open(path, "rb") as file:
            try:
                metadata = _MetadataUnpickler(file).load()
            except _ForbiddenClassError as error:
                raise ValueError(
                    f"{path} contains {error}, which no list of tensors needs and which could run code. The file is "
                    "damaged, or was made to run it; it was not loaded"
                ) from None
            except Exception as error:  # a damaged pickle can raise nearly anything
                raise ValueError(f"{path} is damaged ({type(error).__name__})") from None
        if not isinstance(metadata, Metadata):
            raise ValueError(f"{path} is damaged: it holds a {type(metadata).__name__}")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _ForbiddenClassError(Exception):
    """The pickle names a class or function outside `ALLOWED`; the message is its name."""


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickles nothing but `ALLOWED` and dtypes."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or function that the pickle names."""
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and (module, name) not in ALLOWED:
            raise _ForbiddenClassError(f"{module}.{name}")
        return super().find_class(module, name)
