"""Tokenizer: cleaning, encoding, truncation, padding, and the mask token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tokenizers
import torch
from torch import Tensor

from prolip.checks import require_choice, require_positive_int
from prolip.files import atomic_write
from prolip.preprocessing.text_cleaning import Cleaning, clean_text
from prolip.tensor_checks import describe_type

PadTo = Literal["longest", "context"]
"""longest: a batch is padded to its longest text; context: to the context length (towers that attend to padding)."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What a text tower and its tokenizer must agree on.

    Attributes:
        vocab_size: Rows of the embedding table; every id is below it.
        context_length: Largest number of ids of a text, start and end included.
        pad_id: Padding. It may be the end token (SigLIP) or an ordinary one (open_clip: CLIP's "!").
        mask_id: Replaces a masked token; None: there is no mask token, see `add_mask_token`.
        start_id: What the tokenizer puts before a text; None: nothing.
        end_id: What the tokenizer puts after a text; None: nothing.
        cleaning: Cleaning of captions, before they are encoded.
        pad_to: Length of the rows of a batch.
    """

    vocab_size: int
    context_length: int
    pad_id: int
    mask_id: int | None = None
    start_id: int | None = None
    end_id: int | None = None
    cleaning: Cleaning = "canonicalize"
    pad_to: PadTo = "longest"

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError if a field is out of range, or if mask_id is also another special id."""
        require_positive_int(self.vocab_size, "vocab_size")
        require_positive_int(self.context_length, "context_length", maximum=2**16)
        for name in ("pad_id", "mask_id", "start_id", "end_id"):
            value = getattr(self, name)
            if value is not None or name == "pad_id":
                _require_id(value, self.vocab_size, name)
        if self.mask_id in (self.pad_id, self.start_id, self.end_id) and self.mask_id is not None:
            raise ValueError(f"mask_id {self.mask_id} is also the pad, start or end token")
        require_choice(self.cleaning, get_args(Cleaning), "cleaning")
        require_choice(self.pad_to, get_args(PadTo), "pad_to")

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of pad, mask, start and end that exist: masking never touches them."""
        ids = (self.pad_id, self.mask_id, self.start_id, self.end_id)
        return frozenset(i for i in ids if i is not None)


MAX_CHARACTERS, MAX_CHARACTERS_PER_TOKEN = 100_000, 64
"""Of a text at most MAX_CHARACTERS are read, or MAX_CHARACTERS_PER_TOKEN times the context length if that is more."""

MAX_ID = 2**24
"""Largest id of a token: `tokenizers` counts up to it, one by one, when it writes a tokenizer."""


class Tokenizer:
    """Turns texts into ids (B, T), int64: a `tokenizers.Tokenizer` (the backend) with cleaning, padding, truncation.

    The backend is copied, and its own padding and truncation are ignored. The name of a special token that is written
    in a caption ("[MASK]", "</s>") is ordinary text: it is spelled out, or dropped where the backend can't spell it,
    and never becomes the token. (In transformers and open_clip it would become the token.)

    Texts are encoded one after another, in the calling thread: data-loader workers are processes already, and threads
    that were started before a fork don't survive it.

    Args:
        backend: Splits texts into tokens and adds the start and end tokens; copied.
        config: Special ids, lengths and cleaning; kept as an attribute.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the backend doesn't add the config's start and end tokens, or can't be copied.
    """

    def __init__(self, backend: tokenizers.Tokenizer, config: TokenizerConfig) -> None:
        """Copy the backend, check it against the config, and replace its truncation and padding."""
        if not isinstance(backend, tokenizers.Tokenizer):
            raise TypeError(f"backend must be a tokenizers.Tokenizer, not {describe_type(backend)}")
        if not isinstance(config, TokenizerConfig):
            raise TypeError(f"config must be a TokenizerConfig, not {describe_type(config)}")
        self.config = config
        self._backend = _copy_backend(backend)
        self._backend.no_padding()
        _check_special_tokens(self._backend, config)
        self._backend.enable_truncation(config.context_length)  # cuts the text only: start and end stay
        self._backend.encode_special_tokens = True  # neither a copy nor a file of the backend stores this
        # Special ids that have a name in the backend, such as "[MASK]", which a caption could contain.
        self._named_special_ids = config.special_ids & self._backend.get_added_tokens_decoder().keys()

    @classmethod
    def from_file(cls, path: str | Path, config: TokenizerConfig) -> Tokenizer:
        """Read a tokenizer.json file and wrap it with a config.

        Args:
            path: The tokenizer.json.
            config: Special ids, lengths and cleaning that the model was trained with.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If it is not a tokenizer.json, or does not fit the config; the message names the file.
        """
        backend = read_tokenizer_file(path)
        try:
            return cls(backend, config)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: str | Path) -> Path:
        """Write the backend as tokenizer.json, atomically, without the config, which a model has in config.json.

        Args:
            path: The file to write.

        Returns:
            The path of the file.
        """
        text = self.copy_backend().to_str(pretty=True)
        return atomic_write(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def copy_backend(self) -> tokenizers.Tokenizer:
        """Return a copy of the wrapped `tokenizers.Tokenizer`, without truncation and padding."""
        backend = _copy_backend(self._backend)
        backend.no_truncation()
        return backend

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        """Encode a batch.

        Args:
            texts: B texts; one str is a batch of one.

        Returns:
            Ids (B, T), int64. T is the length of the longest text (at least 1), or the context length, see `pad_to`.

        Raises:
            TypeError: If a text is not a str.
            ValueError: If the backend gives an id outside the vocabulary of the config.
        """
        texts = as_text_list(texts)
        ids = self.pad([self._encode(text) for text in texts])
        if ids.numel() and int(ids.max()) >= self.config.vocab_size:
            raise self._make_vocabulary_error(ids, texts)
        return ids

    def encode(self, text: str) -> list[int]:
        """Encode one text.

        Args:
            text: A caption, not cleaned.

        Returns:
            At most `context_length` ids, start and end included, without padding.

        Raises:
            ValueError: If the backend gives an id outside the vocabulary of the config.
        """
        row = self._encode(text)
        if row and max(row) >= self.config.vocab_size:
            raise self._make_vocabulary_error(torch.tensor([row]), [text])
        return row

    def find_unknown(self, text: str) -> list[str]:
        """Find the words of a text for which, or for a part of which, the vocabulary has only its unknown token.

        Args:
            text: A caption, not cleaned.

        Returns:
            The words as the cleaned text has them, in its order; empty for vocabularies that spell any text.
        """
        token = getattr(self._backend.model, "unk_token", None)
        unknown_id = None if token is None else self._backend.token_to_id(token)
        cleaned = clean_text(text, self.config.cleaning)
        encoding = self._backend.encode(cleaned)
        spans = [
            span
            for token_id, span in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id == unknown_id
        ]
        return [_extend_to_word(cleaned, *span) for span in spans]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Join B rows of ids to a batch.

        Args:
            rows: The ids of each text, as `encode` returns them.

        Returns:
            Ids (B, T), int64, filled up with `pad_id`; T as for `__call__`.
        """
        longest = max(map(len, rows), default=0)
        width = self.config.context_length if self.config.pad_to == "context" else max(1, longest)
        # NumPy fills many short rows faster than torch does.
        padded = np.full((len(rows), width), self.config.pad_id, dtype=np.int64)
        for padded_row, row in zip(padded, rows, strict=True):
            padded_row[: len(row)] = row
        return torch.from_numpy(padded)

    def decode(self, ids: Tensor) -> list[str]:
        """Turn ids back into texts.

        Args:
            ids: (B, T), of any integer dtype.

        Returns:
            B texts, without padding, start and end tokens; mask tokens are shown.
        """
        if not isinstance(ids, Tensor) or ids.is_floating_point():
            raise TypeError(f"ids to decode must be an integer tensor, not {describe_type(ids)}")
        if ids.ndim != 2:
            raise ValueError(f"ids to decode must have the shape (B, T), not {tuple(ids.shape)}")
        return [self._decode(row) for row in ids.tolist()]

    def _encode(self, text: str) -> list[int]:
        """Clean and encode a text: ids without padding, cut to the context length, not checked against vocab_size."""
        limit = max(MAX_CHARACTERS, MAX_CHARACTERS_PER_TOKEN * self.config.context_length)
        cut = text[:limit] if isinstance(text, str) else text  # clean_text refuses other types
        encoding = self._backend.encode(clean_text(cut, self.config.cleaning))
        ids: list[int] = encoding.ids
        if self._named_special_ids.isdisjoint(ids):
            return ids
        # Unigram and word-level models know special tokens by their spelling, whatever encode_special_tokens is.
        # So drop every special id but the start and end tokens, which the backend itself added (mask 1).
        return [
            i
            for i, was_added in zip(ids, encoding.special_tokens_mask, strict=True)
            if was_added or i not in self._named_special_ids
        ]

    def _decode(self, row: list[int]) -> str:
        """The text of one row of ids, without padding, start and end tokens. Pops the padding off `row` itself."""
        while row and row[-1] == self.config.pad_id:  # only at the end: CLIP's pad is an ordinary token too
            row.pop()
        start_and_end = {self.config.start_id, self.config.end_id}
        text: str = self._backend.decode(
            [i for i in row if i not in start_and_end], skip_special_tokens=False
        )
        return text

    def _make_vocabulary_error(self, ids: Tensor, texts: Sequence[str]) -> ValueError:
        """The error for the first of the ids (B, T) that is vocab_size or more; it names the token and its text."""
        row, column = (int(i) for i in (ids >= self.config.vocab_size).nonzero()[0])
        token_id = int(ids[row, column])
        return ValueError(
            f"texts[{row}], {_shorten(texts[row])}: the token {self._backend.id_to_token(token_id)!r} has the id "
            f"{token_id}, but vocab_size is {self.config.vocab_size}. This tokenizer belongs to another model: "
            "use the tokenizer.json that came with the weights"
        )

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return Tokenizer, (self._backend, self.config)

    def __repr__(self) -> str:
        return f"Tokenizer({self.config})"


def _extend_to_word(text: str, start: int, end: int) -> str:
    """The characters from `start` to `end`, and the letters and digits of the same word around them."""
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end].strip()


MASK_TOKENS = ("[MASK]", "<mask>", "<extra_id_99>")
"""Names of mask tokens in vocabularies; the last is T5's, which the release uses with SigLIP's vocabulary."""


def add_mask_token(tokenizer: Tokenizer) -> Tokenizer:
    """Give a tokenizer a mask token. The argument is not changed.

    Args:
        tokenizer: A tokenizer with or without a mask token.

    Returns:
        The same tokenizer if it has a mask token; else one that uses a mask token of its vocabulary; else one with a
        new token "[MASK]" after all other ids, and a larger `vocab_size`.

    Raises:
        ValueError: If a new token is needed, but the ids of the vocabulary have gaps.
    """
    config = tokenizer.config
    if config.mask_id is not None:
        return tokenizer
    backend = tokenizer.copy_backend()
    ids_in_vocabulary = [backend.token_to_id(name) for name in MASK_TOKENS]
    candidates = [i for i in ids_in_vocabulary if i is not None and i not in config.special_ids]
    if not candidates:
        _reserve_ids(backend, config.vocab_size)
        backend.add_special_tokens(["[MASK]"])
    mask_id = candidates[0] if candidates else backend.get_vocab()["[MASK]"]
    return Tokenizer(
        backend, replace(config, mask_id=mask_id, vocab_size=max(config.vocab_size, mask_id + 1))
    )


def read_tokenizer_file(path: str | Path) -> tokenizers.Tokenizer:
    """Read a tokenizer.json.

    Args:
        path: The tokenizer.json.

    Returns:
        The tokenizer of the library `tokenizers`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it can't be read as a tokenizer.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the tokenizer file does not exist")
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ValueError(f"{path} is not a tokenizer.json that `tokenizers` can read: {error}") from error


def _copy_backend(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copy a tokenizer by way of JSON; ValueError if an id is above MAX_ID, or a component can't be written as JSON."""
    largest = max(backend.get_vocab().values(), default=0)
    if largest > MAX_ID:
        raise ValueError(
            f"the tokenizer has a token with the id {largest:,}; the largest id allowed is {MAX_ID:,}"
        )
    try:
        return tokenizers.Tokenizer.from_str(backend.to_str())
    except Exception as error:  # two tokens with one id, or a component written in Python
        raise ValueError(
            f"the tokenizer can't be written as a tokenizer.json and read again: {error}. "
            "Its ids must be unique, and its components those of `tokenizers`"
        ) from error


def _reserve_ids(backend: tokenizers.Tokenizer, vocab_size: int) -> None:
    """Add tokens "[RESERVED i]" to the backend until the next new token gets an id of at least `vocab_size`.

    `tokenizers` always takes the next id. A model's embedding table may have more rows than the tokenizer has ids.
    ValueError if the ids of the backend have gaps.
    """
    ids = backend.get_vocab().values()
    if len(ids) != max(ids, default=-1) + 1:
        raise ValueError(
            "the tokenizer's ids have gaps, so no mask token can be added; "
            "set TokenizerConfig.mask_id to the id of one of its own tokens"
        )
    backend.add_special_tokens([f"[RESERVED {i}]" for i in range(len(ids), vocab_size)])


def _check_special_tokens(backend: tokenizers.Tokenizer, config: TokenizerConfig) -> None:
    """Raise ValueError unless the backend adds just the config's start and end tokens and room for a text is left."""
    encoding = backend.encode("")
    mask = encoding.special_tokens_mask
    added_ids = [i for i, was_added in zip(encoding.ids, mask, strict=True) if was_added]
    config_ids = [i for i in (config.start_id, config.end_id) if i is not None]
    if added_ids != config_ids:
        raise ValueError(
            f"the tokenizer adds the ids {added_ids} to a text, but start_id and end_id of its config are "
            f"{config_ids}. Set these to the ids that it adds, or use the tokenizer that belongs to the config"
        )
    if config.context_length <= len(added_ids):
        raise ValueError(
            f"context_length {config.context_length} leaves no room for a text beside {len(added_ids)} special tokens"
        )


def _require_id(value: object, vocab_size: int, name: str) -> None:
    """Raise ValueError unless a value is an integer from 0 to vocab_size - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
        raise ValueError(
            f"{name} must be a whole number from 0 to vocab_size - 1 = {vocab_size - 1}, not {value!r}"
        )


def as_text_list(texts: str | Sequence[str]) -> Sequence[str]:
    """Turn one text into a list of one, and check the types of several.

    Args:
        texts: A str, or a sequence of str.

    Returns:
        The sequence itself; [texts] for a single str.

    Raises:
        TypeError: If it is neither, or if an element is not a str.
    """
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Sequence) or isinstance(texts, bytes | bytearray):
        raise TypeError(f"texts must be a str or a list of str, not {describe_type(texts)}")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a str, not {describe_type(text)}")
    return texts


def _shorten(text: str) -> str:
    """The text in quotes for a message, cut to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
