"""How the tensors of a foreign file become ours and back: a list of rules that must account for every tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.checks import some


@dataclass(frozen=True)
class Rule:
    """One of our tensors, the foreign ones it is made of, and how."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[..., Tensor]
    write: Callable[[Tensor], Tensor] | None = None
    """The way back, for rules of a format that is written, too."""


@dataclass(frozen=True)
class Account:
    """What became of every tensor: ours that were loaded, resized or made new; what was left over, with the reason."""

    loaded: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


def same(ours: str, theirs: str) -> Rule:
    return Rule(ours, (theirs,), lambda t: t, lambda t: t)


def transposed(ours: str, theirs: str) -> Rule:
    """Theirs multiplies from the right: x @ weight."""
    return Rule(ours, (theirs,), lambda t: t.mT.contiguous(), lambda t: t.mT.contiguous())


def convolution(ours: str, theirs: str, patch_size: int) -> Rule:
    """Theirs is a convolution (W, 3, p, p) whose windows don't overlap; ours a linear map (W, 3 p p) of patches."""
    p = patch_size
    return Rule(ours, (theirs,), lambda t: t.flatten(1), lambda t: t.unflatten(1, (3, p, p)))


def reshaped(ours: str, theirs: str, *shape: int) -> Rule:
    """The same numbers with other axes, such as without a leading axis of one."""
    return Rule(ours, (theirs,), lambda t: t.reshape(shape))


def stacked(ours: str, *theirs: str) -> Rule:
    """Ours is theirs one below the other: q, k, v."""
    return Rule(ours, theirs, lambda *t: torch.cat(t))


def layer(ours: str, theirs: str) -> list[Rule]:
    """Weight and bias of a linear map or a norm."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias")]


def read(
    rules: Sequence[Rule], tensors: Mapping[str, Tensor], ignored: Mapping[str, str], source: object
) -> tuple[dict[str, Tensor], Account]:
    """Our tensors, and the account. A tensor that is missing, or that no rule and no pattern knows, is an error.

    ignored: regular expression of their names -> why they are not needed.
    """
    missing = sorted(name for rule in rules for name in rule.theirs if name not in tensors)
    if missing:
        raise ValueError(f"{source}: {len(missing)} tensors are missing: {some(missing)}")
    used = {name for rule in rules for name in rule.theirs}
    left = {name: _reason(name, ignored) for name in tensors if name not in used}
    unknown = sorted(name for name, reason in left.items() if reason is None)
    if unknown:
        raise ValueError(
            f"{source}: {len(unknown)} tensors have no place in this kind of model: {some(unknown)}"
        )
    ours = {rule.ours: _apply(rule, tensors, source) for rule in rules}
    return ours, Account(loaded=tuple(sorted(ours)), left=tuple(sorted((k, str(v)) for k, v in left.items())))


def write(rules: Sequence[Rule], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors from ours: the way back. Every one of ours must be written by a rule."""
    rest = sorted(set(tensors) - {rule.ours for rule in rules if rule.write is not None})
    if rest:
        raise ValueError(f"{len(rest)} tensors have no place in the format: {some(rest)}")
    return {
        rule.theirs[0]: rule.write(tensors[rule.ours]).contiguous()
        for rule in rules
        if rule.write is not None
    }


def _reason(name: str, ignored: Mapping[str, str]) -> str | None:
    return next((reason for pattern, reason in ignored.items() if re.fullmatch(pattern, name)), None)


def _apply(rule: Rule, tensors: Mapping[str, Tensor], source: object) -> Tensor:
    parts = [tensors[name] for name in rule.theirs]
    try:
        return rule.read(*parts)
    except (RuntimeError, IndexError):
        shapes = ", ".join(
            f"{name} {tuple(part.shape)}" for name, part in zip(rule.theirs, parts, strict=True)
        )
        raise ValueError(f"{source}: {shapes} can't become {rule.ours}") from None
