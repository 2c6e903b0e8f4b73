"""The interface of an adapter of a foreign format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prolip.model.config import ModelConfig
from prolip.weights.formats.files import ForeignModel
from prolip.weights.formats.rules import Rule


@dataclass(frozen=True, kw_only=True)
class WeightFormat:
    """An adapter of a foreign format.

    Attributes:
        name: Name of the format.
        matches: Whether a model has this format.
        read_config: The config of a model.
        make_rules: Rules for all its tensors.
        ignored: Regular expression of names of tensors that are not needed -> reason.
        tokenizer_name: Hub id of the tokenizer that the config names and the folder may lack.
    """

    name: str
    matches: Callable[[ForeignModel], bool]
    read_config: Callable[[ForeignModel], ModelConfig]
    make_rules: Callable[[ForeignModel, ModelConfig], Sequence[Rule]]
    ignored: Mapping[str, str]
    tokenizer_name: Callable[[ForeignModel, ModelConfig], str | None]
