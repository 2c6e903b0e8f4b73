"""Pictures and captions of a source, embedded, with what is known of each caption: tokens, level, true ambiguity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip import scenes
from prolip.data.source import Source
from prolip.data.sources.hierarcaps import CAPTION_SEPARATOR
from prolip.data.subset import Subset
from prolip.embeddings.embedder import Embedder, EncodedImages
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenizedCaptions:
    """T captions of some images.

    texts:         as they stand.
    image_of:      int64 (T,): the row of each one's image.
    tokens:        int64: the tokens of all captions, one caption after another, as the tower sees them (cut to its
                   context), without start and end.
    lengths:       int64 (T,): how many of the tokens are each caption's.
    levels:        int64 (T,), 0 the most general; None: not known.
    log_ambiguity: float64 (T,): ln of the true probability that a caption fits a random picture, nan where it isn't
                   known; None: of none.
    """

    texts: tuple[str, ...]
    image_index: Tensor
    tokens: Tensor
    lengths: Tensor
    levels: Tensor | None = None
    log_ambiguity: Tensor | None = None

    def __post_init__(self) -> None:
        count = len(self.texts)
        for name in ("image_of", "lengths", "levels", "log_ambiguity"):
            values = getattr(self, name)
            if values is not None and tuple(values.shape) != (count,):
                raise ValueError(
                    f"{name} must be of shape ({count},), one for each caption, not {tuple(values.shape)}"
                )
        if int(self.lengths.sum()) != len(self.tokens):
            raise ValueError(
                f"the lengths sum to {int(self.lengths.sum())}, but there are {len(self.tokens)} tokens"
            )

    def __len__(self) -> int:
        return len(self.texts)

    def first_occurrences(self) -> Tensor:
        """int64: the number of the first caption of each text, in order."""
        return torch.tensor(list(_first_numbers(self.texts).values()), dtype=torch.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddedPairs:
    """N images (N, D) and their T captions (T, D), on the CPU.

    numbers: int64 (N,): the sample of each image in its source. keys: what the source calls it. name: of the source.
    bad: how many samples were left out because they could not be used.
    """

    images: Gaussian
    texts: Gaussian
    captions: TokenizedCaptions
    indices: Tensor
    keys: tuple[str, ...]
    name: str
    bad: int = 0

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.indices) == len(self.keys):
            raise ValueError(
                f"{len(self.images)} images, {len(self.indices)} numbers and {len(self.keys)} keys differ"
            )
        if len(self.texts) != len(self.captions) or not len(self.captions):
            raise ValueError(f"{len(self.texts)} embedded texts don't fit {len(self.captions)} captions")
        low, high = (int(v) for v in self.captions.image_index.aminmax())
        if low < 0 or high >= len(self.images):
            raise ValueError(f"image_of must be rows of {len(self.images)} images, not {low} to {high}")


def embed_pairs(
    model: ProLIP,
    source: Source,
    *,
    limit: int | None = None,
    world: scenes.World | None = None,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> EmbeddedPairs:
    """Embed the images of a source and all their captions.

    limit: at most so many images, evenly spread over the source; None: all.
    world: the captions are of scenes of this world: what the data doesn't tell of their true ambiguity is computed from
           their words.
    cache: where embeddings are kept; None: nowhere.
    max_bad_fraction: more than this share of bad samples is an error.

    A table whose every caption is a chain "general => ... => specific" of one length (HierarCaps) has levels. Of scenes
    (`Scenes`, or shards that `prolip data scenes` wrote, captions from "json:captions") levels and ambiguity are known.
    """
    part = source if limit is None else Subset(source, limit)
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    encoded = embedder.embed_images(part)
    numbers = torch.from_numpy(part.numbers)[encoded.indices] if isinstance(part, Subset) else encoded.indices
    captions = _read(encoded, numbers, source, _tokenizer(model), world)
    texts = embedder.embed_texts(captions.texts)
    keys = tuple(fact.key for fact in encoded.metadata)
    return EmbeddedPairs(
        images=encoded.images, texts=texts, captions=captions, indices=numbers, keys=keys, name=source.name,
        bad=len(encoded.errors),
    )  # fmt: skip


def tokenize_captions(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """The tokens of all texts one after another, without start and end: int64 (all,); and each one's number of them."""
    ends = {tokenizer.config.start_id, tokenizer.config.end_id}
    rows = {text: [i for i in tokenizer.encode(text) if i not in ends] for text in dict.fromkeys(texts)}
    lengths = torch.tensor([len(rows[text]) for text in texts], dtype=torch.int64)
    return torch.tensor([i for text in texts for i in rows[text]], dtype=torch.int64), lengths


def _read(
    encoded: EncodedImages, numbers: Tensor, source: Source, tokenizer: Tokenizer, world: scenes.World | None
) -> TokenizedCaptions:
    if isinstance(source, scenes.Scenes):
        told = [_told_by_scenes(source, int(number)) for number in numbers]
    else:
        chained = _are_chains([fact.captions for fact in encoded.metadata])
        told = [_told(fact, chained) for fact in encoded.metadata]
    texts = tuple(text for captions, _, _ in told for text in captions)
    if not texts:
        raise ValueError(f"{source.name} has no captions; open it with captions, or choose other data")
    image_of = [row for row, (captions, _, _) in enumerate(told) for _ in captions]
    levels = [level for _, found, _ in told for level in found or ()]
    truths = [truth for captions, _, found in told for truth in found or [math.nan] * len(captions)]
    if world is not None:
        truths = _filled(truths, texts, world)
    tokens, lengths = tokenize_captions(texts, tokenizer)
    return TokenizedCaptions(
        texts=texts,
        image_index=torch.tensor(image_of, dtype=torch.int64),
        tokens=tokens,
        lengths=lengths,
        levels=torch.tensor(levels, dtype=torch.int64) if len(levels) == len(texts) else None,
        log_ambiguity=_known(truths),
    )


Told = tuple[Sequence[str], list[int] | None, list[float] | None]
"""The captions of an image; their levels and their log-ambiguities, if they are known."""


def _told(fact: SampleMetadata, chained: bool) -> Told:
    """By a `json` member beside the captions, as scenes have it, or by a column `log_ambiguity`.

    chained: its one caption is a chain, whose links are captions of the levels 0, 1, ...
    """
    captions = _links(fact) if chained else fact.captions
    record, count = fact.extra.get("json"), len(captions)
    if isinstance(record, dict) and record.get("captions") == list(captions):
        levels = _numbers(record.get("caption_levels"), count)
        whole = None if levels is None else [int(level) for level in levels]
        return captions, whole, _numbers(record.get("log_ambiguity"), count)
    column = fact.extra.get("log_ambiguity")
    truths = None if column is None else _numbers(str(column).split(), count)
    return captions, list(range(count)) if chained else None, truths


def _told_by_scenes(source: scenes.Scenes, number: int) -> Told:
    told = source.captions(number)
    truths = [scenes.log_ambiguity(caption.meaning, source.world) for caption in told]
    return [caption.text for caption in told], [caption.level for caption in told], truths


def _are_chains(captions: Sequence[tuple[str, ...]]) -> bool:
    """Whether each image has one caption, a chain, and all chains have as many links."""
    if any(len(texts) != 1 for texts in captions):
        return False
    arrows = {texts[0].count(CAPTION_SEPARATOR) for texts in captions}
    return len(arrows) == 1 and 0 not in arrows


def _links(fact: SampleMetadata) -> tuple[str, ...]:
    links = tuple(link.strip() for link in fact.captions[0].split(CAPTION_SEPARATOR))
    if not all(links):
        raise ValueError(f"sample {fact.key}: a caption of its chain {fact.captions[0]!r} is empty; fill it")
    return links


def _filled(truths: Sequence[float], texts: Sequence[str], world: scenes.World) -> list[float]:
    """Log-ambiguities, those that are nan computed from the words."""
    found = [
        _log_ambiguity(text, world) if math.isnan(truth) else truth
        for text, truth in zip(texts, truths, strict=True)
    ]
    if all(map(math.isnan, found)):
        raise ValueError(
            f"not one caption, such as {texts[0]!r}, is in the words of scenes; leave the world out"
        )
    return found


def _log_ambiguity(text: str, world: scenes.World) -> float:
    try:
        return scenes.log_ambiguity(text, world)
    except ValueError:  # other words
        return math.nan


def _known(truths: Sequence[float]) -> Tensor | None:
    values = torch.tensor(truths, dtype=torch.float64)
    values[~values.isfinite()] = math.nan  # -inf: never true in this world, so not of it
    return None if bool(values.isnan().all()) else values


def _numbers(values: Any, count: int) -> list[float] | None:
    """So many numbers, or None."""
    if not isinstance(values, list) or len(values) != count:
        return None
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        return None


def _first_numbers(texts: Sequence[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)
    return numbers


def _tokenizer(model: ProLIP) -> Tokenizer:
    if model.tokenizer is None:
        model.tokenize([])  # says what to do
    assert model.tokenizer is not None
    return model.tokenizer
