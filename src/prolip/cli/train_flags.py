"""Flags of `prolip train`, made by tyro from a recipe's parameters and the config that it makes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, make_dataclass
from inspect import Parameter, Signature
from types import NoneType
from typing import Annotated, Any

import tyro
from tyro.conf import arg

from prolip.cli.parser import SYNONYMS, iter_options
from prolip.configs import union_members
from prolip.training.config import TrainConfig
from prolip.training.overrides import (
    SHORT_KEYS,
    apply_to_stages,
    find_similar_keys,
    is_missing_stage,
    list_keys,
    takes_several_values,
)
from prolip.training.recipes import Recipe

COMMON_KEYS = (
    "out", "seed", "samples", "batch_size", "data.source", "workers", "model.size", "model.pretrained",
    "model.tokenizer", "model.lora_rank", "optimizer.lr", "optimizer.warmup_steps", "device", "threads",
    "parallel.precision", "parallel.accumulation_steps", "held_out.source", "held_out.reference", "log.display",
)  # fmt: skip
"""What most people set: the keys that --help shows."""
KEY_VALUE = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
"""key=value. "scenes:simple,size=48" and an address with a query don't match: they are values."""


def parse_flags(recipe: Recipe, words: Sequence[str]) -> TrainConfig:
    """Make the config of a run from the flags of the command line. Later flags win.

    Args:
        recipe: The recipe.
        words: The words after its name, without --resume.

    Returns:
        The config.

    Raises:
        ValueError: A flag doesn't exist (the message suggests similar ones), or a word is no flag.
        SystemExit: 2, after tyro's message, for a value that can't be parsed or is impossible.
    """
    config, rest = _parse_parameters(recipe, words)
    prog = f"prolip train {recipe.name}"
    flags = _spell_for_tyro(rest, _list_hints(recipe, config), prog)
    changed = tyro.cli(TrainConfig, default=config, args=flags, prog=prog, add_help=False)
    keys = _list_keys_of_flags(flags)
    return recipe.finish_config(apply_to_stages(config, changed, keys), keys)


def _list_keys_of_flags(flags: Sequence[str]) -> frozenset[str]:
    """The keys that flags for tyro set: optimizer.lr for --optimizer.lr=1e-3, data.augment for --data.no-augment."""
    names = (flag.partition("=")[0].removeprefix("--") for flag in flags if flag.startswith("--"))
    sections = (name.replace("-", "_").rpartition(".") for name in names)
    return frozenset(
        f"{section}{dot}{name}"
        for section, dot, last in sections
        for name in {last, last.removeprefix("no_")}
    )


def print_help(recipe: Recipe, words: Sequence[str], *, is_complete: bool) -> None:
    """Print the description of a recipe and its flags with their defaults.

    Args:
        recipe: The recipe.
        words: The words after its name, without --help. Parameters of the recipe change the defaults that are shown.
        is_complete: Show every flag, not only those that most people set.
    """
    config, _ = _parse_parameters(recipe, words)
    prog = f"prolip train {recipe.name}"
    print(f"{recipe.doc}\n")
    if is_complete:
        _print_tyro_help(_make_view(recipe, config, ()), prog)
        print("\nThe options of every run, with the values of this recipe:\n")
        _print_tyro_help(TrainConfig, prog, default=config)
    else:
        _print_tyro_help(_make_view(recipe, config, COMMON_KEYS), prog)
        print(f"All options: {prog} --help-all")


def _parse_parameters(recipe: Recipe, words: Sequence[str]) -> tuple[TrainConfig, list[str]]:
    """The config for the values of the recipe's own parameters among some words, and all other words."""
    capture, prog = _capture_arguments(recipe), f"prolip train {recipe.name}"
    values, rest = tyro.cli(capture, args=words, prog=prog, add_help=False, return_unknown_args=True)
    return recipe.make_config(values), rest


def _capture_arguments(recipe: Recipe) -> Callable[..., dict[str, object]]:
    """A function with the parameters and the docstring of a recipe's function that returns its arguments."""

    def capture(**values: object) -> dict[str, object]:
        return values

    capture.__doc__ = recipe.make.__doc__
    capture.__annotations__ = {name: kind for name, (kind, _) in recipe.parameters.items()}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in recipe.parameters.items()
    ]
    capture.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return capture


def _list_hints(recipe: Recipe, config: TrainConfig) -> dict[str, Any]:
    """Type hints of every key that has a flag: the recipe's parameters, short keys, and those of the config."""
    hints = list_keys(config)
    short_hints = {name: hints[key] for name, key in SHORT_KEYS.items()}
    return short_hints | hints | {name: kind for name, (kind, _) in recipe.parameters.items()}


def _spell_for_tyro(words: Sequence[str], hints: Mapping[str, Any], prog: str) -> list[str]:
    """Check flags, and spell those out that tyro doesn't know: short ones, and those of a boolean that may be None.

    Args:
        words: Flags and their values, without those of the recipe's parameters.
        hints: Type hints by key.
        prog: The command, for messages.

    Raises:
        ValueError: A flag is unknown, or a word belongs to no flag.
    """
    spelled: list[str] = []
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if not word.startswith("--"):
            raise _make_word_error(word + equals + value, hints, prog)
        key, is_negated = _find_key(word, hints, prog)
        values = [value] if equals else _pop_values(rest, hints, key, prog)
        _require_no_value_of_boolean(key, values or rest[:1], hints)
        if hints[key] == bool | None:
            values = values or [str(not is_negated)]
            word = f"--{key}"
        elif key in SHORT_KEYS:
            word = f"--{SHORT_KEYS[key]}"
        spelled += [f"{word}={values[0]}"] if equals else [word, *values]
    return spelled


def _require_no_value_of_boolean(key: str, words: Sequence[str], hints: Mapping[str, Any]) -> None:
    """Raise a ValueError if the flag of a boolean has true or false after it; the message has the right spelling."""
    if hints[key] is bool and words and words[0].lower() in ("true", "false"):
        raise ValueError(f"--{key} takes no value: write {_format_flag(key, words[0], bool)}")


def _find_key(flag: str, hints: Mapping[str, Any], prog: str) -> tuple[str, bool]:
    """The key of a flag, and whether the flag negates it (--data.no-augment)."""
    key = flag.removeprefix("--").replace("-", "_")
    if key in hints:
        return key, False
    section, dot, name = key.rpartition(".")
    positive_key = section + dot + name.removeprefix("no_")
    if positive_key != key and bool in union_members(hints.get(positive_key)):
        return positive_key, True
    raise ValueError(f"no option {flag} of {prog}: {_suggest(key, '', hints, prog)}")


def _pop_values(words: list[str], hints: Mapping[str, Any], key: str, prog: str) -> list[str]:
    """Remove the values of a key from the front of `words`, which is changed, and return them.

    Raises:
        ValueError: One of several values is key=value with the key of a flag.
    """
    hint = hints[key]
    max_values = len(words) if takes_several_values(hint) else int(hint is not bool)
    values: list[str] = []
    while words and len(values) < max_values and not words[0].startswith("--"):
        if hint == bool | None and words[0] not in ("True", "False", "None"):
            break
        match = KEY_VALUE.fullmatch(words[0])
        if match and takes_several_values(hint) and match[1].replace("-", "_") in hints:
            raise _make_word_error(words[0], hints, prog)
        values.append(words.pop(0))
    return values


def _make_word_error(word: str, hints: Mapping[str, Any], prog: str) -> ValueError:
    """Make the error for a word that is neither a flag nor the value of one; for key=value it names the flag."""
    match = KEY_VALUE.fullmatch(word)
    if not match:
        return ValueError(f"{word!r} belongs to no option: write --option value")
    key, value = match[1].replace("-", "_"), match[2]
    if key not in hints:
        return ValueError(f"{word}: options are flags; {_suggest(key, value, hints, prog)}")
    return ValueError(f"{word}: options are flags; write {_format_flag(key, value, hints[key])}")


def _suggest(key: str, value: str, hints: Mapping[str, Any], prog: str) -> str:
    """The end of a message about a key that doesn't exist: similar flags, with a value if there is one."""
    if is_missing_stage(key, list(hints)):
        return "this recipe has no initial stages; stages are added in a recipe file"
    synonym = SYNONYMS.get(key.replace("_", "-"), "")
    if synonym == "samples":  # without the value, which is a number of something else
        return "did you mean --samples? The length of a run is counted in samples"
    names = [synonym] if synonym in hints else find_similar_keys(key, list(hints))
    similar = [_format_flag(name, value, hints[name]) for name in names]
    return f"did you mean {' or '.join(similar)}?" if similar else f"{prog} --help-all lists the options"


def _format_flag(key: str, value: str, hint: Any) -> str:
    """The words that set a key to a value; without a value the flag alone."""
    section, dot, name = key.replace("_", "-").rpartition(".")
    if bool in union_members(hint) and value.lower() in ("", "true", "false"):
        return f"--{section}{dot}{'no-' if value.lower() == 'false' else ''}{name}"
    if not takes_several_values(hint) or value.startswith("pipe:"):
        value = shlex.quote(value) if value else ""
    return f"--{section}{dot}{name} {value}".rstrip()


def _make_view(recipe: Recipe, config: TrainConfig, keys: Sequence[str]) -> type:
    """Make a dataclass whose help shows --resume, some keys of a config, and the recipe's parameters."""
    resume = Annotated[
        bool, arg(help="Continue from the last checkpoint in the run folder.", help_behavior_hint="")
    ]
    view: list[tuple[str, Any, Any]] = [
        ("resume", Annotated[resume, tyro.conf.FlagCreatePairsOff], field(default=False))
    ]
    if recipe.is_run:
        text = "Run the commands (pipe:...) in the config of this run, which others wrote."
        trust = Annotated[bool, arg(help=text, help_behavior_hint=""), tyro.conf.FlagCreatePairsOff]
        view.append(("trust_pipe", trust, field(default=False)))
    for key in keys:
        if key not in recipe.parameters:
            hint, value, text = _look_up(config, SHORT_KEYS.get(key, key))
            default_text = "" if value is None else None  # the help text says what None means
            settings = arg(name=key, help=text, metavar=_get_metavar(hint), help_behavior_hint=default_text)
            view.append((key.replace(".", "_"), Annotated[hint, settings], field(default=value)))
    if recipe.parameters:
        parameters = Annotated[Any, arg(name=recipe.name, constructor=_capture_arguments(recipe))]
        view.append(("recipe", Annotated[parameters, tyro.conf.OmitArgPrefixes], field()))
    return make_dataclass("View", view, kw_only=True)


def _look_up(config: TrainConfig, key: str) -> tuple[Any, Any, str]:
    """Type hint, value and help text of a key."""
    section: Any = config
    *parents, name = key.split(".")
    for parent in parents:
        section = getattr(section, parent)
    option = next(option for option in iter_options(type(section)) if option.name == name)
    return option.hint, getattr(section, name), option.help


def _get_metavar(hint: Any) -> str | None:
    """The placeholder of an optional string or number without tyro's {None}; None for other types: tyro's."""
    kinds = [kind for kind in union_members(hint) if kind is not NoneType]
    return kinds[0].__name__.upper() if len(kinds) == 1 and kinds[0] in (str, int, float) else None


def _print_tyro_help(kind: Any, prog: str, **default: Any) -> None:
    """Let tyro print the help of a dataclass."""
    try:
        tyro.cli(kind, args=["--help"], prog=prog, description="", **default)
    except SystemExit:  # tyro exits after it has printed help
        return
