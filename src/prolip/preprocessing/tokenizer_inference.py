"""The config of a foreign tokenizer, inferred from the ids it adds to a text and the names of its special tokens."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from prolip.preprocessing import tokenizer_builders
from prolip.preprocessing.text_cleaning import Cleaning
from prolip.preprocessing.tokenizer import TokenizerConfig

PAD_TOKENS = ("[PAD]", "<pad>")
"""Usual names of the padding token, for tokenizers that don't name theirs."""


def infer_tokenizer_config(
    backend: tokenizers.Tokenizer,
    folder: Path,
    context_length: int,
    name: str,
    cleaning: Cleaning | None = None,
) -> TokenizerConfig:
    """Infer the config of a foreign tokenizer. Turns off the padding of `backend`.

    Args:
        backend: The tokenizer.
        folder: Where its special token names are looked up.
        context_length: Tokens per text of the model.
        name: The tokenizer as the user named it, for errors.
        cleaning: Cleaning of captions; None: CLIP's for a tokenizer with CLIP's start token, else that of the paper.

    Returns:
        The config.

    Raises:
        ValueError: It has neither a padding nor an end token.
    """
    special_names = tokenizer_builders.read_special_tokens(folder)
    start, end = _find_start_and_end_ids(backend)
    pad = _find_special_id(backend, (special_names.get("pad"), *PAD_TOKENS))
    pad = end if pad is None else pad
    if pad is None:
        raise ValueError(
            f"the tokenizer {name} has neither a padding nor an end token; choose another tokenizer"
        )
    mask = _find_special_id(backend, (special_names.get("mask"),))
    start_of_clip = backend.token_to_id(tokenizer_builders.START)
    return TokenizerConfig(
        vocab_size=max(backend.get_vocab().values()) + 1,
        context_length=context_length,
        pad_id=pad,
        mask_id=None if mask in (pad, start, end) else mask,
        start_id=start,
        end_id=end,
        cleaning=cleaning or ("canonicalize" if start_of_clip is None else "lower"),
    )


def _find_start_and_end_ids(backend: tokenizers.Tokenizer) -> tuple[int | None, int | None]:
    """(start id, end id): the ids that the tokenizer itself adds before and after a text, None where it adds none.

    Turns off the tokenizer's padding.
    """
    backend.no_padding()
    encoding = backend.encode("a")
    is_added = [bool(special) for special in encoding.special_tokens_mask]
    return encoding.ids[0] if is_added[0] else None, encoding.ids[-1] if is_added[-1] else None


def _find_special_id(backend: tokenizers.Tokenizer, names: tuple[str | None, ...]) -> int | None:
    """The id of the first name that is a special token; None if none is.

    An ordinary token doesn't count, even if it is named as padding: padding with "!" would hide every "!" of a text.
    """
    special_ids = {token.content: token_id for token_id, token in backend.get_added_tokens_decoder().items()}
    return next((special_ids[name] for name in names if name in special_ids), None)
