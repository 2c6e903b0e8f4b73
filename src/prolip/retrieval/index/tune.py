"""How hard an approximate search must try: recall is measured on the database itself, and raised until it is enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.progress import bar
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.exact import ROUNDING, split
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.index.sql import all_of
from prolip.retrieval.index.vectors import asked, mean_of

K = 10
"""Recall is measured among this many."""
QUERIES, TIMED = 200, 20
"""Rows that ask, and how many of them are timed, one after another."""
EFFORTS = tuple(
    Effort(nprobes=nprobes, refine=refine)
    for nprobes, refine in (
        (20, 4),
        (20, 10),
        (40, 10),
        (80, 10),
        (80, 40),
        (160, 40),
        (320, 40),
        (1280, 100),
        (1280, 400),
    )
)
"""What is tried, the quickest first."""


@dataclass(frozen=True)
class Tuned:
    """effort: the least that reaches the target; None: none does, so that searches should be exact. recall: at that
    effort, or the best there was. Milliseconds: of one query, approximate and exact."""

    effort: Effort | None
    recall: float
    milliseconds: float
    exact_milliseconds: float


@dataclass(frozen=True)
class Trial:
    """Rows that ask, and among whom. rows: int64 (Q,), their numbers. vectors: float32 (Q, width), as they ask."""

    rows: np.ndarray
    vectors: np.ndarray
    where: str | None


def tune(
    database: Database,
    target: float = 0.95,
    *,
    among: str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Tuned:
    """The least effort with recall@10 >= target, for texts that look for images if there are both.

    among: SQL: only these items are looked for, as if a user had asked for them.
    """
    require_share(target)
    trial = draw(database, among, seed)
    exact = exact_of(database, trial)
    best, recall = EFFORTS[0], 0.0
    with bar("tuning", len(EFFORTS), "efforts", progress) as advance:
        for effort in EFFORTS:
            found = recall_of(database, trial, exact, effort)
            advance(1)
            if found > recall:
                best, recall = effort, found
            if recall >= target:
                break
    asking = trial.vectors[:TIMED]
    return Tuned(
        best if recall >= target else None,
        recall,
        _milliseconds(asking, lambda one: _nearest(database, one, trial.where, best)),
        _milliseconds(asking, lambda one: _nearest(database, one, trial.where, None)),
    )


def draw(database: Database, among: str | None = None, seed: int = 0) -> Trial:
    """Texts that look for images; if there is one modality alone, rows of it that look for others."""
    images, texts = (database.count(f"modality = '{modality}'") for modality in ("image", "text"))
    both = bool(images and texts)
    rows = _drawn_rows(database, "modality = 'text'" if both else None, seed)
    names = ", ".join(map(str, rows.tolist()))
    found = list(database.rows(["row", "vector"], f"row IN ({names})"))
    order = np.argsort(np.concatenate([batch["row"].to_numpy() for batch in found]))
    vectors = np.concatenate([_vectors(batch) for batch in found])[order]
    mean = mean_of(vectors, database.header.dim)
    return Trial(rows, asked(mean), all_of("modality = 'image'" if both else None, among))


def exact_of(database: Database, trial: Trial) -> list[np.ndarray]:
    """The distances of each query's ten nearest items, itself left out, by an exact search."""
    return _others(_nearest(database, trial.vectors, trial.where, None), trial)


def recall_of(database: Database, trial: Trial, exact: Sequence[np.ndarray], effort: Effort) -> float:
    """The share of the ten nearest items that is found. What is as near as the tenth counts: copies are all alike."""
    found = _others(_nearest(database, trial.vectors, trial.where, effort), trial)
    shares = [_share(one, best) for one, best in zip(found, exact, strict=True)]
    return float(np.mean(shares))


def _share(found: np.ndarray, exact: np.ndarray) -> float:
    """Of distances, both sorted."""
    if not len(exact):
        return 1.0
    limit = exact[-1] * (1 + ROUNDING) + ROUNDING
    return float(np.count_nonzero(found <= limit) / len(exact))


def require_share(value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"the recall that is asked for must be above 0 and at most 1, not {value}")


def _drawn_rows(database: Database, where: str | None, seed: int) -> np.ndarray:
    """Numbers of up to QUERIES rows, sorted."""
    total, passed = database.count(where), 0
    places = np.sort(np.random.default_rng(seed).choice(total, min(QUERIES, total), replace=False))
    drawn = []
    for batch in database.rows(["row"], where):
        here = places[(places >= passed) & (places < passed + len(batch))] - passed
        drawn.append(batch["row"].to_numpy()[here])
        passed += len(batch)
    return np.sort(np.concatenate(drawn))


def _vectors(batch: Any) -> np.ndarray:
    return np.asarray(batch["vector"].flatten()).reshape(len(batch), -1)


def _nearest(database: Database, vectors: np.ndarray, where: str | None, effort: Effort | None) -> Any:
    """One more than is counted: a row that asks finds itself."""
    return database.nearest(vectors, K + 1, columns=["row"], where=where, effort=effort)


def _others(found: Any, trial: Trial) -> list[np.ndarray]:
    """For each query the distances of its ten nearest items, itself left out."""
    parts = split(found, len(trial.rows))
    return [
        part["_distance"].to_numpy()[part["row"].to_numpy() != row][:K]
        for row, part in zip(trial.rows, parts, strict=True)
    ]


def _milliseconds(vectors: np.ndarray, ask: Callable[[np.ndarray], Any]) -> float:
    """Of one query, the median."""
    times = []
    for row in range(len(vectors)):
        start = time.perf_counter()
        ask(vectors[row : row + 1])
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))
