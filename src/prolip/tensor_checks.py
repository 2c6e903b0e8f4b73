"""Checks of tensors, each with one clear error message."""

from __future__ import annotations

from collections.abc import Callable

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


def describe_type(value: object) -> str:
    """The type of a value, for a message; of a tensor also the dtype.

    Args:
        value: Any value.

    Returns:
        For example "str" or "a torch.uint8 tensor".
    """
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
