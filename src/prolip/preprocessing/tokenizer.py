"""Texts to token ids: cleaning, encoding, truncation, padding, and the mask token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tokenizers
import torch
from torch import Tensor

from prolip.checks import describe, require_choice, require_count
from prolip.files import write_whole
from prolip.preprocessing.text_cleaning import Cleaning, clean

PadTo = Literal["longest", "context"]
"""longest: a batch is cut to its longest text; context: never (released models attend to padding)."""


@dataclass(frozen=True, kw_only=True)
class TokenRules:
    """What a text tower and its tokenizer must agree on.

    vocab_size:     rows of the embedding table that a tower needs; every id is below it.
    context_length: most ids a text may have, start and end included.
    pad_id:         fills rows up. It may be the end token (SigLIP) or an ordinary one (open_clip: CLIP's "!").
    mask_id:        stands for a hidden token; None: there is none, see `with_mask_token`.
    start_id, end_id: what the tokenizer itself puts around a text; None: nothing.
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
        require_count(self.vocab_size, "TokenRules: vocab_size")
        require_count(self.context_length, "TokenRules: context_length", most=2**16)
        for name in ("pad_id", "mask_id", "start_id", "end_id"):
            value = getattr(self, name)
            if value is not None or name == "pad_id":
                _require_id(value, self.vocab_size, f"TokenRules: {name}")
        if self.mask_id in (self.pad_id, self.start_id, self.end_id) and self.mask_id is not None:
            raise ValueError(f"TokenRules: mask_id {self.mask_id} is also the pad, start or end token")
        require_choice(self.cleaning, get_args(Cleaning), "TokenRules: cleaning")
        require_choice(self.pad_to, get_args(PadTo), "TokenRules: pad_to")

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of pad, mask, start and end, as far as there are any: what masking leaves alone."""
        ids = (self.pad_id, self.mask_id, self.start_id, self.end_id)
        return frozenset(i for i in ids if i is not None)


class Tokenizer:
    """Texts to ids (B, T), int64; `core` does the splitting, `rules` say all the rest.

    The core is copied, and whatever it says of padding and truncation is put aside. The name of a special token written
    in a caption ("[MASK]", "</s>") is ordinary text: it is spelt, or left out where the core can't spell it, and never
    becomes the token. (transformers and open_clip would take it for the token.)

    Texts are encoded one after another, in the calling thread: data-loader workers are processes already, and threads
    that were started before a fork don't survive it.
    """

    def __init__(self, core: tokenizers.Tokenizer, rules: TokenRules) -> None:
        if not isinstance(core, tokenizers.Tokenizer):
            raise TypeError(f"core must be a tokenizers.Tokenizer, not {describe(core)}")
        if not isinstance(rules, TokenRules):
            raise TypeError(f"rules must be TokenRules, not {describe(rules)}")
        self.rules = rules
        self._core = _copy(core)
        self._core.no_padding()
        _require_same_ends(self._core, rules)
        self._core.enable_truncation(rules.context_length)  # cuts the text only: start and end stay
        self._core.encode_special_tokens = True  # neither a copy nor a file of the core remembers this
        self._never_in_text = rules.special_ids & self._core.get_added_tokens_decoder().keys()

    @classmethod
    def from_file(cls, path: str | Path, rules: TokenRules) -> Tokenizer:
        """From a tokenizer.json, ours or a foreign one."""
        core = read_core(path)
        try:
            return cls(core, rules)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: str | Path) -> Path:
        """Write a tokenizer.json, whole or not at all. The rules are not in it: a model's config holds them."""
        text = self.core().to_str(pretty=True)
        return write_whole(Path(path), lambda aside: aside.write_text(text, encoding="utf-8"))

    def core(self) -> tokenizers.Tokenizer:
        """A copy of the wrapped tokenizer, without truncation and padding."""
        core = _copy(self._core)
        core.no_truncation()
        return core

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        """Ids (B, T), int64: T is the longest text of the batch (at least 1), or the context length.

        One str is a batch of one. No text at all gives (0, T).
        """
        texts = checked_texts(texts)
        ids = self.padded([self._encode(text) for text in texts])
        if ids.numel() and int(ids.max()) >= self.rules.vocab_size:
            raise self._beyond_vocabulary(ids, texts)
        return ids

    def encode(self, text: str) -> list[int]:
        """The ids of one text, without padding."""
        row = self._encode(text)
        if row and max(row) >= self.rules.vocab_size:
            raise self._beyond_vocabulary(torch.tensor([row]), [text])
        return row

    def padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of `encode` as a batch: ids (B, T), int64, T as for calling."""
        longest = max(map(len, rows), default=0)
        width = self.rules.context_length if self.rules.pad_to == "context" else max(1, longest)
        # NumPy fills many short rows faster than torch does.
        padded = np.full((len(rows), width), self.rules.pad_id, dtype=np.int64)
        for line, row in zip(padded, rows, strict=True):
            line[: len(row)] = row
        return torch.from_numpy(padded)

    def decode(self, ids: Tensor) -> list[str]:
        """Texts of ids (B, T), for people to look at: without the padding, start and end; the mask is shown."""
        if not isinstance(ids, Tensor) or ids.is_floating_point():
            raise TypeError(f"ids to decode must be an integer tensor, not {describe(ids)}")
        if ids.ndim != 2:
            raise ValueError(f"ids to decode must have the shape (B, T), not {tuple(ids.shape)}")
        return [self._decode(row) for row in ids.tolist()]

    def _encode(self, text: str) -> list[int]:
        encoding = self._core.encode(clean(text, self.rules.cleaning))
        ids: list[int] = encoding.ids
        if self._never_in_text.isdisjoint(ids):
            return ids
        # Unigram and word-level models know special tokens by their spelling, whatever encode_special_tokens says.
        added = encoding.special_tokens_mask
        return [i for i, ours in zip(ids, added, strict=True) if ours or i not in self._never_in_text]

    def _decode(self, row: list[int]) -> str:
        while row and row[-1] == self.rules.pad_id:  # only at the end: CLIP's pad is an ordinary token too
            row.pop()
        ends = {self.rules.start_id, self.rules.end_id}
        text: str = self._core.decode([i for i in row if i not in ends], skip_special_tokens=False)
        return text

    def _beyond_vocabulary(self, ids: Tensor, texts: Sequence[str]) -> ValueError:
        row, column = (int(i) for i in (ids >= self.rules.vocab_size).nonzero()[0])
        found = int(ids[row, column])
        return ValueError(
            f"texts[{row}], {_shortened(texts[row])}: the token {self._core.id_to_token(found)!r} has the id {found}, "
            f"but the vocabulary has {self.rules.vocab_size} rows; this tokenizer belongs to another model"
        )

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return Tokenizer, (self._core, self.rules)

    def __repr__(self) -> str:
        return f"Tokenizer({self.rules})"


MASKS = ("[MASK]", "<mask>", "<extra_id_99>")
"""Names under which a vocabulary may hold a mask; the last is T5's, the release's choice for SigLIP's vocabulary."""


def with_mask_token(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer if it has a mask token; else with the mask of its vocabulary; else with a new "[MASK]" after
    all other ids and rows of the table."""
    rules = tokenizer.rules
    if rules.mask_id is not None:
        return tokenizer
    core = tokenizer.core()
    known = [core.token_to_id(name) for name in MASKS]
    free = [i for i in known if i is not None and i not in rules.special_ids]
    if not free:
        _fill_up(core, rules.vocab_size)
        core.add_special_tokens(["[MASK]"])
    mask_id = free[0] if free else core.get_vocab()["[MASK]"]
    return Tokenizer(core, replace(rules, mask_id=mask_id, vocab_size=max(rules.vocab_size, mask_id + 1)))


def read_core(path: str | Path) -> tokenizers.Tokenizer:
    """The tokenizer of a tokenizer.json, as it is; a file that is none ends in one sentence."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such tokenizer file")
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ValueError(f"{path} is not a tokenizer.json that `tokenizers` can read: {error}") from error


def _copy(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(core.to_str())
    except Exception as error:  # two tokens of one id, a part written in Python
        raise ValueError(f"the tokenizer can't be written and read again: {error}") from error


def _fill_up(core: tokenizers.Tokenizer, size: int) -> None:
    """Reserve ids until the next new token gets an id of at least `size`: tokenizers can't be told which to take."""
    ids = core.get_vocab().values()
    if len(ids) != max(ids, default=-1) + 1:
        raise ValueError(
            "the tokenizer's ids have holes: no mask token can be added; name one of its own in mask_id"
        )
    core.add_special_tokens([f"[RESERVED {i}]" for i in range(len(ids), size)])


def _require_same_ends(core: tokenizers.Tokenizer, rules: TokenRules) -> None:
    """What the core puts around a text is what the rules say, and a text fits between."""
    encoding = core.encode("")
    found = [i for i, added in zip(encoding.ids, encoding.special_tokens_mask, strict=True) if added]
    expected = [i for i in (rules.start_id, rules.end_id) if i is not None]
    if found != expected:
        raise ValueError(
            f"the tokenizer puts the ids {found} around a text, but start_id and end_id of its rules say {expected}"
        )
    if rules.context_length <= len(found):
        raise ValueError(
            f"context_length {rules.context_length} leaves no room for a text beside {len(found)} special tokens"
        )


def _require_id(value: object, size: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ValueError(
            f"{what} must be a whole number from 0 to vocab_size - 1 = {size - 1}, not {value!r}"
        )


def checked_texts(texts: str | Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, Sequence) or isinstance(texts, bytes | bytearray):
        raise TypeError(f"texts must be a str or a list of str, not {describe(texts)}")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a str, not {describe(text)}")
    return texts


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
