"""The jobs that are hit: commands of prolip, and what of their result must be the same afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prolip.extras import import_extra

SCENES = "scenes:simple,length=96,size=32"


@dataclass(frozen=True)
class Job:
    """A command that continues an earlier run when it is given again.

    Attributes:
        command: Words after `prolip`, relative to the working folder.
        read_result: Reads from the working folder what must not depend on interruptions.
        preparations: Commands that run undisturbed before it.
    """

    command: tuple[str, ...]
    read_result: Callable[[Path], object]
    preparations: tuple[tuple[str, ...], ...] = ()


def read_run(folder: Path) -> object:
    """Weights and logged losses of a training run."""
    from safetensors.torch import load_file

    run = folder / "run"
    weights = {
        name: _digest(value.numpy().tobytes())
        for name, value in load_file(run / "model/model.safetensors").items()
    }
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {
        line["step"]: {key: value for key, value in line.items() if key.startswith("loss/")} for line in lines
    }
    return weights, {step: loss for step, loss in sorted(losses.items()) if loss}


def read_embeddings(folder: Path) -> object:
    """All columns of all rows of an embedding data set."""
    from prolip.embeddings.dataset import EmbeddingDataset

    dataset = EmbeddingDataset.open(folder / "embeddings")
    return [dataset.read_part(number).to_pylist() for number in dataset.part_indices]


def read_database(folder: Path) -> object:
    """All rows of a database, by id, and their vectors."""
    from prolip.retrieval.index.database import Database

    database = Database.open(folder / "database")
    rows = database.items.to_arrow().to_pylist()
    return sorted((row["modality"], row["id"], _digest(str(row["vector"]).encode())) for row in rows)


def read_selection(folder: Path) -> object:
    """The kept samples of a filter."""
    parquet = import_extra("pyarrow.parquet", "data")
    rows: object = parquet.read_table(folder / "filtered" / "subset.parquet").to_pylist()
    return rows


def _digest(content: bytes) -> str:
    """A short digest."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


EMBED = ("embed", SCENES, "--model", "scenes-tiny", "--out", "embeddings", "--part-size", "32")
JOBS = {
    "train": Job(
        ("train", "nano", "--out", "run", "--samples", "256", "--log.display", "none", "--resume"), read_run
    ),
    "embed": Job(EMBED, read_embeddings),
    "index": Job(("index", "embeddings", "--out", "database"), read_database, (EMBED,)),
    "filter": Job(
        ("filter", "embeddings", "--out", "filtered", "--keep-fraction", "0.5", "--no-report"), read_selection, (EMBED,)
    ),
}  # fmt: skip
"""By name."""
