"""Checks of arguments and config values, each with one clear error message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def require_float_tensor(values: object, name: str) -> None:
    """Raise TypeError unless this is a floating-point tensor of 16 bits or more.

    Args:
        values: Checked.
        name: Name of the values, for the message.
    """
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.dtype.itemsize < 2:
        raise TypeError(
            f"{name} must be a floating-point tensor of 16 bits or more, not {describe_type(values)}"
        )


def require_all(values: Tensor, rule: Callable[[Tensor], Tensor], name: str, requirement: str) -> None:
    """Raise ValueError unless every value satisfies a rule. Reads the data (synchronizes a GPU).

    Args:
        values: Any shape.
        rule: values -> bool tensor of the same shape.
        name: Name of the values, for the message.
        requirement: What the rule demands, for the message: "finite".
    """
    valid = rule(values)
    if not bool(valid.all()):
        first_index = tuple(int(i) for i in (~valid).nonzero()[0])
        num_invalid = int((~valid).sum())
        raise ValueError(
            f"{name} must be {requirement}; {num_invalid} of {valid.numel()} values are not, "
            f"the first at index {first_index} is {values[first_index].item()}"
        )


def is_in_range(values: Tensor, low: float, high: float) -> bool:
    """Whether all values lie in [low, high] and none is NaN. One pass, without a temporary tensor.

    Args:
        values: Any shape; an empty tensor is in range.
        low: Smallest valid value.
        high: Largest valid value.

    Returns:
        True if all are.
    """
    if not values.numel():
        return True
    smallest, largest = values.aminmax()  # NaN if any value is
    return bool((smallest >= low) & (largest <= high))


def require_in_range(values: Tensor, low: float, high: float, name: str, requirement: str) -> None:
    """Raise ValueError unless all values lie in [low, high]. Reads the data (synchronizes a GPU).

    Faster than `require_all`, which is called only to report an invalid value.

    Args:
        values: Any shape.
        low: Smallest valid value.
        high: Largest valid value.
        name: Name of the values, for the message.
        requirement: For the message, as for `require_all`.
    """
    if not is_in_range(values, low, high):
        require_all(values, lambda v: (v >= low) & (v <= high), name, requirement)


def require_finite(values: Tensor, name: str) -> None:
    """Raise ValueError if any value is NaN or infinite.

    Args:
        values: Any shape, floating-point.
        name: Name of the values, for the message.
    """
    largest = torch.finfo(values.dtype).max
    require_in_range(values, -largest, largest, name, "finite")


def require_positive_int(value: object, name: str, maximum: int = 2**24) -> None:
    """Raise ValueError unless this is an int from 1 to `maximum`.

    JSON may hold true, 1.0, "1", or a number that no memory can hold.

    Args:
        value: Checked.
        name: Name of the value, for the message.
        maximum: Largest valid value.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, not {value}")


def require_positive(value: object, name: str) -> None:
    """Raise ValueError unless this is a positive, finite number.

    Args:
        value: Checked.
        name: Name of the value, for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value!r}")


def require_fraction(value: object, name: str, *, exclude_zero: bool = False) -> None:
    """Raise ValueError unless this is a number in [0, 1], or in (0, 1] with `exclude_zero`.

    Args:
        value: Checked.
        name: Name of the value, for the message.
        exclude_zero: Whether 0 is invalid.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1 or (exclude_zero and value == 0):  # type: ignore[operator]
        limits = "above 0 and at most 1" if exclude_zero else "from 0 to 1"
        raise ValueError(f"{name} must be a fraction {limits}, not {value!r}")


def require_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Raise ValueError unless the value is one of the choices.

    Args:
        value: Checked.
        choices: Valid values; the arguments of a Literal type.
        name: Name of the value, for the message.
    """
    if value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {tuple(choices)}")


def check_points(points: Tensor, name: str) -> Tensor:
    """Check that points are finite floating-point vectors. Reads the data (synchronizes a GPU).

    Args:
        points: (..., D).
        name: Name of the points, for the message.

    Returns:
        The same tensor.

    Raises:
        TypeError, ValueError: Another type, no axes, or values that are not finite.
    """
    require_float_tensor(points, name)
    if points.ndim == 0:
        raise ValueError(f"{name} must have the shape (..., D), not ()")
    if not torch.compiler.is_compiling():
        require_finite(points, name)
    return points


def forbid_double_backward(name: str) -> None:
    """Raise RuntimeError if a hand-written backward pass is itself differentiated, which would give wrong gradients.

    Call it in the backward pass: only if that is differentiated (create_graph) are gradients enabled there.

    Args:
        name: Start of the message, which names the function.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(f"{name}: create_graph and Hessians are not supported")


def join_names(names: Sequence[str], count: int = 4) -> str:
    """The first few names of a list, for a message: "a, b, c, d, and 3 more".

    Args:
        names: All names.
        count: How many are listed.

    Returns:
        The names, separated by commas, and how many more there are.
    """
    return ", ".join(names[:count]) + (f", and {len(names) - count} more" if len(names) > count else "")


def describe_type(value: object) -> str:
    """The type of a value, for a message; of a tensor also the dtype.

    Args:
        value: Any value.

    Returns:
        For example "str" or "a torch.uint8 tensor".
    """
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
