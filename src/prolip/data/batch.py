"""From samples to a batch that a model takes: decoding, augmentation, the choice of a caption, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from prolip.checks import require_choice, require_count
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import fingerprint_of
from prolip.inputs.augment import Augmentation, augment, short_side_for
from prolip.inputs.images import (
    MAX_PIXELS,
    EmptyImageError,
    PixelRules,
    TooManyPixelsError,
    read_image,
    to_pixels,
)
from prolip.inputs.tokens import Tokenizer

CaptionChoice = Literal["random", "first", "longest"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B samples, ready but for `normalise`, which the device does: as bytes, pixels are a quarter to move.

    pixels:   uint8 (B, 3, S, S).
    ids:      int64 (B, T); (B, 0) without a tokenizer.
    captions: what was tokenised, uncleaned; "" where there is no caption.
    keys:     of the samples, in their source.
    samples:  int64 (B,), on the CPU: the loader's number of each sample. A `Loader` counts through its sources: the
              second one's first sample has the length of the first one.
    """

    pixels: Tensor = field(repr=False)
    ids: Tensor = field(repr=False)
    captions: tuple[str, ...]
    keys: tuple[str, ...]
    samples: Tensor

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> Batch:
        """Pixels and ids on a device; from pinned memory without waiting."""
        pixels, ids = (values.to(device, non_blocking=True) for values in (self.pixels, self.ids))
        return replace(self, pixels=pixels, ids=ids)

    def pin_memory(self) -> Batch:
        return replace(self, pixels=self.pixels.pin_memory(), ids=self.ids.pin_memory())


def joined(batches: Sequence[Batch], pad_id: int) -> Batch:
    """Batches as one, their rows one after another; shorter ids are filled up with `pad_id`."""
    width = max(batch.ids.shape[1] for batch in batches)
    ids = [pad(batch.ids, (0, width - batch.ids.shape[1]), value=pad_id) for batch in batches]
    one = Batch(
        pixels=torch.cat([batch.pixels for batch in batches]),
        ids=torch.cat(ids),
        captions=tuple(caption for batch in batches for caption in batch.captions),
        keys=tuple(key for batch in batches for key in batch.keys),
        samples=torch.cat([batch.samples for batch in batches]),
    )
    return one.pin_memory() if batches[0].pixels.is_pinned() else one


class Item(NamedTuple):
    """One sample of a batch: pixels uint8 (3, S, S), ids of T tokens."""

    pixels: Tensor
    ids: list[int]
    caption: str
    key: str


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How a sample becomes an item of a batch. Nothing is random but by the seed that `item` is given.

    tokenizer:    None: no ids.
    augmentation: None: the evaluation transform, `to_pixels`.
    caption:      which one of several. If nothing of it is left after cleaning, the one after it.
    max_pixels:   larger images are bad samples; they are not decoded.
    """

    pixels: PixelRules
    tokenizer: Tokenizer | None
    augmentation: Augmentation | None = None
    caption: CaptionChoice = "random"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        require_choice(self.caption, get_args(CaptionChoice), "caption")
        require_count(self.max_pixels, "max_pixels", most=2**40)

    @cached_property
    def _short_side(self) -> int | None:
        """Training need not decode more pixels than a crop has; evaluation is exact."""
        return short_side_for(self.pixels, self.augmentation) if self.augmentation else None

    def item(self, sample: Sample, seed: int) -> Item:
        """Decode, augment and tokenise. seed: of 64 bits. BadSampleError if the picture or all captions are bad."""
        generator = torch.Generator().manual_seed(seed)
        caption, ids = self._caption(sample, generator)  # first: it is cheaper to refuse than a picture
        return Item(self._pixels(sample, generator), ids, caption, sample.key)

    def fingerprint(self) -> str:
        """Changes with whatever may change a batch."""
        tokens = self.tokenizer and (self.tokenizer.rules, self.tokenizer.core().to_str())
        return fingerprint_of(self.pixels, self.augmentation, self.caption, self.max_pixels, tokens)

    def batch(self, items: Sequence[Item], samples: Sequence[int]) -> Batch:
        """samples: the loader's number of each item. Rows of ids are padded as the tokenizer pads a batch."""
        rows = [item.ids for item in items]
        return Batch(
            pixels=torch.stack([item.pixels for item in items]),
            ids=self.tokenizer.padded(rows)
            if self.tokenizer
            else torch.empty((len(rows), 0), dtype=torch.int64),
            captions=tuple(item.caption for item in items),
            keys=tuple(item.key for item in items),
            samples=torch.tensor(samples, dtype=torch.int64),
        )

    def _pixels(self, sample: Sample, generator: torch.Generator) -> Tensor:
        try:
            image = read_image(sample.image, max_pixels=self.max_pixels, short_side=self._short_side)
        except FileNotFoundError as error:
            raise BadSampleError("missing file", sample.where, str(error)) from None
        except TooManyPixelsError as error:
            raise BadSampleError("image too large", sample.where, str(error)) from None
        except EmptyImageError as error:
            raise BadSampleError("empty image", sample.where, str(error)) from None
        except ValueError as error:
            raise BadSampleError("unreadable image", sample.where, str(error)) from None
        if self.augmentation is None:
            return to_pixels(image, self.pixels)
        return augment(image, self.pixels, self.augmentation, generator)

    def _caption(self, sample: Sample, generator: torch.Generator) -> tuple[str, list[int]]:
        if self.tokenizer is None:
            return next(self._by_preference(sample.captions, generator), ""), []
        if not sample.captions:
            raise BadSampleError("no caption", sample.where)
        for caption in self._by_preference(sample.captions, generator):
            ids = self.tokenizer.encode(caption)
            if not self.tokenizer.rules.special_ids.issuperset(ids):
                return caption, ids
        raise BadSampleError(
            "empty caption", sample.where, f"nothing of {sample.captions[0]!r:.60} is left when cleaned"
        )

    def _by_preference(self, captions: Sequence[str], generator: torch.Generator) -> Iterator[str]:
        if self.caption == "longest":
            yield from sorted(captions, key=len, reverse=True)
            return
        drawn = self.caption == "random" and len(captions) > 1
        start = int(torch.randint(len(captions), (), generator=generator)) if drawn else 0
        yield from (*captions[start:], *captions[:start])
