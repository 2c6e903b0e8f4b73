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
        matches: Whether a foreign model has this format.
        read_config: Our config of a foreign model. Raises ValueError, without the path, for unsupported settings.
        make_rules: Rules for all tensors of a foreign model, given our config of it.
        ignored: Regular expression of names of tensors that are not needed -> reason.
        tokenizer_name: Hub id of the tokenizer, for a folder that lacks one; None if the config names none.
    """

    name: str
    matches: Callable[[ForeignModel], bool]
    read_config: Callable[[ForeignModel], ModelConfig]
    make_rules: Callable[[ForeignModel, ModelConfig], Sequence[Rule]]
    ignored: Mapping[str, str]
    tokenizer_name: Callable[[ForeignModel, ModelConfig], str | None]
