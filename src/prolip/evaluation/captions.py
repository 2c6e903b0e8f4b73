"""Embedded images and captions of a source; tokens, level and true ambiguity of each caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prolip.data.source import AnnotatedSource, CaptionAnnotation, Source, Subset
from prolip.data.sources.hierarcaps import CAPTION_SEPARATOR
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.gaussian import Gaussian
from prolip.preprocessing.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenizedCaptions:
    """T captions of some images.

    texts:         The captions.
    image_index:   int64 (T,): the row of each caption's image.
    tokens:        int64 (sum of lengths,): the tokens of all captions, one caption after another, as the text tower
                   sees them (truncated to its context), without start and end.
    lengths:       int64 (T,): the number of tokens of each caption.
    levels:        int64 (T,): the level of generality, 0 for the most general; None: unknown.
    log_ambiguity: float64 (T,): ln of the probability that a caption is true of a random image, NaN where it is
                   unknown; None: unknown for all.
    """

    texts: tuple[str, ...]
    image_index: Tensor
    tokens: Tensor
    lengths: Tensor
    levels: Tensor | None = None
    log_ambiguity: Tensor | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless every tensor has one value per caption and the lengths add up to the tokens."""
        count = len(self.texts)
        for name in ("image_index", "lengths", "levels", "log_ambiguity"):
            values = getattr(self, name)
            if values is not None and tuple(values.shape) != (count,):
                raise ValueError(
                    f"{name} must have the shape ({count},), one value per caption, not {tuple(values.shape)}"
                )
        if int(self.lengths.sum()) != len(self.tokens):
            raise ValueError(
                f"lengths sum to {int(self.lengths.sum())}, but there are {len(self.tokens)} tokens"
            )

    def __len__(self) -> int:
        return len(self.texts)

    def first_occurrences(self) -> Tensor:
        """The index of the first caption of each distinct text, in order: int64."""
        return torch.tensor(list(_find_first_indices(self.texts).values()), dtype=torch.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddedPairs:
    """N images (N, D) and their T captions (T, D), on the CPU.

    indices: int64 (N,): the index of each image in its source.
    keys:    The key of each image in its source.
    name:    Name of the source.
    num_bad: Number of bad samples, which were skipped.
    """

    images: Gaussian
    texts: Gaussian
    captions: TokenizedCaptions
    indices: Tensor
    keys: tuple[str, ...]
    name: str
    num_bad: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError unless the numbers of images, captions, indices and keys agree and there is a caption."""
        if not len(self.images) == len(self.indices) == len(self.keys):
            raise ValueError(
                f"{len(self.images)} images need as many indices and keys, not {len(self.indices)} and {len(self.keys)}"
            )
        if len(self.texts) != len(self.captions) or not len(self.captions):
            raise ValueError(
                f"{len(self.texts)} embedded texts for {len(self.captions)} captions; there must be as many, and not 0"
            )
        lowest, highest = (int(row) for row in self.captions.image_index.aminmax())
        if lowest < 0 or highest >= len(self.images):
            raise ValueError(
                f"image_index must be rows of {len(self.images)} images, not {lowest} to {highest}"
            )


def embed_pairs(
    embedder: BaseEmbedder,
    source: Source,
    *,
    limit: int | None = None,
    log_ambiguity: Callable[[str], float] | None = None,
) -> EmbeddedPairs:
    """Embed the images of a source and all their captions.

    Levels and ambiguities come from an `AnnotatedSource`; from a json member next to the captions ("captions",
    "caption_levels", "log_ambiguity"), as in the shards of `prolip data scenes`; from a column log_ambiguity; levels
    also from captions that are all chains "general => ... => specific" of one length, as in HierarCaps.

    Args:
        embedder: The model, and how to embed with it.
        source: Images with captions.
        limit: Largest number of images, evenly spaced in the source; None: all.
        log_ambiguity: Computes the true log-ambiguity of a caption for which the data has none, as
            `AnnotatedSource.log_ambiguity` does; raises ValueError for a text that it doesn't know.

    Returns:
        Images and captions, embedded.
    """
    subset = source if limit is None else Subset(source, limit)
    encoded = embedder.embed_images(subset)
    indices = encoded.indices
    if isinstance(subset, Subset):
        indices = torch.from_numpy(subset.indices)[indices]
    captions = _flatten_and_tokenize(
        _collect_annotations(encoded, indices, source),
        embedder.tokenizer,
        source.name,
        log_ambiguity,
    )
    return EmbeddedPairs(
        images=encoded.images, texts=embedder.embed_texts(captions.texts), captions=captions, indices=indices,
        keys=tuple(sample.key for sample in encoded.metadata), name=source.name, num_bad=len(encoded.errors),
    )  # fmt: skip


def tokenize_captions(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Tokenize texts without start and end tokens.

    Args:
        texts: T texts.
        tokenizer: The tokenizer of the model.

    Returns:
        The tokens of all texts, one text after another, int64 (sum of lengths,); and the lengths, int64 (T,).
    """
    special_ids = {tokenizer.config.start_id, tokenizer.config.end_id}
    # a text that occurs several times is tokenized once
    tokens_of_text = {
        text: [token for token in tokenizer.encode(text) if token not in special_ids]
        for text in dict.fromkeys(texts)
    }
    lengths = torch.tensor([len(tokens_of_text[text]) for text in texts], dtype=torch.int64)
    tokens = [token for text in texts for token in tokens_of_text[text]]
    return torch.tensor(tokens, dtype=torch.int64), lengths


def _collect_annotations(
    encoded: EncodedImages, indices: Tensor, source: Source
) -> list[Sequence[CaptionAnnotation]]:
    """The captions of each image, with levels and ambiguities where they are known; `embed_pairs` lists their sources.

    indices: int64 (N,), the index of each encoded image in `source`.
    """
    if isinstance(source, AnnotatedSource):
        return [source.caption_annotations(int(index)) for index in indices]
    are_chains = _are_chains([sample.captions for sample in encoded.metadata])
    return [_read_annotations(sample, are_chains) for sample in encoded.metadata]


def _flatten_and_tokenize(
    annotations: Sequence[Sequence[CaptionAnnotation]],
    tokenizer: Tokenizer,
    name: str,
    log_ambiguity: Callable[[str], float] | None,
) -> TokenizedCaptions:
    """Flatten the captions of all images, tokenize them and fill in unknown ambiguities.

    annotations:   the captions of each image.
    name:          name of the source, for the message if there are no captions (ValueError).
    log_ambiguity: computes an ambiguity that is unknown; None: it stays unknown. See `embed_pairs`.
    """
    captions = [caption for captions_of_image in annotations for caption in captions_of_image]
    if not captions:
        raise ValueError(
            f"{name} has no captions. If they are in another field or column, name it with --captions (in Python: "
            "open_data(..., captions=...))"
        )
    image_index = [row for row, captions_of_image in enumerate(annotations) for _ in captions_of_image]
    texts = tuple(caption.text for caption in captions)
    levels = [caption.level for caption in captions if caption.level is not None]
    ambiguities = [math.nan if c.log_ambiguity is None else c.log_ambiguity for c in captions]
    if log_ambiguity is not None:
        ambiguities = _compute_unknown_ambiguities(ambiguities, texts, log_ambiguity)
    tokens, lengths = tokenize_captions(texts, tokenizer)
    return TokenizedCaptions(
        texts=texts,
        image_index=torch.tensor(image_index, dtype=torch.int64),
        tokens=tokens,
        lengths=lengths,
        levels=torch.tensor(levels, dtype=torch.int64) if len(levels) == len(texts) else None,
        log_ambiguity=_make_ambiguity_tensor(ambiguities),
    )


def _read_annotations(sample: SampleMetadata, is_chain: bool) -> list[CaptionAnnotation]:
    """Captions of a sample with level and ambiguity, from the json next to its captions or a column log_ambiguity.

    is_chain: the sample's only caption is a chain; its links are the captions, of the levels 0, 1, ...
    An unknown level or ambiguity is None. Raises ValueError for a chain with an empty link.
    """
    texts = _split_chain(sample) if is_chain else sample.captions
    record, count = sample.extra.get("json"), len(texts)
    levels: Sequence[float] | None = range(count) if is_chain else None
    # the json may describe other captions than those that were chosen when the source was opened
    if isinstance(record, dict) and record.get("captions") == list(texts):
        levels = _parse_floats(record.get("caption_levels"), count)
        ambiguities = _parse_floats(record.get("log_ambiguity"), count)
    else:
        column = sample.extra.get("log_ambiguity")
        ambiguities = None if column is None else _parse_floats(str(column).split(), count)
    return [
        CaptionAnnotation(
            text,
            None if levels is None else int(levels[i]),
            None if ambiguities is None else ambiguities[i],
        )
        for i, text in enumerate(texts)
    ]


def _are_chains(captions: Sequence[tuple[str, ...]]) -> bool:
    """Whether each image has exactly one caption, "general => ... => specific", and all have equally many links.

    captions: the captions of each image.
    """
    if any(len(texts) != 1 for texts in captions):
        return False
    separators = {texts[0].count(CAPTION_SEPARATOR) for texts in captions}
    return len(separators) == 1 and 0 not in separators


def _split_chain(sample: SampleMetadata) -> tuple[str, ...]:
    """The links of a sample's only caption, from general to specific; ValueError if one of them is empty."""
    links = tuple(link.strip() for link in sample.captions[0].split(CAPTION_SEPARATOR))
    if not all(links):
        raise ValueError(
            f"sample {sample.key}: its chain {sample.captions[0]!r} has an empty caption before or after "
            f"{CAPTION_SEPARATOR}"
        )
    return links


def _compute_unknown_ambiguities(
    ambiguities: Sequence[float], texts: Sequence[str], log_ambiguity: Callable[[str], float]
) -> list[float]:
    """The log-ambiguities of texts, those that are NaN computed by `log_ambiguity`; ValueError if all stay NaN."""
    completed = [
        _try_log_ambiguity(text, log_ambiguity) if math.isnan(value) else value
        for text, value in zip(texts, ambiguities, strict=True)
    ]
    if all(map(math.isnan, completed)):
        raise ValueError(
            f"the ambiguity of no caption can be computed: their words are unknown, as in {texts[0]!r}. Choose the "
            "--world that the captions describe, or omit it (in Python: log_ambiguity)"
        )
    return completed


def _try_log_ambiguity(text: str, log_ambiguity: Callable[[str], float]) -> float:
    """`log_ambiguity` of a text; NaN for a text that it doesn't know."""
    try:
        return log_ambiguity(text)
    except ValueError:  # unknown words
        return math.nan


def _make_ambiguity_tensor(ambiguities: Sequence[float]) -> Tensor | None:
    """The ambiguities as `TokenizedCaptions.log_ambiguity`: float64 (T,), NaN if not finite; None if none is finite."""
    values = torch.tensor(ambiguities, dtype=torch.float64)
    values[~values.isfinite()] = math.nan  # -inf: the caption is true of no image, so the data doesn't fit
    return None if bool(values.isnan().all()) else values


def _parse_floats(values: Any, count: int) -> list[float] | None:
    """The values as floats, if they are a list of exactly `count` numbers; else None."""
    if not isinstance(values, list) or len(values) != count:
        return None
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        return None


def _find_first_indices(texts: Sequence[str]) -> dict[str, int]:
    """Each distinct text and the index of its first occurrence, in order."""
    first_index_of_text: dict[str, int] = {}
    for index, text in enumerate(texts):
        first_index_of_text.setdefault(text, index)
    return first_index_of_text
