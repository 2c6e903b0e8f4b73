"""Feature pairs for training, from the data sets of features: feature maps are fitted, components written as arrays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prolip.adaptation.feature_map import fit_feature_map
from prolip.adaptation.features import FeatureDatasets, iter_features
from prolip.data.feature_pairs import CAPTIONS, IMAGES, OFFSETS, TEXTS, FeaturePairs, write_meta
from prolip.data.order import permute
from prolip.data.source import compute_fingerprint
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.files import atomic_write_folder, write_json
from prolip.model.frozen_tower import FeatureMap

Maps = tuple[FeatureMap, FeatureMap] | None
"""Feature maps of images and of texts; None: features are written as they are."""
MAX_FIT_ROWS = 50_000
"""Rows that a feature map is fitted to."""
HELD_OUT_RANGE = (50, 5000)
"""Smallest and largest number of held-out images."""


@dataclass(frozen=True)
class Split:
    """Samples by index, ascending: those that are trained on, and those that are held out."""

    train: np.ndarray
    held_out: np.ndarray


def split_samples(datasets: FeatureDatasets, fraction: float, seed: int) -> Split:
    """Split the samples that have a readable image and a caption.

    Args:
        datasets: The features.
        fraction: Fraction that is held out, within `HELD_OUT_RANGE` and at most half.
        seed: Seed of the choice.

    Returns:
        Sample indices.

    Raises:
        ValueError: There are too few samples.
    """
    good = read_indices(datasets.texts[0])
    for dataset in datasets.images:
        good = np.intersect1d(good, read_indices(dataset))
    if len(good) < 20:
        raise ValueError(
            f"{len(good)} images with captions can be used, but heads need at least 20 to learn anything"
        )
    low, high = HELD_OUT_RANGE
    count = min(max(round(fraction * len(good)), low), high, len(good) // 2)
    order = permute(np.arange(len(good)), len(good), seed)
    return Split(train=np.sort(good[order[count:]]), held_out=np.sort(good[order[:count]]))


def read_indices(dataset: EmbeddingDataset) -> np.ndarray:
    """Indices of the samples of a data set, ascending, each once.

    Args:
        dataset: Features of images or captions.

    Returns:
        int64 (n,).
    """
    parts = [table["index"].to_numpy() for _, table in dataset.iter_parts(columns=["index"])]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def fit_map(dataset: EmbeddingDataset, samples: np.ndarray, components: int) -> FeatureMap:
    """Fit the feature map of a modality to whole inputs, at most `MAX_FIT_ROWS`, evenly spaced.

    Args:
        dataset: Features of the whole inputs.
        samples: Indices of the samples that are trained on.
        components: K.

    Returns:
        The map.
    """
    step = max(1, len(samples) // MAX_FIT_ROWS)
    chosen = samples[::step]
    blocks, rows = [], 0
    for indices, features, _ in iter_features(dataset):
        block = features[torch.from_numpy(np.isin(indices, chosen))]
        blocks.append(block)
        rows += len(block)
        if rows >= 2 * MAX_FIT_ROWS:  # several captions per image
            break
    return fit_feature_map(torch.cat(blocks), components)


def write_pairs(folder: Path, datasets: FeatureDatasets, samples: np.ndarray, maps: Maps) -> FeaturePairs:
    """Write the components of some samples as feature pairs, unless the folder holds the same already.

    Args:
        folder: The folder.
        datasets: The features.
        samples: Indices of the samples, ascending.
        maps: Of images and of texts; None: features are written as they are, because they are means, too.

    Returns:
        The pairs.
    """
    digest = _compute_digest(datasets, samples, maps)
    with suppress(ValueError, OSError):  # missing or damaged: written again
        if (pairs := FeaturePairs(folder)).digest == digest:
            return pairs

    def write(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        _write_images(path, datasets.images, samples, None if maps is None else maps[0])
        _write_texts(path, datasets.texts, samples, None if maps is None else maps[1])
        write_meta(path, digest)

    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_folder(folder, write)
    return FeaturePairs(folder)


def _compute_digest(datasets: FeatureDatasets, samples: np.ndarray, maps: Maps) -> str:
    """Digest of all that determines the arrays."""
    headers = [dataset.header for dataset in (*datasets.images, *datasets.texts)]
    values = [json.dumps([header.identity, header.fingerprint]) for header in headers]
    sums = [float(value.double().sum()) for fitted in maps or () for value in fitted.state_dict().values()]
    return compute_fingerprint(*values, sums, len(samples), hashlib.blake2b(samples.tobytes()).hexdigest())


@torch.no_grad()
def _write_images(
    folder: Path, datasets: Sequence[EmbeddingDataset], samples: np.ndarray, fitted: FeatureMap | None
) -> None:
    """Write images.npy (N, V, K)."""
    shape = (len(samples), len(datasets), _count_components(datasets[0], fitted))
    array = np.lib.format.open_memmap(folder / IMAGES, mode="w+", dtype=np.float16, shape=shape)
    for view, dataset in enumerate(datasets):
        for indices, features, _ in iter_features(dataset):
            is_chosen = np.isin(indices, samples)
            rows = np.searchsorted(samples, indices[is_chosen])
            array[rows, view] = _map(fitted, features[torch.from_numpy(is_chosen)])
    array.flush()


@torch.no_grad()
def _write_texts(
    folder: Path, datasets: Sequence[EmbeddingDataset], samples: np.ndarray, fitted: FeatureMap | None
) -> None:
    """Write texts.npy (M, W, G), offsets.npy and captions.json."""
    counts = np.zeros(len(samples), np.int64)
    captions: list[str] = []
    for indices, _, texts in iter_features(datasets[0]):
        is_chosen = np.isin(indices, samples)
        np.add.at(counts, np.searchsorted(samples, indices[is_chosen]), 1)
        captions += [text or "" for text, chosen in zip(texts, is_chosen, strict=True) if chosen]
    offsets = np.concatenate([[0], counts.cumsum()])
    np.save(folder / OFFSETS, offsets)
    write_json(folder / CAPTIONS, {"captions": captions})
    shape = (int(offsets[-1]), len(datasets), _count_components(datasets[0], fitted))
    array = np.lib.format.open_memmap(folder / TEXTS, mode="w+", dtype=np.float16, shape=shape)
    for view, dataset in enumerate(datasets):
        row = 0  # texts are ordered by sample, in every data set
        for indices, features, _ in iter_features(dataset):
            block = features[torch.from_numpy(np.isin(indices, samples))]
            array[row : row + len(block), view] = _map(fitted, block)
            row += len(block)
    array.flush()


def _count_components(dataset: EmbeddingDataset, fitted: FeatureMap | None) -> int:
    """Numbers per row: components, or all features where there is no map."""
    return dataset.header.dim if fitted is None else fitted.components.shape[1]


def _map(fitted: FeatureMap | None, features: Tensor) -> np.ndarray:
    """Components (n, K) of features (n, F), or the features themselves, float16."""
    components: np.ndarray = (features if fitted is None else fitted(features)).half().numpy()
    return components
