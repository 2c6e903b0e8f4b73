"""Batches for a model: decoding, augmentation, choice of a caption, tokenization, collation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from prolip.checks import require_choice, require_fraction, require_positive_int
from prolip.data.order import derive_seed
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import compute_fingerprint
from prolip.preprocessing.augmentation import Augmentation, augment, required_short_side
from prolip.preprocessing.image_views import (
    ImageViews,
    ViewKind,
    compute_mean_color,
    crop_image,
    draw_view_kind,
    make_image_view,
)
from prolip.preprocessing.images import (
    MAX_PIXELS,
    EmptyImageError,
    ImagePreprocessing,
    TooManyPixelsError,
    pil_to_tensor,
    read_image,
    resize_and_crop,
    tensor_to_pil,
)
from prolip.preprocessing.text_cropping import draw_text_view
from prolip.preprocessing.tokenizer import Tokenizer

MAX_DROPPED_FRACTION = 0.75
"""The largest fraction of its tokens that a caption loses by `drop_words`."""
CaptionChoice = Literal["random", "first", "longest"]
"""Which one of a sample's captions is used."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B samples, ready for a model but for `prolip.preprocessing.images.normalize`.

    Normalization happens on the device: pixels as bytes are a quarter of the data to move.

    pixels:    uint8 (B, 3, S, S); of feature pairs the components of image features, float32 (B, K).
    token_ids: int64 (B, T); (B, 0) without a tokenizer; of feature pairs float32 (B, G).
    captions:  the texts that were tokenized, before cleaning; "" where there is no caption.
    keys:      names of the samples in their source, `Sample.key`.
    sample_indices: int64 (B,), on the CPU: the loader's index of each sample. A `Loader` counts through its sources:
               the index of the second one's first sample is the length of the first one.
    general_token_ids: int64 (B, T): token ids of a more general caption of each sample; a row is padding alone where
               none is known. None: the data has no such captions.
    image_targets, text_targets: ln of the uncertainty that each image and each text should have, float32 (B,). None:
               the data has no such targets.
    """

    pixels: Tensor = field(repr=False)
    token_ids: Tensor = field(repr=False)
    captions: tuple[str, ...]
    keys: tuple[str, ...]
    sample_indices: Tensor
    general_token_ids: Tensor | None = field(default=None, repr=False)
    image_targets: Tensor | None = field(default=None, repr=False)
    text_targets: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> Batch:
        """Move pixels and token ids to a device; from pinned memory asynchronously.

        Args:
            device: the target.

        Returns:
            A batch whose pixels and token ids are there; `sample_indices` stay on the CPU.
        """
        return self._map_tensors(lambda values: values.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """Copy pixels and token ids to pinned memory. (torch's DataLoader calls this.)"""
        return self._map_tensors(Tensor.pin_memory)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A copy of the batch with `function` applied to all tensors but `sample_indices`, which stay on the CPU."""
        general = None if self.general_token_ids is None else function(self.general_token_ids)
        return replace(
            self, pixels=function(self.pixels), token_ids=function(self.token_ids), general_token_ids=general
        )


def concat_batches(batches: Sequence[Batch], pad_id: int) -> Batch:
    """Concatenate batches.

    Args:
        batches: at least one. If the first is in pinned memory, so is the result.
        pad_id: fills up shorter rows of token ids, and rows of general token ids where a batch has none.

    Returns:
        A batch of all samples, in order; its rows of token ids have the length of the longest.
    """
    width = max(batch.token_ids.shape[1] for batch in batches)

    def pad_to_width(ids: Tensor) -> Tensor:  # int64 (B, T) -> (B, width)
        return pad(ids, (0, width - ids.shape[1]), value=pad_id)

    has_general = any(batch.general_token_ids is not None for batch in batches)
    general = [  # of each batch; only padding for a batch without general captions
        torch.full_like(batch.token_ids, pad_id)
        if batch.general_token_ids is None
        else batch.general_token_ids
        for batch in batches
    ]
    combined = Batch(
        pixels=torch.cat([batch.pixels for batch in batches]),
        token_ids=torch.cat([pad_to_width(batch.token_ids) for batch in batches]),
        general_token_ids=torch.cat([pad_to_width(ids) for ids in general]) if has_general else None,
        captions=tuple(caption for batch in batches for caption in batch.captions),
        keys=tuple(key for batch in batches for key in batch.keys),
        sample_indices=torch.cat([batch.sample_indices for batch in batches]),
    )
    return combined.pin_memory() if batches[0].pixels.is_pinned() else combined


class TrainingSample(NamedTuple):
    """One sample of a batch, after preprocessing.

    pixels:    uint8 (3, S, S).
    token_ids: token ids of the caption, not padded.
    caption:   the caption before cleaning; "" if there is none.
    key:       name of the sample in its source.
    general_token_ids: token ids of a more general caption; empty if none is known, None if the source has none.
    """

    pixels: Tensor
    token_ids: list[int]
    caption: str
    key: str
    general_token_ids: list[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Preprocessor:
    """Turns samples into batches. All randomness comes from the seed that `process` is given.

    pixels:       size, resize mode and interpolation of images.
    tokenizer:    makes token ids of captions; None: no token ids.
    augmentation: random crops and colors for training; None: the evaluation transform, `resize_and_crop`.
    caption:      which one of several captions is used. If nothing of it is left after cleaning, the next one.
    max_pixels:   larger images are bad samples; they are not decoded.
    drop_words:   fraction of the captions that lose a random part of their tokens, up to three quarters.
    text_crops:   fraction of the captions that are replaced by a contiguous span of their words (`crop_text`).
    image_views:  which images are shown in part: crops of the whole image, masks of what is left after augmentation.
                  None: all are shown whole.
    """

    pixels: ImagePreprocessing
    tokenizer: Tokenizer | None
    augmentation: Augmentation | None = None
    caption: CaptionChoice = "random"
    max_pixels: int = MAX_PIXELS
    drop_words: float = 0.0
    text_crops: float = 0.0
    image_views: ImageViews | None = None

    def __post_init__(self) -> None:
        require_fraction(self.drop_words, "drop_words")
        require_fraction(self.text_crops, "text_crops")
        require_choice(self.caption, get_args(CaptionChoice), "caption")
        require_positive_int(self.max_pixels, "max_pixels", maximum=2**40)

    @cached_property
    def _min_short_side(self) -> int | None:
        """`min_short_side` of `read_image`, in pixels: what training crops need; None for evaluation, to be exact."""
        return required_short_side(self.pixels, self.augmentation) if self.augmentation else None

    def _min_short_side_of(self, kind: ViewKind) -> int | None:
        """The same for a kind of view: a crop needs a larger image, so that it isn't enlarged."""
        if kind != "crop" or self._min_short_side is None or self.image_views is None:
            return self._min_short_side
        return math.ceil(self._min_short_side / self.image_views.narrowest_side)

    def process(self, sample: Sample, seed: int) -> TrainingSample:
        """Decode, augment and tokenize a sample.

        Args:
            sample: a sample of a source.
            seed: 64 bits; determines the augmentation, the choice of a caption, the dropped words, crops and masks.

        Returns:
            Pixels and token ids of the sample.

        Raises:
            BadSampleError: If the image can't be read, or if no caption can be used.
        """
        generator = torch.Generator().manual_seed(seed)
        caption_index, ids = self._choose_caption(sample, generator)  # first: cheaper than decoding an image
        caption = "" if caption_index is None else sample.captions[caption_index]
        general = self._encode_general_caption(sample, caption_index)
        if self.text_crops:
            caption, ids, general = self._crop_caption(caption, ids, general, seed)
        pixels = self._read_pixels(sample, generator, seed)
        return TrainingSample(pixels, self._drop_tokens(ids, generator), caption, sample.key, general)

    def fingerprint(self) -> str:
        """Return a digest that changes with everything that may change a batch."""
        tokenizer = self.tokenizer and (self.tokenizer.config, self.tokenizer.copy_backend().to_str())
        # Only what is used: fingerprints that were saved before these fields existed stay valid.
        drop_words = (self.drop_words,) if self.drop_words else ()
        text_crops = (f"text crops {self.text_crops}",) if self.text_crops else ()
        image_views = (self.image_views,) if self.image_views else ()
        return compute_fingerprint(
            self.pixels, self.augmentation, self.caption, self.max_pixels, tokenizer,
            *drop_words, *text_crops, *image_views,
        )  # fmt: skip

    def collate(self, samples: Sequence[TrainingSample], sample_indices: Sequence[int]) -> Batch:
        """Stack B preprocessed samples into a batch.

        Args:
            samples: at least one, from `process`.
            sample_indices: the loader's index of each sample.

        Returns:
            The batch; rows of token ids are padded as the tokenizer pads a batch.
        """
        rows = [sample.token_ids for sample in samples]
        general = None
        if self.tokenizer is None:
            ids = torch.empty((len(rows), 0), dtype=torch.int64)
        elif all(sample.general_token_ids is None for sample in samples):
            ids = self.tokenizer.pad(rows)
        else:  # padded to one width: both kinds of captions go through the tower together
            ids, general = self.tokenizer.pad(
                [*rows, *(sample.general_token_ids or [] for sample in samples)]
            ).chunk(2)
        return Batch(
            pixels=torch.stack([sample.pixels for sample in samples]),
            token_ids=ids,
            general_token_ids=general,
            captions=tuple(sample.caption for sample in samples),
            keys=tuple(sample.key for sample in samples),
            sample_indices=torch.tensor(sample_indices, dtype=torch.int64),
        )

    def _read_pixels(self, sample: Sample, generator: torch.Generator, seed: int) -> Tensor:
        """Decode and augment (or resize) the image or a view of it: uint8 (3, S, S)."""
        if self.image_views is None:
            return self._preprocess_image(self._read_image(sample, self._min_short_side), generator)
        # A stream of its own, as for text crops: an image that stays whole is the same with and without views.
        view_generator = torch.Generator().manual_seed(derive_seed(seed, "image view"))
        kind = draw_view_kind(self.image_views, view_generator)
        image = self._read_image(sample, self._min_short_side_of(kind))
        if kind == "crop":
            image = crop_image(image, self.image_views, view_generator)
        pixels = self._preprocess_image(image, generator)
        if kind in ("whole", "crop"):
            return pixels
        # A mask comes last: its visible area isn't cropped any more, and its color is not changed.
        color = compute_mean_color(self.pixels)
        return pil_to_tensor(
            make_image_view(tensor_to_pil(pixels), kind, self.image_views, color, view_generator)
        )

    def _preprocess_image(self, image: Image.Image, generator: torch.Generator) -> Tensor:
        """Augment an image, or resize it as for evaluation: uint8 (3, S, S)."""
        if self.augmentation is None:
            return resize_and_crop(image, self.pixels)
        return augment(image, self.pixels, self.augmentation, generator)

    def _read_image(self, sample: Sample, min_short_side: int | None) -> Image.Image:
        """Decode the image of a sample, see `decode_image`."""
        return decode_image(sample, self.max_pixels, min_short_side)

    def _choose_caption(self, sample: Sample, generator: torch.Generator) -> tuple[int | None, list[int]]:
        """The index of the chosen caption in `sample.captions`, and its token ids, not padded.

        Without a tokenizer the ids are [], and the index is None if there is no caption. With one, BadSampleError if
        there is no caption, or if all are empty after cleaning.
        """
        if self.tokenizer is None:
            return next(self._iter_caption_indices(sample.captions, generator), None), []
        if not sample.captions:
            raise BadSampleError(
                "no caption",
                sample.location,
                "the captions option names the field or column that holds captions",
            )
        for caption_index in self._iter_caption_indices(sample.captions, generator):
            ids = self.tokenizer.encode(sample.captions[caption_index])
            if not self.tokenizer.config.special_ids.issuperset(ids):
                return caption_index, ids
        raise BadSampleError(
            "empty caption", sample.location, f"nothing of {sample.captions[0]!r:.60} is left after cleaning"
        )

    def _encode_general_caption(self, sample: Sample, caption_index: int | None) -> list[int] | None:
        """Token ids of the caption that is more general than the chosen one; [] if none is known for it.

        None if the source has no general captions at all, or if there is no tokenizer or no chosen caption.
        """
        if self.tokenizer is None or not sample.general_captions or caption_index is None:
            return None
        general_caption = sample.general_captions[caption_index]
        return self.tokenizer.encode(general_caption) if general_caption else []

    def _crop_caption(
        self, caption: str, ids: list[int], general: list[int] | None, seed: int
    ) -> tuple[str, list[int], list[int] | None]:
        """A caption, its token ids and those of its more general caption; of a crop with probability `text_crops`.

        A crop has no more general caption: that of the whole caption may not follow from it. If nothing of a crop is
        left after cleaning, the caption stays whole.
        """
        # A stream of its own: images, the choice of captions and dropped words are the same with and without crops.
        generator = torch.Generator().manual_seed(derive_seed(seed, "text crop"))
        crop = draw_text_view(caption, self.text_crops, generator)
        if crop == caption:
            return caption, ids, general
        no_general: list[int] | None = None if general is None else []
        if self.tokenizer is None:
            return crop, ids, no_general
        crop_ids = self.tokenizer.encode(crop)
        if self.tokenizer.config.special_ids.issuperset(crop_ids):
            return caption, ids, general
        return crop, crop_ids, no_general

    def _drop_tokens(self, ids: list[int], generator: torch.Generator) -> list[int]:
        """The token ids of a caption, of which, with probability `drop_words`, a random part is dropped.

        That part is up to MAX_DROPPED_FRACTION of the ordinary tokens. Special tokens stay, and one ordinary token.
        """
        if not self.drop_words or self.tokenizer is None:
            return ids
        chance, drawn_fraction = torch.rand(2, generator=generator).tolist()
        if chance >= self.drop_words:
            return ids
        special = self.tokenizer.config.special_ids
        ordinary = [position for position, token in enumerate(ids) if token not in special]
        num_dropped = min(round(MAX_DROPPED_FRACTION * drawn_fraction * len(ordinary)), len(ordinary) - 1)
        order = torch.randperm(len(ordinary), generator=generator).tolist()
        dropped = {ordinary[i] for i in order[:num_dropped]}
        return [token for position, token in enumerate(ids) if position not in dropped]

    def _iter_caption_indices(self, captions: Sequence[str], generator: torch.Generator) -> Iterator[int]:
        """Indices of all captions in the order in which they are tried, the one that `self.caption` prefers first.

        A number is drawn from `generator` only for "random" and several captions.
        """
        num_captions = len(captions)
        if self.caption == "longest":
            yield from sorted(range(num_captions), key=lambda index: len(captions[index]), reverse=True)
            return
        # "first" and "random": from the first or a random one on, and after the last again from the first.
        is_random = self.caption == "random" and num_captions > 1
        start = int(torch.randint(num_captions, (), generator=generator)) if is_random else 0
        yield from ((start + step) % num_captions for step in range(num_captions))


def decode_image(
    sample: Sample, max_pixels: int = MAX_PIXELS, min_short_side: int | None = None
) -> Image.Image:
    """Decode the image of a sample.

    Args:
        sample: a sample of a source.
        max_pixels: larger images are not decoded.
        min_short_side: as for `read_image`.

    Returns:
        An RGB image.

    Raises:
        BadSampleError: If it can't be read.
    """
    try:
        return read_image(sample.image, max_pixels=max_pixels, min_short_side=min_short_side)
    except FileNotFoundError as error:
        raise BadSampleError("missing file", sample.location, str(error)) from None
    except TooManyPixelsError as error:
        raise BadSampleError("image too large", sample.location, str(error)) from None
    except EmptyImageError as error:
        raise BadSampleError("empty image", sample.location, str(error)) from None
    except ValueError as error:
        raise BadSampleError("unreadable image", sample.location, str(error)) from None
