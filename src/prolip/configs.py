"""Frozen dataclasses out of plain values: what JSON brings back, with a sentence for what is missing or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from prolip.checks import require_choice


def build(kind: type, values: object, where: str) -> Any:
    """The dataclass `kind` of nested mappings; the inverse of `dataclasses.asdict`. where: for messages."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be an object with named values, not {type(values).__name__}")
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where} has unknown keys {unknown}; it knows {sorted(known)}")
    parts = {name: _value(hints[name], value, f"{where}.{name}") for name, value in values.items()}
    try:
        return kind(**parts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def require_literals(config: Any) -> None:
    """Fields whose type is a Literal or bool hold one of its values; JSON and users without a type checker may err."""
    for name, hint in get_type_hints(type(config)).items():
        if hint is bool:
            if not isinstance(getattr(config, name), bool):
                raise ValueError(f"{name} must be true or false, not {getattr(config, name)!r}")
        elif get_origin(hint) is Literal:
            require_choice(getattr(config, name), get_args(hint), name)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, None's among them; another type alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _value(hint: Any, value: object, where: str) -> Any:
    """A value of a field: a nested dataclass, a tuple (JSON has lists), or as it is."""
    if len(kinds := alternatives(hint)) > 1:
        if value is None:
            return None
        (hint,) = (kind for kind in kinds if kind is not type(None))
    if is_dataclass(hint):
        return build(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        first = get_args(hint)[0]
        return tuple(_value(first, part, f"{where}[{i}]") for i, part in enumerate(value))
    return value
