"""Overrides of a training config from the command line: key=value or --key value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

import tyro

from prolip.configs import union_members
from prolip.training.config import TrainConfig

KEY_VALUE = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
"""key=value. "scenes:simple,size=48" and an address with a query don't match: they are values."""


def apply_overrides(config: TrainConfig, args: Sequence[str], prog: str = "prolip train") -> TrainConfig:
    """Change keys of a config. Later arguments win.

    optimizer.lr=1e-3 and --optimizer.lr 1e-3 are the same. If a key takes several values, key=value is split at spaces,
    but not inside quotes, and not after "pipe:", because the command after it may hold spaces.

    Args:
        config: The config of the recipe.
        args: Arguments of the command line.
        prog: The program's name in error messages.

    Returns:
        The changed config.

    Raises:
        ValueError: A key doesn't exist (the message suggests similar ones), or a value can't be parsed.
    """
    hints = list_keys(config)
    words: list[str] = []
    for key, values in _iter_assignments(args, hints):
        words += [f"--{key}", *_spell_for_tyro(hints[key], values)]
    return _parse_with_tyro(config, words, prog) if words else config


def print_keys(config: TrainConfig, prog: str) -> None:
    """Print every key with its meaning and its value in this config.

    Args:
        config: The config whose values are shown.
        prog: The program's name in the usage line.
    """
    print("Each --key value below may also be written key=value; several values: key='a b'.\n")
    try:
        _parse_with_tyro(config, ["--help"], prog)
    except SystemExit:  # tyro exits after it has printed help
        return


def list_keys(config: TrainConfig) -> dict[str, Any]:
    """Every key that can be set on the command line, with its type.

    Args:
        config: The config; the keys of its initial stages have their number.

    Returns:
        Type hints by key: {"optimizer.lr": float, "initial_stages.0.samples": int, ...}.
    """
    return dict(_iter_keys(config, ""))


def take_keys(args: Sequence[str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split arguments of the command line into the values of some keys and all other arguments. Later values win.

    Args:
        args: Arguments of the command line.
        names: Keys to take out.

    Returns:
        The values of these keys, and all other arguments unchanged.

    Raises:
        ValueError: `--key` with one of the names is the last word, so it has no value.
    """
    taken: dict[str, str] = {}
    rest: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        match = KEY_VALUE.fullmatch(word.removeprefix("--"))
        if match and match[1] in names:
            taken[match[1]] = match[2]
        elif word.startswith("--") and word[2:] in names:
            if not words:
                raise ValueError(f"{word} has no value: write {word[2:]}=VALUE")
            taken[word[2:]] = words.pop(0)
        else:
            rest.append(word)
    return taken, rest


def make_unknown_key_error(key: str, known_keys: Sequence[str]) -> ValueError:
    """Make an error that suggests keys with a similar spelling or the same last part.

    Args:
        key: As the user wrote it.
        known_keys: All keys of the config.

    Returns:
        The error, for the caller to raise.
    """
    if key.startswith("initial_stages.") and not any(
        name.startswith("initial_stages.") for name in known_keys
    ):
        return ValueError(
            f"there is no key {key!r}: this recipe has no initial stages; stages are added in a recipe file"
        )
    last = key.rpartition(".")[2]
    similar = [
        *get_close_matches(key, known_keys, n=3),
        *(name for name in known_keys if name.split(".")[-1] == last),
    ]
    hint = " or ".join(f"{name}=..." for name in list(dict.fromkeys(similar))[:3])
    return ValueError(
        f"there is no key {key!r}; "
        + (f"did you mean {hint}?" if hint else "`prolip train RECIPE --help` lists them")
    )


def _parse_with_tyro(config: TrainConfig, words: Sequence[str], prog: str) -> TrainConfig:
    """Change a config by `--key value` words that tyro understands.

    `prog`: the program's name in messages. Raises SystemExit, after tyro has printed, for --help or a bad value.
    """
    return tyro.cli(
        TrainConfig, default=config, args=words, prog=prog, use_underscores=True,
        config=(tyro.conf.FlagConversionOff,),
    )  # fmt: skip


def _iter_keys(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys, after a prefix, and type hints of all fields of a config dataclass and those nested in it."""
    hints = get_type_hints(type(config))
    for name in (field.name for field in fields(config)):
        value, key = getattr(config, name), prefix + name
        if is_dataclass(value):
            yield from _iter_keys(value, f"{key}.")
        elif is_dataclass(next(iter(get_args(hints[name])), None)):  # a tuple of stages
            for number, stage in enumerate(value):
                yield from _iter_keys(stage, f"{key}.{number}.")
        else:
            yield key, hints[name]


def _iter_assignments(args: Sequence[str], hints: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Parse key=value and --key value, in the order given.

    Args:
        args: Words of the command line.
        hints: Type hints of all keys, from `list_keys`.

    Yields:
        Each key, with underscores for hyphens, and its values.

    Raises:
        ValueError: A key is unknown, or a word belongs to no key.
    """
    words = list(args)
    while words:
        word = words.pop(0)
        match = KEY_VALUE.fullmatch(word.removeprefix("--"))
        if match:
            key = _normalize_key(match[1], hints)
            yield key, _split_values(match[2]) if _takes_several_values(hints[key]) else [match[2]]
        elif word.startswith("--"):
            key = _normalize_key(word[2:], hints)
            max_values = None if _takes_several_values(hints[key]) else 1
            yield key, _pop_values(words, hints, max_values)
        else:
            raise ValueError(f"{word!r} belongs to no key: write key=value or --key value")


def _pop_values(words: list[str], hints: Mapping[str, Any], max_values: int | None) -> list[str]:
    """Remove the values of the current key from the front of `words`, which is changed, and return them.

    They end before the next key, or after `max_values` (None: any number). The keys of `hints` are known as keys.
    """
    values: list[str] = []
    while words and len(values) != max_values and not words[0].startswith("--"):
        match = KEY_VALUE.fullmatch(words[0])
        if match and match[1].replace("-", "_") in hints:
            break
        values.append(words.pop(0))
    return values


def _normalize_key(key: str, hints: Mapping[str, Any]) -> str:
    """The key with underscores for hyphens; a ValueError with suggestions if it is not a key of `hints`."""
    normalized = key.replace("-", "_")
    if normalized not in hints:
        raise make_unknown_key_error(key, list(hints))
    return normalized


def _split_values(value: str) -> list[str]:
    """Split the text after key= into several values, at spaces outside of quotes; a "pipe:" command is one value.

    Raises:
        ValueError: A quote is not closed.
    """
    if value.startswith("pipe:"):
        return [value]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{value!r} can't be split into values: {error}") from None


def _spell_for_tyro(hint: Any, values: list[str]) -> list[str]:
    """The values as tyro expects them: booleans as True and False. A boolean key without a value is True.

    `hint`: the type hint of the key.
    """
    if bool not in union_members(hint):
        return values
    return [value.capitalize() for value in values] or ["True"]


def _takes_several_values(hint: Any) -> bool:
    """Whether a key with this type hint takes several values: a tuple, or a tuple or None."""
    return any(get_origin(kind) is tuple for kind in union_members(hint))
