"""The folder of `adapt`: whose it is, whether a run may start or be continued in it, and its trainings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders
from prolip.data.open import is_stream, open_data
from prolip.data.source import Source, require_usable_sample
from prolip.files import read_json, write_json
from prolip.model.prolip import ProLIP
from prolip.training.config import TrainConfig
from prolip.training.run_folder import LOCK, MODEL, lock_folder
from prolip.training.trainer import train

FORMAT, VERSION = "prolip-adapt", 1
RUN_FILE = "adapt.json"
"""File that makes a folder one of `adapt`: the options and the encoders."""
FEATURES = "features"
"""Folder of the features."""
SAME_COMMAND = "`prolip adapt` command"
"""What continues a run that was stopped, in messages."""
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
        is_new = not (folder / RUN_FILE).exists()
        _write_or_check(folder, encoders, config)
        try:
            yield
        except (ValueError, OSError):
            if is_new and not any((folder / FEATURES).rglob("*.parquet")):
                # nothing was computed: the corrected call may have other options, and must find no trace of this one
                (folder / RUN_FILE).unlink()
                shutil.rmtree(folder / FEATURES, ignore_errors=True)
            raise


def train_or_continue(config: TrainConfig) -> ProLIP:
    """Train, or continue a training that was stopped.

    Args:
        config: The training, in the folder of `adapt`.

    Returns:
        The trained model, without its encoders.

    Raises:
        KeyboardInterrupt: A signal stopped it, and it has saved a checkpoint.
    """
    run = train(config, resume=True, resume_command=f"the same {SAME_COMMAND}")
    if not (run / MODEL).is_dir():
        raise KeyboardInterrupt(f"stopped; the same {SAME_COMMAND} continues it")
    return ProLIP.from_folder(run / MODEL)


def require_usable_data(data: str | Path | Source, config: AdaptConfig) -> None:
    """Check that data can be read, has images and captions, and can be read again for their views.

    Args:
        data: As for `adapt`.
        config: Where images and captions are.

    Raises:
        ValueError, OSError: It is a stream, which can only be read once; or it can't be used.
    """
    if isinstance(data, str) and is_stream(data):
        raise ValueError(
            f"{data} is a stream, which can only be read once from the beginning, but adapt reads every image and "
            "caption again for its views. Download the data first"
        )
    if isinstance(data, str | Path):
        open_data(data, captions=config.captions, image=config.image)  # checks samples
    else:
        require_usable_sample(data)


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
