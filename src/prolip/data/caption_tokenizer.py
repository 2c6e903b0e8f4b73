"""train_tokenizer: a tokenizer from the captions of data, with a vocabulary that fits their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from prolip.data.config import TokenizerTrainConfig
from prolip.data.open import is_generated, is_stream, open_data
from prolip.data.sample import BadSampleError
from prolip.data.source import Source, evenly_spaced
from prolip.data.sources.captions import open_captions
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import choose_vocab_size, train_bpe
from prolip.storage.addresses import redact_secrets

MAX_SAMPLES, MAX_GENERATED = 200_000, 10_000
"""Samples of a source that are read, evenly spaced: of data on disk, and of generated data, which is drawn first."""


def train_tokenizer(data: Sequence[str], config: TokenizerTrainConfig, image: str | None = None) -> Tokenizer:
    """Train a byte-level BPE (`train_bpe`) on captions. The same data gives the same tokenizer.

    Args:
        data: Addresses of data that `open_data` reads, or of text files with a caption per line (.txt).
        config: Sizes, and where the captions are.
        image: Column or extension of the images, as for `open_data`.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: There is no such data.
        ValueError: The data is a stream, or has no captions.
    """
    captions = [text for address in data for text in _iter_captions(address, config, image)]
    if not captions:
        names = ", ".join(map(redact_secrets, data))
        raise ValueError(f"{names}: there are no captions to train a tokenizer on")
    vocab_size = config.vocab_size or choose_vocab_size(len(captions))
    return train_bpe(captions, vocab_size=vocab_size, context_length=config.context_length)


def _iter_captions(address: str, config: TokenizerTrainConfig, image: str | None) -> Iterator[str]:
    """All captions of evenly spaced samples; bad samples are skipped, since the training counts them."""
    source = _open_source(address, config, image)
    limit = MAX_GENERATED if is_generated(address) else MAX_SAMPLES
    for index in evenly_spaced(len(source), limit):
        try:
            yield from source.read(int(index)).captions
        except BadSampleError:
            continue


def _open_source(address: str, config: TokenizerTrainConfig, image: str | None) -> Source:
    """Open data or a text file; ValueError for a stream, which would be downloaded for its captions alone."""
    if is_stream(address):
        raise ValueError(
            f"{redact_secrets(address)} is a stream: train the tokenizer on files, for example on a text file with a "
            "caption per line: prolip data tokenizer captions.txt --out tokenizer.json"
        )
    if Path(address).suffix.lower() == ".txt":
        return open_captions(address)
    return open_data(address, captions=config.captions, image=image)
