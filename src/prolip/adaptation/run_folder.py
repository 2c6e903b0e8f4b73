"""The folder of `adapt`: whose it is, and whether a run may start or be continued in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders
from prolip.data.open import is_stream
from prolip.data.source import Source
from prolip.files import read_json, write_json
from prolip.training.run_folder import LOCK, lock_folder

FORMAT, VERSION = "prolip-adapt", 1
RUN_FILE = "adapt.json"
"""File that makes a folder one of `adapt`: the options and the encoders."""
RESUME_KEYS = ("image_encoder", "text_encoder", "device", "engine", "progress", "max_bad_fraction", "bundle")
"""Options that may differ when a run is continued. Encoders are compared by their digests."""


@contextmanager
def claim_folder(folder: Path, encoders: Encoders, config: AdaptConfig) -> Iterator[None]:
    """Check that a folder is new or of a run with the same options, and lock it.

    Args:
        folder: The folder; created if need be.
        encoders: The run's encoders.
        config: The run's options.

    Yields:
        Nothing.

    Raises:
        ValueError: It is a file, holds anything else, or a run with other options or encoders; or another process works
            in it.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another folder for the model")
    if not (folder / RUN_FILE).exists() and folder.exists() and any(p.name != LOCK for p in folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty, and not of an earlier `prolip adapt`: choose another folder, so that nothing is "
            "overwritten"
        )
    with lock_folder(folder):
        _write_or_check(folder, encoders, config)
        yield


def require_random_access(data: str | Path | Source) -> None:
    """Raise ValueError if data is a stream, whose samples can't be read again for their views.

    Args:
        data: As for `adapt`.
    """
    if isinstance(data, str) and is_stream(data):
        raise ValueError(
            f"{data} is a stream, which can only be read once from the beginning, but adapt reads every image and "
            "caption again for its views. Download the data first"
        )


def _write_or_check(folder: Path, encoders: Encoders, config: AdaptConfig) -> None:
    """Write the run's file, or compare it with that of the run that is continued."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "options": json.loads(json.dumps(asdict(config))),  # tuples become lists
        "encoders": {"image": encoders.image.config.digest, "text": encoders.text.config.digest},
    }
    path = folder / RUN_FILE
    if not path.exists():
        write_json(path, content)
        return
    earlier = read_json(path)
    if earlier.get("format") != FORMAT or earlier.get("version") != VERSION:
        raise ValueError(
            f"{path} is not of version {VERSION} of the format {FORMAT}: choose another folder, or remove {folder}"
        )
    changes = [
        f"{kind} encoder {old} instead of {new}"
        for kind, new in content["encoders"].items()
        if (old := earlier.get("encoders", {}).get(kind)) != new
    ] + [
        f"{name} {old!r} instead of {new!r}"
        for name, new in content["options"].items()
        if name not in RESUME_KEYS and (old := earlier.get("options", {}).get(name)) != new
    ]
    if changes:
        raise ValueError(
            f"{folder} holds a run with other options: {', '.join(changes)}. Choose another folder, remove it, or "
            "use the same options to continue it"
        )
