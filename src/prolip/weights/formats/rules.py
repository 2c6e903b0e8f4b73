"""Rules that map foreign tensors to ours and back; together they must account for every tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.checks import join_names


@dataclass(frozen=True)
class Rule:
    """How one of our tensors is made of foreign ones.

    Attributes:
        ours: Name of our tensor.
        theirs: Names of the foreign tensors.
        read: Foreign tensors -> ours.
        write: Our tensor -> the foreign one, for formats that can be exported; None: not invertible.
    """

    ours: str
    theirs: tuple[str, ...]
    read: Callable[..., Tensor]
    write: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class LoadingReport:
    """What happened to every tensor when a model was loaded.

    Attributes:
        loaded: Our tensors that were loaded.
        resized: Our tensors that were resized.
        initialized: Our tensors that were newly initialized.
        unused: (foreign tensor, reason) of those that are not needed.
    """

    loaded: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    initialized: tuple[str, ...] = ()
    unused: tuple[tuple[str, str], ...] = ()


def copy_rule(ours: str, theirs: str) -> Rule:
    """A rule that copies the tensor unchanged.

    Args:
        ours: Our name.
        theirs: The foreign name.

    Returns:
        An invertible rule.
    """
    return Rule(ours, (theirs,), lambda t: t, lambda t: t)


def transpose_rule(ours: str, theirs: str) -> Rule:
    """A rule that transposes a weight: theirs is used as x @ weight, ours as torch's Linear does.

    Args:
        ours: Our name.
        theirs: The foreign name.

    Returns:
        An invertible rule.
    """
    return Rule(ours, (theirs,), lambda t: t.mT.contiguous(), lambda t: t.mT.contiguous())


def convolution_rule(ours: str, theirs: str, patch_size: int) -> Rule:
    """A rule for the patch embedding: theirs is a convolution (W, 3, p, p) with stride p, ours a Linear (W, 3 p p).

    Args:
        ours: Our name.
        theirs: The foreign name.
        patch_size: p, in pixels.

    Returns:
        An invertible rule.
    """
    p = patch_size
    return Rule(ours, (theirs,), lambda t: t.flatten(1), lambda t: t.unflatten(1, (3, p, p)))


def reshape_rule(ours: str, theirs: str, *shape: int) -> Rule:
    """A rule that reshapes the tensor, for example to drop a leading axis of length 1.

    Args:
        ours: Our name.
        theirs: The foreign name.
        *shape: Shape of our tensor; none: a scalar.

    Returns:
        A rule that can't be inverted.
    """
    return Rule(ours, (theirs,), lambda t: t.reshape(shape))


def concat_rule(ours: str, *theirs: str) -> Rule:
    """A rule that concatenates foreign tensors along the first axis: separate q, k and v become our qkv.

    Args:
        ours: Our name.
        *theirs: The foreign names, in order.

    Returns:
        A rule that can't be inverted.
    """
    return Rule(ours, theirs, lambda *t: torch.cat(t))


def layer_rules(ours: str, theirs: str) -> list[Rule]:
    """Rules for weight and bias of a linear layer or a norm.

    Args:
        ours: Our name of the layer.
        theirs: The foreign name of the layer.

    Returns:
        Two invertible rules.
    """
    return [copy_rule(f"{ours}.{kind}", f"{theirs}.{kind}") for kind in ("weight", "bias")]


def apply_rules(
    rules: Sequence[Rule], tensors: Mapping[str, Tensor], ignored: Mapping[str, str], source: object
) -> tuple[dict[str, Tensor], LoadingReport]:
    """Convert foreign tensors to ours.

    Args:
        rules: Rules of the format.
        tensors: Foreign tensors by name.
        ignored: Regular expression of names of tensors that are not needed -> reason.
        source: File or folder, for messages.

    Returns:
        Our tensors by name; and the report, which lists the loaded and the unused ones.

    Raises:
        ValueError: A tensor is missing, has a shape that its rule can't convert, or is covered by neither a rule nor
            a pattern.
    """
    missing = sorted(name for rule in rules for name in rule.theirs if name not in tensors)
    if missing:
        raise ValueError(f"{source}: {len(missing)} tensors are missing: {join_names(missing)}")
    used = {name for rule in rules for name in rule.theirs}
    unused = {name: _find_reason(name, ignored) for name in tensors if name not in used}
    unknown = sorted(name for name, reason in unused.items() if reason is None)
    if unknown:
        raise ValueError(
            f"{source}: {len(unknown)} tensors are not known in this format: {join_names(unknown)}"
        )
    ours = {rule.ours: _apply_rule(rule, tensors, source) for rule in rules}
    return ours, LoadingReport(
        loaded=tuple(sorted(ours)),
        unused=tuple(sorted((name, str(reason)) for name, reason in unused.items())),
    )


def invert_rules(rules: Sequence[Rule], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert our tensors to foreign ones.

    Args:
        rules: Rules of the format.
        tensors: Our tensors by name.

    Returns:
        Foreign tensors by name.

    Raises:
        ValueError: No invertible rule covers one of our tensors.
    """
    uncovered = sorted(set(tensors) - {rule.ours for rule in rules if rule.write is not None})
    if uncovered:
        raise ValueError(f"{len(uncovered)} tensors can't be stored in this format: {join_names(uncovered)}")
    return {
        rule.theirs[0]: rule.write(tensors[rule.ours]).contiguous()
        for rule in rules
        if rule.write is not None
    }


def _find_reason(name: str, ignored: Mapping[str, str]) -> str | None:
    """The reason why a foreign tensor is not needed: that of the first pattern that matches its whole name, or None."""
    return next((reason for pattern, reason in ignored.items() if re.fullmatch(pattern, name)), None)


def _apply_rule(rule: Rule, tensors: Mapping[str, Tensor], source: object) -> Tensor:
    """Make our tensor from the foreign ones by a rule; raises ValueError if their shapes don't fit the rule."""
    foreign_tensors = [tensors[name] for name in rule.theirs]
    try:
        return rule.read(*foreign_tensors)
    except (RuntimeError, IndexError):
        shapes = ", ".join(
            f"{name} {tuple(tensor.shape)}" for name, tensor in zip(rule.theirs, foreign_tensors, strict=True)
        )
        raise ValueError(f"{source}: {shapes} can't be converted to {rule.ours}") from None
