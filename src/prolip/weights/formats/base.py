"""What an adapter must know about its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prolip.model.config import ModelConfig
from prolip.weights.formats.files import Source
from prolip.weights.formats.rules import Rule


@dataclass(frozen=True, kw_only=True)
class Format:
    """One foreign format."""

    name: str
    recognises: Callable[[Source], bool]
    read_config: Callable[[Source], ModelConfig]
    rules: Callable[[Source, ModelConfig], Sequence[Rule]]
    ignored: Mapping[str, str]
    """Patterns of tensors that are not needed -> why."""
    tokenizer_name: Callable[[Source, ModelConfig], str | None]
    """The hub id of a tokenizer that the config names and the folder may lack."""
