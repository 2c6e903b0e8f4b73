"""Config dataclasses: functions that take one or its fields, building them from JSON, checking their fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from prolip.checks import require_choice

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
D = TypeVar("D")
ConfigT = TypeVar("ConfigT")
ResultT = TypeVar("ResultT")
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)
Config_contra = TypeVar("Config_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
FieldsP = ParamSpec("FieldsP")

ADVANCED = "advanced"
Advanced = Annotated[T, ADVANCED]
"""Type of a config's field that is rarely set: `--help` omits it, `--help-all` shows it."""


class OneArgument(Protocol[A_contra, Config_contra, FieldsP, Result_co]):
    """A function of one argument and a config, or the config's fields as keywords."""

    @overload
    def __call__(self, first: A_contra, /, config: Config_contra) -> Result_co: ...

    @overload
    def __call__(self, first: A_contra, /, *_: FieldsP.args, **fields: FieldsP.kwargs) -> Result_co: ...


class TwoArguments(Protocol[A_contra, B_contra, Config_contra, FieldsP, Result_co]):
    """A function of two arguments and a config, or the config's fields as keywords."""

    @overload
    def __call__(self, first: A_contra, second: B_contra, /, config: Config_contra) -> Result_co: ...

    @overload
    def __call__(
        self, first: A_contra, second: B_contra, /, *_: FieldsP.args, **fields: FieldsP.kwargs
    ) -> Result_co: ...


class ThreeArguments(Protocol[A_contra, B_contra, D_contra, Config_contra, FieldsP, Result_co]):
    """A function of three arguments and a config, or the config's fields as keywords."""

    @overload
    def __call__(
        self, first: A_contra, second: B_contra, third: D_contra, /, config: Config_contra
    ) -> Result_co: ...

    @overload
    def __call__(
        self,
        first: A_contra,
        second: B_contra,
        third: D_contra,
        /,
        *_: FieldsP.args,
        **fields: FieldsP.kwargs,
    ) -> Result_co: ...


class takes_config(Generic[ConfigT, FieldsP]):  # noqa: N801 (a decorator)
    """Let a function take a config, or its fields as keywords: `embed(model, data, out, batch_size=8)`.

    The function has one to three arguments, then `config`. Type checkers see the fields with their types, since the
    keywords are those of the config's constructor; nothing is declared twice.

        @takes_config(EmbedConfig)
        def embed(model: str, data: str, out: str, config: EmbedConfig) -> EmbeddingDataset: ...
    """

    def __init__(self, config_class: Callable[FieldsP, ConfigT]) -> None:
        """Make the decorator.

        Args:
            config_class: A frozen, keyword-only dataclass.
        """
        self.config_class = config_class

    @overload
    def __call__(
        self, function: Callable[[A, ConfigT], ResultT]
    ) -> OneArgument[A, ConfigT, FieldsP, ResultT]: ...

    @overload
    def __call__(
        self, function: Callable[[A, B, ConfigT], ResultT]
    ) -> TwoArguments[A, B, ConfigT, FieldsP, ResultT]: ...

    @overload
    def __call__(
        self, function: Callable[[A, B, D, ConfigT], ResultT]
    ) -> ThreeArguments[A, B, D, ConfigT, FieldsP, ResultT]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function.

        Args:
            function: Takes the config as its last argument.

        Returns:
            A function that raises TypeError for an unknown field, and for a config together with fields.
        """
        name = function.__qualname__.split(".")[-2] if function.__name__ == "__init__" else function.__name__
        signature = inspect.signature(function)
        leading = [parameter for key, parameter in signature.parameters.items() if key != "config"]
        names = [parameter.name for parameter in leading]
        config_class: Any = self.config_class

        @functools.wraps(function)
        def call(*arguments: Any, config: Any = None, **values: Any) -> Any:
            if len(arguments) > len(names):
                if config is not None:
                    raise TypeError(f"{name}() got two configs: pass one")
                *arguments, config = arguments  # type: ignore[assignment]
            leading_values = {key: values.pop(key) for key in names if key in values}
            if config is None:
                require_fields(config_class, values, f"{name}()")
                config = config_class(**values)
            elif values:
                raise TypeError(f"{name}(): pass a config or its fields ({', '.join(values)}), not both")
            elif not isinstance(config, config_class):
                raise TypeError(
                    f"{name}(): config must be {config_class.__name__}, not {type(config).__name__}"
                )
            return function(*arguments, **leading_values, config=config)

        # what help() and completion show
        shown = [*leading, *inspect.signature(config_class).parameters.values()]
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return call

    @overload
    def constructor(
        self, init: Callable[[A, B, ConfigT], None]
    ) -> Callable[Concatenate[A, B, FieldsP], None]: ...

    @overload
    def constructor(
        self, init: Callable[[A, B, D, ConfigT], None]
    ) -> Callable[Concatenate[A, B, D, FieldsP], None]: ...

    def constructor(self, init: Callable[..., None]) -> Callable[..., None]:
        """Wrap an `__init__` of self, one or two arguments, and the config: `Loader(source, preprocessor, seed=1)`.

        A config works too, but type checkers see the fields only: they can't bind `self` of an overloaded protocol.

        Args:
            init: Takes the config as its last argument.

        Returns:
            As for functions.
        """
        return self(init)  # type: ignore[no-any-return]


def require_fields(config_class: type, names: Iterable[str], where: str) -> None:
    """Raise TypeError if a name is not a field of a config; the message names the nearest field.

    Args:
        config_class: The dataclass.
        names: Names that a user passed.
        where: Start of the message, such as "embed()".
    """
    known = [field.name for field in fields(config_class)]
    for name in names:
        if name not in known:
            hint = suggest(name, known) or f"the options are {', '.join(known)}"
            raise TypeError(f"{where} has no option {name!r}: {hint}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggest what a misspelt name may mean.

    Args:
        name: What the user wrote.
        known: Valid names.

    Returns:
        "did you mean a or b?"; "" if no name is similar.
    """
    known_by_word = {other.strip("-"): other for other in known}
    word = name.strip("-")
    near = get_close_matches(word, known_by_word, n=1, cutoff=0.7)
    if not near and len(word) > 3:
        near = [other for other in known_by_word if word in other][:2]  # --bad-fraction: --max-bad-fraction
    return f"did you mean {' or '.join(known_by_word[other] for other in near)}?" if near else ""


def build_dataclass(cls: type, values: object, name: str) -> Any:
    """Build a dataclass from nested mappings: the inverse of `dataclasses.asdict`.

    Args:
        cls: The dataclass.
        values: A mapping of its fields; lists become tuples.
        name: Name of the config, for messages: "config" gives "config.image.patch_size".

    Returns:
        An instance of `cls`.

    Raises:
        ValueError: A key is unknown or missing, or a value is invalid; the message names it.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be an object with named values, not {type(values).__name__}")
    hints = get_type_hints(cls)
    field_names = {field.name for field in fields(cls)}
    unknown_keys = sorted(set(values) - field_names)
    if unknown_keys:
        raise ValueError(f"{name} has unknown keys {unknown_keys}; the known ones are {sorted(field_names)}")
    arguments = {key: _build_value(hints[key], value, f"{name}.{key}") for key, value in values.items()}
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def require_literals(config: Any) -> None:
    """Raise ValueError if a field whose type is bool, a Literal, or a tuple of Literals, or None, holds another value.

    Args:
        config: A dataclass instance.
    """
    for name, hint in _get_field_hints(config):
        value, members = getattr(config, name), union_members(hint)
        if hint is bool and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")
        if value is None and NoneType in members:
            continue
        for member in members:
            if get_origin(member) is Literal:
                require_choice(value, get_args(member), name)
            elif get_origin(member) is tuple and get_origin(choice := get_args(member)[0]) is Literal:
                for element in value:
                    require_choice(element, get_args(choice), name)


def make_tuples(config: Any) -> None:
    """Turn lists in fields that hold tuples into tuples, in place: for `__post_init__` of a frozen config.

    Args:
        config: A dataclass instance.
    """
    for name, hint in _get_field_hints(config):
        value = getattr(config, name)
        if isinstance(value, list) and any(get_origin(member) is tuple for member in union_members(hint)):
            object.__setattr__(config, name, tuple(value))


def require_field_types(config: Any) -> None:
    """Raise ValueError if a field of a dataclass holds a value of another type.

    JSON files and recipes are not seen by a type checker. Types of fields: str, int, float, bool, None, Literal,
    dataclasses, tuples of these, dicts with string keys, and unions.

    Args:
        config: A dataclass instance.
    """
    require_literals(config)
    for name, hint in _get_field_hints(config):
        value, members = getattr(config, name), union_members(hint)
        if any(_is_instance(value, member) for member in members):
            continue
        advice = f": write ({value!r},)" if isinstance(value, str) and tuple[str, ...] in members else ""
        raise ValueError(f"{name} must be {' or '.join(map(_describe_hint, members))}, not {value!r}{advice}")


def _get_field_hints(config: Any) -> list[tuple[str, Any]]:
    """Name and type hint of each field of a dataclass instance; class variables are no fields."""
    hints = get_type_hints(type(config))
    return [(field.name, hints[field.name]) for field in fields(config)]


def union_members(hint: Any) -> tuple[Any, ...]:
    """List the member types of a union; a hint that is no union is its only member.

    Args:
        hint: A type hint.

    Returns:
        The member types; `NoneType` is one of them for an optional value.
    """
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _build_value(hint: Any, value: object, name: str) -> Any:
    """Convert a JSON value to the type of its field: nested dataclass, tuple (JSON has lists), or the value itself.

    `name` is the path of the field for messages, such as "config.image.patch_size". Raises ValueError for the values of
    a nested dataclass, as `build_dataclass`; others are not checked.
    """
    if len(members := union_members(hint)) > 1:
        if value is None:
            return None
        hint = _choose_member(members, value)
    if is_dataclass(hint):
        return build_dataclass(hint, value, name)  # type: ignore[arg-type]
    if get_origin(hint) is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        element_hint = get_args(hint)[0]
        return tuple(_build_value(element_hint, element, f"{name}[{i}]") for i, element in enumerate(value))
    if get_origin(hint) is dict and isinstance(value, Mapping):
        value_hint = get_args(hint)[1]
        return {key: _build_value(value_hint, member, f"{name}.{key}") for key, member in value.items()}
    return value


def _choose_member(members: Sequence[Any], value: object) -> Any:
    """The member of a union that a JSON value is for: of several dataclasses, the first with all of its keys.

    Args:
        members: The member types: at most one beside None, or dataclasses.
        value: The value, not None.
    """
    members = [member for member in members if member is not NoneType]
    if len(members) > 1 and isinstance(value, Mapping):
        fitting = (m for m in members if value.keys() <= {field.name for field in fields(m)})
        return next(fitting, members[0])
    return members[0]


def _is_instance(value: object, hint: Any) -> bool:
    """Whether a value has the type of a hint that is no union. An int is a float, but a bool is neither."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        element_hint = get_args(hint)[0]
        return isinstance(value, tuple) and all(_is_member(element, element_hint) for element in value)
    if get_origin(hint) is dict:
        value_hint = get_args(hint)[1]
        return isinstance(value, Mapping) and all(_is_member(member, value_hint) for member in value.values())
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _is_member(value: object, hint: Any) -> bool:
    """Whether a value has the type of a hint that may be a union."""
    return any(_is_instance(value, member) for member in union_members(hint))


def _describe_hint(hint: Any) -> str:
    """Name a type for messages: "a whole number", "a tuple of strings"."""
    if get_origin(hint) is tuple:
        elements = " or ".join(map(_describe_hint, union_members(get_args(hint)[0])))
        return f"a tuple of {elements.removeprefix('a ')}s"
    if get_origin(hint) is dict:
        return "an object with named values"
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    names = {
        str: "a string",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        NoneType: "None",
    }
    return names.get(hint) or f"a {hint.__name__}"
