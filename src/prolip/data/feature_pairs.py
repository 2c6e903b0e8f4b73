"""Features of images and captions on disk, as arrays that are mapped into memory, and the loader of their batches.

features.json    version, sizes, digest of what the features were made of
images.npy       float16 (N, V, K): the image, then V - 1 views of it
texts.npy        float16 (M, W, G): the captions of all images, each followed by W - 1 crops of it
offsets.npy      int64 (N + 1,): the captions of image i are the rows offsets[i] .. offsets[i + 1] - 1
captions.json    the M captions
image-targets.npy, text-targets.npy    float32 (N, V) and (M, W): ln of the uncertainty that each should have, where
                 widths learn from a teacher (docs/frozen-means.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip import distributed
from prolip.checks import require_fraction, require_positive_int
from prolip.data.base_loader import BaseLoader, read_count, require_same_stream
from prolip.data.batch import Batch
from prolip.data.order import derive_seed, permute
from prolip.files import read_json, write_json

VERSION = 1
PREFIX = "features:"
"""Prefix of the address of feature pairs as training data: "features:FOLDER"."""
META, IMAGES, TEXTS, OFFSETS, CAPTIONS, IMAGE_TARGETS, TEXT_TARGETS = (
    "features.json", "images.npy", "texts.npy", "offsets.npy", "captions.json", "image-targets.npy",
    "text-targets.npy",
)  # fmt: skip


@dataclass(frozen=True)
class FeaturePairs:
    """A folder of features; nothing is read before it is needed.

    Attributes:
        folder: The folder.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Raise ValueError or FileNotFoundError unless the folder is complete."""
        if not (self.folder / META).is_file():
            raise FileNotFoundError(
                f"{self.folder} holds no features: {META} is missing, so writing them was stopped. `prolip adapt` "
                "writes them"
            )
        if (version := self._meta.get("version")) != VERSION:
            raise ValueError(
                f"{self.folder / META} has version {version!r}; this prolip reads version {VERSION}. Remove the "
                "folder: `prolip adapt` writes it again"
            )
        shapes = [list(array.shape) for array in (self.images, self.texts, self.offsets)]
        if shapes != self._meta.get("shapes"):
            raise ValueError(
                f"{self.folder}: the arrays have the shapes {shapes}, not {self._meta.get('shapes')}: the folder is "
                "damaged. Remove it: `prolip adapt` writes it again"
            )
        offsets = self.offsets
        is_complete = len(offsets) == len(self.images) + 1 and (offsets[0], offsets[-1]) == (
            0,
            len(self.texts),
        )
        if not is_complete or (np.diff(offsets) < 1).any():
            raise ValueError(
                f"{self.folder / OFFSETS} does not give each image its captions: the folder is damaged. Remove it: "
                "`prolip adapt` writes it again"
            )
        for name, targets, array in (
            (IMAGE_TARGETS, self.image_targets, self.images), (TEXT_TARGETS, self.text_targets, self.texts),
        ):  # fmt: skip
            if targets is not None and targets.shape != array.shape[:2]:
                raise ValueError(
                    f"{self.folder / name} has the shape {targets.shape}, not {array.shape[:2]}: the folder is "
                    "damaged. Remove it: `prolip adapt` writes it again"
                )

    @classmethod
    def from_address(cls, address: str) -> FeaturePairs:
        """Open the folder of an address "features:FOLDER"."""
        return cls(Path(address.removeprefix(PREFIX)))

    @cached_property
    def _meta(self) -> dict[str, Any]:
        return read_json(self.folder / META)

    @cached_property
    def images(self) -> np.ndarray:
        """(N, V, K), mapped into memory."""
        return _map_array(self.folder / IMAGES)

    @cached_property
    def texts(self) -> np.ndarray:
        """(M, W, G), mapped into memory."""
        return _map_array(self.folder / TEXTS)

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64 (N + 1,)."""
        return _map_array(self.folder / OFFSETS)

    @cached_property
    def image_targets(self) -> np.ndarray | None:
        """float32 (N, V), mapped into memory; None: there are none."""
        path = self.folder / IMAGE_TARGETS
        return _map_array(path) if path.is_file() else None

    @cached_property
    def text_targets(self) -> np.ndarray | None:
        """float32 (M, W), mapped into memory; None: there are none."""
        path = self.folder / TEXT_TARGETS
        return _map_array(path) if path.is_file() else None

    @cached_property
    def captions(self) -> list[str]:
        """The M captions."""
        captions = read_json(self.folder / CAPTIONS).get("captions")
        if not isinstance(captions, list) or len(captions) != len(self.texts):
            raise ValueError(
                f"{self.folder / CAPTIONS} does not hold the {len(self.texts)} captions: the folder is damaged. Remove "
                "it: `prolip adapt` writes it again"
            )
        return captions

    @property
    def digest(self) -> str:
        """Digest of what the features were made of: encoders, data, views, maps."""
        return str(self._meta["digest"])

    def __len__(self) -> int:
        return len(self.images)


def write_meta(folder: Path, digest: str) -> FeaturePairs:
    """Write features.json, which makes a folder of arrays complete.

    Args:
        folder: With all arrays and captions.json.
        digest: Digest of what the features were made of.

    Returns:
        The features.
    """
    shapes = [list(_map_array(folder / name).shape) for name in (IMAGES, TEXTS, OFFSETS)]
    write_json(folder / META, {"version": VERSION, "digest": digest, "shapes": shapes})
    return FeaturePairs(folder)


def is_feature_address(address: str) -> bool:
    """Whether an address of training data is that of feature pairs."""
    return address.startswith(PREFIX)


@dataclass(frozen=True, kw_only=True)
class ViewFractions:
    """Which fractions of a batch are views instead of whole inputs.

    Attributes:
        images: Fraction of the images that are parts: crops or masks.
        texts: Fraction of the captions that are crops.
    """

    images: float = 0.0
    texts: float = 0.0

    def __post_init__(self) -> None:
        require_fraction(self.images, "images")
        require_fraction(self.texts, "texts")


class FeatureLoader(BaseLoader):
    """Shuffled, resumable batches of feature pairs; an epoch is one pass over the images.

    `Batch.pixels` is float32 (B, K) and `Batch.token_ids` float32 (B, G). All numbers of a batch are drawn from (seed,
    epoch, batch), for the global batch: its samples don't depend on the number of ranks.

    Args:
        pairs: The features.
        global_batch_size: Rows of the batch over all ranks.
        fractions: Fractions of views.
        seed: Seed of the order, the captions and the views.
        rank: Rank of this process.
        world_size: Number of ranks.
    """

    def __init__(
        self,
        pairs: FeaturePairs,
        global_batch_size: int,
        fractions: ViewFractions,
        seed: int,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__()
        require_positive_int(global_batch_size, "global_batch_size")
        self._rank = distributed.rank() if rank is None else rank
        self._world_size = distributed.world_size() if world_size is None else world_size
        if global_batch_size % self._world_size:
            raise ValueError(
                f"global_batch_size {global_batch_size} is not a multiple of the {self._world_size} ranks"
            )
        if len(pairs) < global_batch_size:
            raise ValueError(
                f"batch_size {global_batch_size} is more than the {len(pairs)} images: reduce it"
            )
        for name, fraction, array in (
            ("images", fractions.images, pairs.images), ("texts", fractions.texts, pairs.texts),
        ):  # fmt: skip
            if fraction and array.shape[1] == 1:
                raise ValueError(f"a fraction {fraction} of the {name} are views, but there are no views")
        self._pairs, self._batch_size, self._fractions, self._seed = pairs, global_batch_size, fractions, seed

    def __len__(self) -> int:
        return len(self._pairs) // self._batch_size

    def state_dict(self) -> dict[str, object]:
        return self._make_state(self._settings)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_same_stream(self._settings, state)
        try:
            epoch, position = (read_count(state, name) for name in ("epoch", "batch"))
        except ValueError as error:
            raise ValueError(f"the saved position is damaged: {error}") from None
        if position > len(self):
            raise ValueError(f"the saved position is damaged: batch {position} of an epoch of {len(self)}")
        self.epoch, self.position = epoch, position

    def close(self) -> None:
        """Nothing to end: batches are read in this process."""

    @property
    def _settings(self) -> dict[str, object]:
        """What determines the batches."""
        return {
            "version": VERSION,
            "digest": self._pairs.digest,
            "seed": self._seed,
            "global_batch_size": self._batch_size,
            "image_views": self._fractions.images,
            "text_views": self._fractions.texts,
        }

    def _iter_rest_of_epoch(self) -> Iterator[Batch]:
        while self.position < len(self):
            batch = self._read_batch(self.position)
            self.position += 1
            self.error_counts.add(len(batch), ())
            yield batch

    def _read_batch(self, index: int) -> Batch:
        """This rank's rows of a batch of the current epoch."""
        size, pairs = self._batch_size, self._pairs
        positions = np.arange(index * size, (index + 1) * size)
        rows = permute(positions, len(pairs), derive_seed(self._seed, "features", self.epoch))
        generator = np.random.Generator(
            np.random.Philox(derive_seed(self._seed, "feature views", self.epoch, index))
        )
        chance = generator.random((5, size))
        first, last = pairs.offsets[rows], pairs.offsets[rows + 1]
        captions = first + (chance[0] * (last - first)).astype(np.int64)
        image_views = _choose_views(chance[1], chance[2], self._fractions.images, pairs.images.shape[1])
        text_views = _choose_views(chance[3], chance[4], self._fractions.texts, pairs.texts.shape[1])
        part = slice(self._rank * size // self._world_size, (self._rank + 1) * size // self._world_size)
        return Batch(
            pixels=_gather(pairs.images, rows[part], image_views[part]),
            token_ids=_gather(pairs.texts, captions[part], text_views[part]),
            captions=tuple(pairs.captions[row] for row in captions[part]),
            keys=tuple(map(str, rows[part])),
            sample_indices=torch.from_numpy(rows[part]),
            image_targets=_gather_targets(pairs.image_targets, rows[part], image_views[part]),
            text_targets=_gather_targets(pairs.text_targets, captions[part], text_views[part]),
        )


def _choose_views(is_view: np.ndarray, which: np.ndarray, fraction: float, num_views: int) -> np.ndarray:
    """Indices of views, int64 (B,): 0, the whole input, unless the first number is below the fraction."""
    views = 1 + (which * (num_views - 1)).astype(np.int64)
    return np.where(is_view < fraction, views, 0)


def _gather(array: np.ndarray, rows: np.ndarray, views: np.ndarray) -> Tensor:
    """Rows and views of an array (N, V, K): float32 (B, K)."""
    return torch.from_numpy(array[rows, views].astype(np.float32))


def _gather_targets(array: np.ndarray | None, rows: np.ndarray, views: np.ndarray) -> Tensor | None:
    """Rows and views of an array (N, V): float32 (B,); None if there is no array."""
    return None if array is None else torch.from_numpy(array[rows, views])


def _map_array(path: Path) -> np.ndarray:
    """Map a .npy file into memory, read-only; ValueError if it is damaged."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is missing or damaged: {error}") from None
    return array
