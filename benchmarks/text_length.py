"""Benchmark of text inference: texts at their natural length against texts padded to the context."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.model.text_tower import TextTower
from prolip.preprocessing.tokenizer_builders import train_word_level

CONTEXT, MEDIAN, SIGMA, SEED = 64, 12, 0.35, 0
"""Length of the context. Numbers of words are log-normal, as those of captions: half at most 12, 5 % above 21."""
WORDS = [f"word{number}" for number in range(1000)]
PADDED, OURS = "padded to 64 tokens", "natural length"


@dataclass(frozen=True, kw_only=True)
class TextRates:
    """Texts per second by way of padding, and how many times faster than padding to the context.

    Attributes:
        size, texts, batch: Of the model, the number of texts, and texts per forward pass.
        mean_length: Mean number of tokens of a text.
        rates: Texts per second.
        times_faster: Rates as multiples of the padded one.
    """

    size: str
    texts: int
    batch: int
    mean_length: float
    rates: dict[str, float]
    times_faster: dict[str, float]


def run(*, size: str = "ViT-B-16-768", texts: int = 256, batch: int = 64, repeats: int = 5) -> TextRates:
    """Time `embed_texts` of a new model against the same tower on rows padded to the context.

    Args:
        size: A model size (docs/models.md), with masked padding.
        texts: Number of texts.
        batch: Texts per forward pass.
        repeats: Interleaved runs of each.

    Returns:
        The rates; tokenization is part of both.
    """
    for value, option in ((texts, "--texts"), (batch, "--batch"), (repeats, "--repeats")):
        require_positive_int(value, option)
    model = make_model(size)
    captions = draw_captions(texts)
    works: dict[str, Callable[[], Gaussian]] = {
        PADDED: partial(embed_padded, model, captions, batch),
        OURS: partial(model.embed_texts, captions, batch_size=batch, progress=False),
    }
    for work in works.values():
        work()
    seconds = {name: statistics.median(times) for name, times in time_interleaved(works, repeats).items()}
    return TextRates(
        size=size, texts=texts, batch=batch,
        mean_length=statistics.mean(len(caption.split()) for caption in captions),
        rates={name: texts / value for name, value in seconds.items()},
        times_faster={name: seconds[PADDED] / value for name, value in seconds.items()},
    )  # fmt: skip


def make_model(size: str) -> ProLIP:
    """A new model of a size, with a tokenizer of whole words, padding that is masked, and a context of 64 tokens."""
    tokenizer = train_word_level(WORDS, context_length=CONTEXT)
    config = get_config(size, tokenizer.config)
    config = replace(
        config, text=replace(config.text, tokenizer=tokenizer.config)
    )  # whatever the size's context
    return ProLIP(config, tokenizer).init_weights(torch.Generator().manual_seed(SEED)).eval()


def draw_captions(count: int) -> list[str]:
    """Texts of words that are drawn at random, of random lengths."""
    generator = random.Random(SEED)
    lengths = [min(CONTEXT, max(1, round(MEDIAN * generator.lognormvariate(0, SIGMA)))) for _ in range(count)]
    return [" ".join(generator.choices(WORDS, k=length)) for length in lengths]


@torch.no_grad()
def embed_padded(model: ProLIP, captions: Sequence[str], batch: int) -> Gaussian:
    """Embed texts in the order given, each padded to the context, whose positions are all computed.

    Args:
        model: The model.
        captions: N texts.
        batch: Texts per forward pass.

    Returns:
        Gaussian (N, D).
    """
    rows = []
    with patch.object(TextTower, "_trim_padding", _keep_padding):
        for first in range(0, len(captions), batch):
            ids = model.tokenize(captions[first : first + batch])
            missing = CONTEXT - ids.shape[1]
            padding = model.config.text.tokenizer.pad_id
            rows.append(model.encode_text(torch.nn.functional.pad(ids, (0, missing), value=padding)))
    return Gaussian.cat(rows)


def print_result(result: TextRates) -> None:
    """Print what `run` returned as a table."""
    title = f"{result.size}, {result.texts} texts of {result.mean_length:.1f} tokens on average, batch {result.batch}"
    rows = [(name, f"{rate:.1f}", f"{result.times_faster[name]:.2f}") for name, rate in result.rates.items()]
    print_tables([make_table(title, ("texts",), ("texts per second", "times faster"), rows)])


def _keep_padding(tower: TextTower, ids: Tensor) -> Tensor:
    """Ids as they are; stands for `TextTower._trim_padding`."""
    return ids
