"""A config changed by words of the command line: key=value or --key value, where a key is a path into the config."""

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

NAMED = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
"""key=value. Not "scenes:simple,size=48" or an address with a query, which are values."""


def apply_overrides(config: TrainConfig, args: Sequence[str], prog: str = "prolip train") -> TrainConfig:
    """The config with these keys changed. Later words win.

    optimizer.lr=1e-3 and --optimizer.lr 1e-3 are the same. Of a key that takes several values, key=value is split at
    spaces, but not in quotes, nor after "pipe:", whose command has spaces of its own.
    """
    known = list_keys(config)
    words: list[str] = []
    for key, values in _pairs(args, known):
        words += [f"--{key}", *_spelt(known[key], values)]
    return _tyro(config, words, prog) if words else config


def print_keys(config: TrainConfig, prog: str) -> None:
    """Print every key with its meaning and its value in this config."""
    print("Each --key value below may also be written key=value; several values: key='a b'.\n")
    try:
        _tyro(config, ["--help"], prog)
    except SystemExit:  # tyro ends so after its help
        return


def list_keys(config: TrainConfig) -> dict[str, Any]:
    """Every key that can be set, with its type: {"optimizer.lr": float, "initial_stages.0.samples": int, ...}."""
    return dict(_keys(config, ""))


def take_keys(args: Sequence[str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The values of those arguments that have one of these names, and the other words as they are."""
    taken: dict[str, str] = {}
    rest: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        match = NAMED.fullmatch(word.removeprefix("--"))
        if match and match[1] in names:
            taken[match[1]] = match[2]
        elif word.startswith("--") and word[2:] in names:
            if not words:
                raise ValueError(f"{word} has no value: write {word[2:]}=...")
            taken[word[2:]] = words.pop(0)
        else:
            rest.append(word)
    return taken, rest


def make_unknown_key_error(key: str, known: Sequence[str]) -> ValueError:
    """The error that names the keys most like this one: of like spelling, or with the same last part."""
    if key.startswith("initial_stages.") and not any(name.startswith("initial_stages.") for name in known):
        return ValueError(
            f"there is no key {key!r}: stages are added in a recipe, and here those that are there change"
        )
    last = key.rpartition(".")[2]
    close = [*get_close_matches(key, known, n=3), *(name for name in known if name.split(".")[-1] == last)]
    hint = " or ".join(f"{name}=..." for name in list(dict.fromkeys(close))[:3])
    return ValueError(
        f"there is no key {key!r}; "
        + (f"did you mean {hint}?" if hint else "prolip train RECIPE --help lists them")
    )


def _tyro(config: TrainConfig, words: Sequence[str], prog: str) -> TrainConfig:
    return tyro.cli(
        TrainConfig, default=config, args=words, prog=prog, use_underscores=True,
        config=(tyro.conf.FlagConversionOff,),
    )  # fmt: skip


def _keys(part: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(type(part))
    for name in (field.name for field in fields(part)):
        value, key = getattr(part, name), prefix + name
        if is_dataclass(value):
            yield from _keys(value, f"{key}.")
        elif is_dataclass(next(iter(get_args(hints[name])), None)):  # stages: those that are there
            for number, stage in enumerate(value):
                yield from _keys(stage, f"{key}.{number}.")
        else:
            yield key, hints[name]


def _pairs(args: Sequence[str], known: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Each key with its values, in the order given."""
    words = list(args)
    while words:
        word = words.pop(0)
        match = NAMED.fullmatch(word.removeprefix("--"))
        if match:
            key = _known(match[1], known)
            yield key, _split(match[2]) if _takes_several(known[key]) else [match[2]]
        elif word.startswith("--"):
            key = _known(word[2:], known)
            most = None if _takes_several(known[key]) else 1
            yield key, _values(words, known, most)
        else:
            raise ValueError(f"{word!r} is neither key=value nor --key value")


def _values(words: list[str], known: Mapping[str, Any], most: int | None) -> list[str]:
    """Take from `words` what belongs to the key before them: up to the next key."""
    found: list[str] = []
    while words and len(found) != most and not words[0].startswith("--"):
        match = NAMED.fullmatch(words[0])
        if match and match[1].replace("-", "_") in known:
            break
        found.append(words.pop(0))
    return found


def _known(key: str, known: Mapping[str, Any]) -> str:
    spelt = key.replace("-", "_")
    if spelt not in known:
        raise make_unknown_key_error(key, list(known))
    return spelt


def _split(value: str) -> list[str]:
    if value.startswith("pipe:"):
        return [value]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{value!r} can't be split into values: {error}") from None


def _spelt(hint: Any, values: list[str]) -> list[str]:
    """As tyro wants them: True and False with a capital, and a switch alone is True."""
    if bool not in union_members(hint):
        return values
    return [value.capitalize() for value in values] or ["True"]


def _takes_several(hint: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in union_members(hint))
