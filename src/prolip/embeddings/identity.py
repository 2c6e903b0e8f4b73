"""Names for what embeddings were made of: the model, the data, what was done to the pictures."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from prolip.data.source import Filed, Source, fingerprint_of
from prolip.model.prolip import ProLIP

VERSION = 2
"""Of what is kept: another version finds nothing of this one's."""


def model_identity(model: ProLIP) -> str:
    """16 hexadecimal digits of weights, config and tokenizer; reads all weights (about a gigabyte a second)."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([VERSION, model.config.to_dict()], sort_keys=True).encode())
    digest.update((model.tokenizer.core().to_str() if model.tokenizer else "").encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def data_identity(source: Source, change: str | None) -> str:
    """Of the samples as they lie on disk now: where, what, of which size and time of change; and the change, if any."""
    stamps = []
    for file in source.files() if isinstance(source, Filed) else ():
        status = file.stat()
        stamps.append((status.st_size, status.st_mtime_ns))
    return fingerprint_of(VERSION, source.fingerprint(), _whole_name(source), stamps, change)


def texts_identity(texts: Sequence[str]) -> str:
    return fingerprint_of(VERSION, json.dumps(list(texts)))


def cache_folder() -> Path:
    """Where embeddings are kept unless a user says where."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "prolip" / "embeddings"


def _whole_name(source: Source) -> str:
    """Shards of two data sets may have the same names, sizes and lengths: their folders tell them apart."""
    files = source.files() if isinstance(source, Filed) else ()
    if files:
        return repr(sorted({str(file.resolve().parent) for file in files}))
    return os.path.realpath(source.name) if os.path.exists(source.name) else source.name
