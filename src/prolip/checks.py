"""Checks that several files share: each passes, or ends in one sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def require_floats(values: object, what: str) -> None:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.dtype.itemsize < 2:
        raise TypeError(f"{what} must be a floating-point tensor of 16 bits or more, not {describe(values)}")


def require_all(values: Tensor, rule: Callable[[Tensor], Tensor], what: str, wanted: str) -> None:
    """Every value must satisfy the rule; else how many don't, and the first of them. Reads the data."""
    good = rule(values)
    if not bool(good.all()):
        first = tuple(int(i) for i in (~good).nonzero()[0])
        count = int((~good).sum())
        raise ValueError(
            f"{what} must be {wanted}; {count} of {good.numel()} values are not, "
            f"the first at index {first} is {values[first].item()}"
        )


def within(values: Tensor, low: float, high: float) -> bool:
    """Whether all values lie in low..high, none of them NaN: one pass that writes nothing."""
    if not values.numel():
        return True
    least, largest = values.aminmax()  # NaN if any is
    return bool((least >= low) & (largest <= high))


def require_within(values: Tensor, low: float, high: float, what: str, wanted: str) -> None:
    """`require_all` for a range; looks for the culprit only if there is one."""
    if not within(values, low, high):
        require_all(values, lambda v: (v >= low) & (v <= high), what, wanted)


def require_finite(values: Tensor, what: str) -> None:
    largest = torch.finfo(values.dtype).max
    require_within(values, -largest, largest, what, "finite")


def require_count(value: object, name: str, most: int = 2**24) -> None:
    """A whole number from 1 to `most`. (JSON may bring true, 1.0, "1", or a number that no memory can hold.)"""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, not {value}")


def some(names: Sequence[str], count: int = 4) -> str:
    """The first few names of a list, for a sentence."""
    return ", ".join(names[:count]) + (f", and {len(names) - count} more" if len(names) > count else "")


def require_choice(value: str, choices: Sequence[str], name: str) -> None:
    """`choices` are the arguments of the Literal that the type checker knows; this is for those who don't run one."""
    if value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {tuple(choices)}")


def checked_points(points: Tensor, name: str) -> Tensor:
    """Finite floating-point vectors (..., D); else an error that names them."""
    require_floats(points, name)
    if points.ndim == 0:
        raise ValueError(f"{name} must have the shape (..., D), not ()")
    if not torch.compiler.is_compiling():
        require_finite(points, name)
    return points


def refuse_second_derivative(what: str) -> None:
    """For a hand-written backward pass: were it differentiated itself, it would silently count as constant."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(f"{what}: no create_graph, no Hessian")


def describe(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
