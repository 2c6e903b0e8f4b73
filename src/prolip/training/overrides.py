"""Overrides of a training config: values by dotted key, such as {"optimizer.lr": 1e-3}."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, get_args, get_origin, get_type_hints

from prolip.configs import union_members
from prolip.training.config import Stage, TrainConfig

log = logging.getLogger("prolip.training")
SHORT_KEYS = {"device": "parallel.device", "workers": "data.workers", "threads": "parallel.threads"}
"""Keys of the machine, by their short name."""


def apply_overrides(
    config: TrainConfig, values: Mapping[str, object], other_keys: Sequence[str] = ()
) -> TrainConfig:
    """Change keys of a config, all at once. Initial stages follow, see `apply_to_stages`.

    Args:
        config: The config of the recipe.
        values: New values by dotted key ("optimizer.lr", "initial_stages.0.samples", the short "device"). Mappings and
            dataclasses may be nested ({"optimizer": {"lr": 1e-3}}). A path may stand for a string, and one string or
            a list for a tuple.
        other_keys: Keys besides those of the config that messages may suggest: the parameters of a recipe.

    Returns:
        The changed config.

    Raises:
        ValueError: A key doesn't exist (the message suggests similar ones), or a value is impossible.
    """
    hints = list_keys(config)
    content: Any = config.to_dict()
    for name, value in _flatten(values):
        key = SHORT_KEYS.get(name, name)
        if key not in hints:
            raise make_unknown_key_error(name, [*other_keys, *hints])
        *sections, last = key.split(".")
        section = content
        for part in sections:
            section = section[int(part)] if part.isdecimal() else section[part]
        section[last] = _convert_value(value, hints[key])
    return apply_to_stages(config, TrainConfig.from_dict(content), list_set_keys(values))


def apply_to_stages(before: TrainConfig, after: TrainConfig, keys: Collection[str]) -> TrainConfig:
    """Let the initial stages follow the data and the objective that a user has set for the run.

    Data: if `data.source` changed, every stage reads it, unless the user set the stage's own source. Objective: a
    changed value reaches every stage that had the recipe's value of the run; a stage with a value of its own keeps it,
    and a warning says so. Another says that a mask ratio has no effect.

    Args:
        before: The config of the recipe.
        after: The same with the user's changes.
        keys: The keys that the user has set.

    Returns:
        `after` with other initial stages.
    """
    stages = tuple(_follow_run(before, after, number, keys) for number in range(len(after.initial_stages)))
    after = replace(after, initial_stages=stages)
    for message in (*_describe_partial_reach(before, after, keys), *_describe_unused_masking(after, keys)):
        if os.environ.get("LOCAL_RANK", "0") == "0":
            log.warning("%s", message)
    return after


def _follow_run(before: TrainConfig, after: TrainConfig, number: int, keys: Collection[str]) -> Stage:
    """The initial stage with this number (from 0), with the data and the objective that it takes from the run."""
    stage, prefix = after.initial_stages[number], f"initial_stages.{number}"
    old = before.initial_stages[number].objective
    followed = {
        name: getattr(after.objective, name)
        for name in _list_changed_terms(before, after)
        if f"{prefix}.objective.{name}" not in keys and getattr(old, name) == getattr(before.objective, name)
    }
    follows_data = after.data.source != before.data.source and f"{prefix}.source" not in keys
    source = () if follows_data else stage.source
    return replace(stage, objective=replace(stage.objective, **followed), source=source)


def _list_changed_terms(before: TrainConfig, after: TrainConfig) -> list[str]:
    """Names of the fields of the run's objective that the user has changed."""
    names = (field.name for field in fields(after.objective))
    return [name for name in names if getattr(after.objective, name) != getattr(before.objective, name)]


def _describe_partial_reach(before: TrainConfig, after: TrainConfig, keys: Collection[str]) -> Iterator[str]:
    """A message for each change of the objective that doesn't reach some stages, unless the user set theirs."""
    for name in _list_changed_terms(before, after):
        value = getattr(after.objective, name)
        others = [
            number
            for number, stage in enumerate(after.initial_stages)
            if getattr(stage.objective, name) != value
            and f"initial_stages.{number}.objective.{name}" not in keys
        ]
        if others:
            listed = ", ".join(
                f"{number + 1} ({getattr(after.initial_stages[number].objective, name)})" for number in others
            )
            yield (
                f"objective.{name} {value} doesn't reach the stages that have a value of their own: stage {listed} of "
                f"{len(after.stages)}. To change the first of them: --initial-stages.{others[0]}.objective.{name}"
            )


def _describe_unused_masking(config: TrainConfig, keys: Collection[str]) -> Iterator[str]:
    """A message for each mask ratio that the user has set, and that nothing in the run reads."""
    masking = config.masking
    reasons = {"patch_mask_ratio": "", "token_mask_ratio": ""}
    if not masking.image_fraction:
        reasons["patch_mask_ratio"] = "masking.image_fraction is 0"
    if not masking.text_fraction:
        reasons["token_mask_ratio"] = "masking.text_fraction is 0"
    elif masking.method == "general":
        reasons["token_mask_ratio"] = (
            "masking.method is general, whose views are other captions; set --masking.method mask, drop or crop"
        )
    if not any(stage.objective.masked for stage in config.stages):
        reasons = dict.fromkeys(reasons, "objective.masked is 0")
    for name, reason in reasons.items():
        if reason and f"masking.{name}" in keys:
            yield f"masking.{name} has no effect: {reason}"


def list_set_keys(values: Mapping[str, object]) -> list[str]:
    """List the keys that changes of a config set.

    Args:
        values: As for `apply_overrides`.

    Returns:
        Dotted keys, in full ("parallel.device" for "device").
    """
    return [SHORT_KEYS.get(name, name) for name, _ in _flatten(values)]


def list_keys(config: TrainConfig) -> dict[str, Any]:
    """Every key of a config, with its type.

    Args:
        config: The config; the keys of its initial stages have their number.

    Returns:
        Type hints by key: {"optimizer.lr": float, "initial_stages.0.samples": int, ...}.
    """
    return dict(_iter_keys(config, ""))


def find_similar_keys(key: str, known_keys: Sequence[str]) -> list[str]:
    """Find keys with a similar spelling, with the same last part, or in the same section with all of its words.

    Args:
        key: As the user wrote it.
        known_keys: All keys.

    Returns:
        The one that was surely meant, or at most three, the most similar first.
    """
    if close := get_close_matches(key, known_keys, n=1, cutoff=0.85):
        return close
    section, _, last = key.rpartition(".")
    words = {section, *re.split("[_-]", last)} - {""}
    # masking.ratio, mask-ratio: masking.patch_mask_ratio and masking.token_mask_ratio, not masking.text_fraction
    if len(words) > 1 and (named := [name for name in known_keys if words <= set(re.split("[._]", name))]):
        return named[:3]
    similar = [
        *get_close_matches(key, known_keys, n=3),
        *(name for name in known_keys if name.rpartition(".")[2] == last),
        *(name for name in known_keys if name.startswith(f"{key}.")),
    ]
    return list(dict.fromkeys(similar))[:3]


def make_unknown_key_error(key: str, known_keys: Sequence[str]) -> ValueError:
    """Make an error that suggests similar keys.

    Args:
        key: As the user wrote it.
        known_keys: All keys.

    Returns:
        The error, for the caller to raise.
    """
    if is_missing_stage(key, known_keys):
        return ValueError(
            f"there is no key {key!r}: this recipe has no initial stages; stages are added in a recipe file"
        )
    similar = find_similar_keys(key, known_keys)
    hint = (
        f"did you mean {' or '.join(map(repr, similar))}?"
        if similar
        else "docs/training.md describes the keys"
    )
    return ValueError(f"there is no key {key!r}; {hint}")


def is_missing_stage(key: str, known_keys: Sequence[str]) -> bool:
    """Whether a key belongs to an initial stage, while a config has none.

    Args:
        key: As the user wrote it.
        known_keys: All keys of the config.
    """
    return key.startswith("initial_stages") and not any(
        name.startswith("initial_stages.") for name in known_keys
    )


def takes_several_values(hint: Any) -> bool:
    """Whether a key with this type hint takes several values: a tuple, or a tuple or None.

    Args:
        hint: A type hint of `list_keys`.
    """
    return any(get_origin(kind) is tuple for kind in union_members(hint))


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


def _flatten(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys and values of nested mappings and dataclasses."""
    for name, value in values.items():
        if is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _convert_value(value: object, hint: Any) -> object:
    """A value as its key's type hint wants it: paths as strings, one value as a tuple, whole numbers as floats."""
    if isinstance(value, PathLike):
        value = fspath(value)
    tuple_hint = next((kind for kind in union_members(hint) if get_origin(kind) is tuple), None)
    if tuple_hint is not None and value is not None:
        elements = value if isinstance(value, list | tuple) else (value,)
        return tuple(_convert_value(element, get_args(tuple_hint)[0]) for element in elements)
    if type(value) is int and float in union_members(hint):
        return float(value)
    return value
