"""Controls of uncertainty: what words, word pieces, their frequency, a pool of images and untrained models give.

A learned width that only counts words proves little. Every score here has the sign of uncertainty: the more general a
text, the higher.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from prolip.data.open import open_data
from prolip.data.source import evenly_spaced
from prolip.data.sources.captions import iter_captions, open_captions
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation.captions import tokenize_captions
from prolip.evaluation.configs import ControlsConfig
from prolip.evaluation.metrics.fit import fit_temperature
from prolip.evaluation.untrained import untrained_embedders
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.perplexity import log_perplexity
from prolip.preprocessing.text_cleaning import clean_text
from prolip.preprocessing.tokenizer import Tokenizer

ScoreName = Literal[
    "uncertainty", "words", "pieces", "unigram", "perplexity", "match_perplexity", "untrained"
]
"""The model's uncertainty and its controls."""
LABELS: dict[ScoreName, str] = {
    "uncertainty": "uncertainty",
    "words": "words",
    "pieces": "word pieces",
    "unigram": "unigram information",
    "perplexity": "pool perplexity",
    "match_perplexity": "pool perplexity, by match",
    "untrained": "untrained",
}
"""Names in tables and figures."""
CAPTION_FILES = (".txt", ".csv", ".tsv", ".parquet")
"""Extensions of files whose captions are read without their images."""
MIN_POOL = 3
"""Fewest images of a pool: of two, but the own one, every caption has a perplexity of 1."""
MAX_POOL = 5000
"""Most images of a pool."""
MAX_FIT_ROWS = 1000
"""Captions to which the scale of the softmax over the pool is fitted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextControls:
    """Controls that need only the texts, float64 (T,) each.

    Attributes:
        words: Minus the number of words.
        pieces: Minus the number of tokens, as the text tower sees them (truncated to its context); None without a
            tokenizer.
        unigram: Sum over the words of log p: minus their information in nats.
    """

    words: Tensor
    pieces: Tensor | None
    unigram: Tensor

    def by_name(self) -> dict[ScoreName, Tensor]:
        """The scores by name, without those that are None."""
        pieces: dict[ScoreName, Tensor] = {} if self.pieces is None else {"pieces": self.pieces}
        return {"words": self.words, **pieces, "unigram": self.unigram}


@dataclass(frozen=True, kw_only=True)
class UnigramCounts:
    """How often words occur in some captions.

    Attributes:
        name: What was counted.
        counts: By word.
    """

    name: str
    counts: Counter[str]

    def log_probability(self, text: str) -> float:
        """Sum of the log-probabilities of the words of a text, in nats.

        Args:
            text: Any text.

        Returns:
            At most 0. p of a word is (its count + 1) / (all counts + V + 1), with V the number of distinct words: an
            unseen word counts as seen once (add-one smoothing).
        """
        total = self.counts.total() + len(self.counts) + 1
        return sum(math.log((self.counts[word] + 1) / total) for word in split_words(text))


def split_words(text: str) -> list[str]:
    """Split a text into words.

    Args:
        text: Any text.

    Returns:
        Its words in lower case, without ASCII punctuation.
    """
    return clean_text(text, "canonicalize").split()


def count_unigrams(captions: Iterable[str], name: str) -> UnigramCounts:
    """Count the words of captions.

    Args:
        captions: The captions.
        name: What they are.

    Returns:
        The counts.
    """
    return UnigramCounts(
        name=name, counts=Counter(word for caption in captions for word in split_words(caption))
    )


def read_unigrams(address: str | None, texts: Iterable[str]) -> UnigramCounts:
    """Count the words of the captions that a config names.

    Args:
        address: Data with captions, or a file of captions (.txt, .csv, .tsv, .parquet); None: count `texts`.
        texts: The evaluated captions. Each distinct text counts once.

    Returns:
        The counts.

    Raises:
        ValueError, OSError: The captions can't be read.
    """
    if address is None:
        return count_unigrams(dict.fromkeys(texts), "the evaluated captions")
    path = Path(address).expanduser()
    is_text = path.suffix.lower() in CAPTION_FILES and path.is_file()
    source = open_captions(path) if is_text else open_data(address)
    return count_unigrams(iter_captions(source), address)


def score_texts(texts: Sequence[str], tokenizer: Tokenizer | None, unigrams: UnigramCounts) -> TextControls:
    """Compute the controls that need only the texts.

    Args:
        texts: T texts.
        tokenizer: Of the model; None: there is no model.
        unigrams: Counts of words.

    Returns:
        The scores.
    """
    values = {
        text: (-len(split_words(text)), unigrams.log_probability(text)) for text in dict.fromkeys(texts)
    }
    words, unigram = (torch.tensor([values[text][i] for text in texts], dtype=torch.float64) for i in (0, 1))
    lengths = None if tokenizer is None else tokenize_captions(texts, tokenizer)[1]
    return TextControls(words=words, pieces=None if lengths is None else -lengths.double(), unigram=unigram)


def find_tokenizer(embedder: BaseEmbedder) -> Tokenizer | None:
    """Find the tokenizer of a model.

    Args:
        embedder: The embedder.

    Returns:
        The tokenizer; None if only embeddings are at hand.
    """
    try:
        return embedder.tokenizer
    except ValueError:
        return None


def select_pool(images: Gaussian, own: Tensor) -> tuple[Gaussian, Tensor]:
    """Select images of a pool, evenly spaced, so that the perplexity of many captions stays cheap.

    Args:
        images: All images, (M, D).
        own: Row of each caption's own image, int64 (T,).

    Returns:
        At most MAX_POOL images, and the rows of own images among them, -1 for those that are not selected.
    """
    rows = torch.from_numpy(evenly_spaced(len(images), MAX_POOL))
    new_rows = torch.full((len(images),), -1)
    new_rows[rows] = torch.arange(len(rows))
    return images[rows], new_rows[own]


def choose_pool_scale(texts: Gaussian, images: Gaussian, own: Tensor, config: ControlsConfig) -> float | None:
    """Choose the scale of the softmax of captions over a pool of images.

    It is that of the config, or else fitted, times k. A fit suits all models, also those whose own scale is not that of
    a softmax (SigLIP, PPCL, a likelihood), and makes the control as strong as it gets without a look at widths.

    Args:
        texts, images, own: As for `fit_pool_scale`.
        config: Scale and k.

    Returns:
        The scale; None if the pool is too small to compare captions, or if there is no caption to fit it to.
    """
    if len(images) < MIN_POOL:
        return None
    scale = config.perplexity_scale
    if scale is None:
        scale = fit_pool_scale(texts, images, own)
    return None if scale is None else config.perplexity_k * scale


def score_pool(
    texts: Gaussian, images: Gaussian, own: Tensor, scale: float, logits: LogitParameters | None = None
) -> dict[ScoreName, Tensor]:
    """Compute how many images of a pool fit each caption: entropy of its softmax over them, in nats.

    Args:
        texts: Captions, (T, D).
        images: The pool, (M, D), M at least 2.
        own: Row of each caption's own image, which doesn't count, int64 (T,); -1: not in the pool.
        scale: Scale of the softmax.
        logits: Of the match that the model was trained with; None: unknown.

    Returns:
        float64 (T,) each. perplexity: by the means alone. match_perplexity: by the trained match, whose logits have a
        scale of their own; only with `logits`.
    """
    found: dict[ScoreName, Tensor] = {"perplexity": log_perplexity(texts, images, scale, exclude=own)}
    if logits is not None:
        found["match_perplexity"] = log_perplexity(texts, images, logits, exclude=own)
    return found


def fit_pool_scale(texts: Gaussian, images: Gaussian, own: Tensor) -> float | None:
    """Fit the scale of the softmax of captions over images by the likelihood of their own images.

    Args:
        texts: Captions, (T, D); only the means are used.
        images: The pool, (M, D); only the means are used.
        own: Row of each caption's own image, int64 (T,); -1: not in the pool.

    Returns:
        The scale, at least 0; None if no own image is known. At most MAX_FIT_ROWS captions, evenly spaced, are used.
    """
    rows = (own >= 0).nonzero()[:, 0]
    if not len(rows):
        return None
    rows = rows[torch.from_numpy(evenly_spaced(len(rows), MAX_FIT_ROWS))]
    return fit_temperature(texts.mean[rows].float() @ images.mean.float().mT, own[rows]).scale


def embed_untrained(embedder: BaseEmbedder, texts: Sequence[str], count: int) -> Iterator[Tensor]:
    """Compute the uncertainties that untrained models of the same config give to texts.

    Args:
        embedder: The model, and how to embed with it.
        texts: T texts.
        count: Number of untrained models, with the seeds 0, 1, ...

    Yields:
        float64 (T,) for each; nothing for a deterministic model, or if only embeddings are at hand.
    """
    if not embedder.has_uncertainty or find_tokenizer(embedder) is None:
        return
    for control in untrained_embedders(embedder, count):
        yield control.embed_texts(texts).uncertainty.double()
