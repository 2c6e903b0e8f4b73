"""Feature pairs with targets for widths: the arrays of feature pairs, and what a pool teacher says of every row."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from prolip.adaptation.pool_teacher import (
    FOLDS,
    MODALITIES,
    Pool,
    PoolTeacher,
    assign_folds,
    embed_pool,
    embed_rows,
)
from prolip.data.feature_pairs import (
    CAPTIONS,
    IMAGE_TARGETS,
    IMAGES,
    META,
    OFFSETS,
    TEXT_TARGETS,
    TEXTS,
    FeaturePairs,
    write_meta,
)
from prolip.data.source import compute_fingerprint
from prolip.embeddings.identity import model_identity
from prolip.files import atomic_write_folder
from prolip.model.prolip import ProLIP

ROWS = 65_536
"""Rows whose targets are computed at a time."""


def write_train_targets(
    folder: Path, model: ProLIP, train: FeaturePairs, teacher: PoolTeacher
) -> FeaturePairs:
    """Write training pairs with targets, unless the folder holds the same already.

    The targets are cross-fitted: the images of a fold, their captions and all views of both are compared with a pool of
    the other folds, so that no target knows its own pair.

    Args:
        folder: The folder.
        model: Whose means are finished.
        train: The pairs; their arrays are linked, or copied where links are not supported.
        teacher: What the targets are.

    Returns:
        The pairs with targets.
    """
    digest = compute_fingerprint("cross-fitted", train.digest, model_identity(model), repr(asdict(teacher)))
    folds = assign_folds(len(train), teacher.seed)

    def compute() -> tuple[np.ndarray, np.ndarray]:
        targets = _make_empty_targets(train)
        for fold in range(FOLDS):
            pool = embed_pool(model, train, teacher.size, teacher.seed, fold)
            _fill_targets(targets, model, train, (teacher, pool), folds == fold)
        return targets

    return _write_pairs(folder, train, digest, compute)


def write_held_out_targets(
    folder: Path, model: ProLIP, pairs: tuple[FeaturePairs, FeaturePairs], teacher: PoolTeacher
) -> FeaturePairs:
    """Write held-out pairs with targets, from a pool of training images, unless the folder holds the same already.

    Args:
        folder: The folder.
        model: Whose means are finished.
        pairs: Training pairs, of which the pool is drawn, and held-out pairs.
        teacher: What the targets are.

    Returns:
        The held-out pairs with targets.
    """
    train, held_out = pairs
    values = (train.digest, held_out.digest, model_identity(model), repr(asdict(teacher)))

    def compute() -> tuple[np.ndarray, np.ndarray]:
        targets = _make_empty_targets(held_out)
        pool = embed_pool(model, train, teacher.size, teacher.seed, fold=None)
        _fill_targets(targets, model, held_out, (teacher, pool), np.ones(len(held_out), bool))
        return targets

    return _write_pairs(folder, held_out, compute_fingerprint("held-out", *values), compute)


def _make_empty_targets(pairs: FeaturePairs) -> tuple[np.ndarray, np.ndarray]:
    """Targets that are NaN: float32 (N, V) of images and (M, W) of texts."""
    images, texts = (np.full(array.shape[:2], np.nan, np.float32) for array in (pairs.images, pairs.texts))
    return images, texts


def _fill_targets(
    targets: tuple[np.ndarray, np.ndarray],
    model: ProLIP,
    pairs: FeaturePairs,
    taught: tuple[PoolTeacher, Pool],
    is_chosen: np.ndarray,
) -> None:
    """Write the targets of some images, bool (N,), of their captions, and of the views of both."""
    teacher, pool = taught
    rows = np.flatnonzero(is_chosen), np.flatnonzero(np.repeat(is_chosen, np.diff(pairs.offsets)))
    for modality, target, array, chosen in zip(
        MODALITIES, targets, (pairs.images, pairs.texts), rows, strict=True
    ):
        for view in range(array.shape[1]):
            for block in np.array_split(chosen, max(1, -(-len(chosen) // ROWS))):
                queries = embed_rows(model, array[block, view], modality)
                target[block, view] = teacher.compute_target(queries, pool, modality).float().cpu().numpy()


def _write_pairs(
    folder: Path, pairs: FeaturePairs, digest: str, compute: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> FeaturePairs:
    """Write a folder with the arrays of `pairs` and targets, unless it is complete and has the digest."""
    if (folder / META).is_file() and (existing := FeaturePairs(folder)).digest == digest:
        return existing

    def write(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        for name in (IMAGES, TEXTS, OFFSETS, CAPTIONS):
            _link_or_copy(pairs.folder / name, path / name)
        for name, values in zip((IMAGE_TARGETS, TEXT_TARGETS), compute(), strict=True):
            np.save(path / name, values)
        write_meta(path, digest)

    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_folder(folder, write)
    return FeaturePairs(folder)


def _link_or_copy(source: Path, target: Path) -> None:
    """Link a file, so that it takes no space twice; copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
