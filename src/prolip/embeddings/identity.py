"""Identities (hashes) of models, data and texts, by which embeddings are cached and compared."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence

from prolip.data.source import FileBacked, Source, compute_fingerprint
from prolip.model.folder import hash_state
from prolip.model.prolip import ProLIP

VERSION = 4
"""Version of the Embedder's cache. It enters every hash, so that another version finds none of this one's files."""


def model_identity(model: ProLIP) -> str:
    """Identity of a model.

    Reads all weights, at about a gigabyte per second.

    Args:
        model: The model.

    Returns:
        16 hexadecimal digits: hash of weights, config and tokenizer.
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([VERSION, model.config.to_dict()], sort_keys=True).encode())
    digest.update((model.tokenizer.copy_backend().to_str() if model.tokenizer else "").encode())
    hash_state(digest, model.state_dict())
    return digest.hexdigest()


def data_identity(source: Source, transform: str | None) -> str:
    """Identity of data as it is on disk now.

    Args:
        source: The data: its fingerprint, folders, file sizes and modification times are hashed.
        transform: Name of the transform of its images; None: there is none.

    Returns:
        16 hexadecimal digits.
    """
    stamps = []
    for file in source.files() if isinstance(source, FileBacked) else ():
        status = file.stat()
        stamps.append((status.st_size, status.st_mtime_ns))
    return compute_fingerprint(VERSION, source.fingerprint(), _get_location(source), stamps, transform)


def texts_identity(texts: Sequence[str]) -> str:
    """Identity of a list of texts.

    Args:
        texts: The texts, in order.

    Returns:
        16 hexadecimal digits.
    """
    return compute_fingerprint(VERSION, json.dumps(list(texts)))


def _get_location(source: Source) -> str:
    """Folders of the data, as text: shards of two data sets may have the same names and sizes."""
    files = source.files() if isinstance(source, FileBacked) else ()
    if files:
        return repr(sorted({str(file.resolve().parent) for file in files}))
    return os.path.realpath(source.name) if os.path.exists(source.name) else source.name
