import math

import pytest
import torch

from prolip import checks, tensor_checks


def test_require_choice_lists_the_choices():
    checks.require_choice("exact", ("exact", "published"), "form")
    with pytest.raises(ValueError, match=r"form 'printed' is not one of \('exact', 'published'\)"):
        checks.require_choice("printed", ("exact", "published"), "form")


def test_require_all_names_the_first_invalid_value():
    values = torch.tensor([[1.0, 2.0], [float("inf"), float("nan")]])
    with pytest.raises(
        ValueError, match=r"x must be finite; 2 of 4 values are not, the first at index \(1, 0\) is inf"
    ):
        tensor_checks.require_all(values, torch.isfinite, "x", "finite")


def test_check_points_requires_vectors():
    points = torch.zeros(2, 3)
    assert tensor_checks.check_points(points, "x") is points
    with pytest.raises(ValueError, match=r"x must have the shape \(\.\.\., D\)"):
        tensor_checks.check_points(torch.zeros(()), "x")
    with pytest.raises(
        TypeError, match=r"x must be a floating-point tensor of 16 bits or more, not a torch\.int64"
    ):
        tensor_checks.check_points(points.long(), "x")


def test_forbid_double_backward_raises_only_under_create_graph():
    with torch.no_grad():
        tensor_checks.forbid_double_backward("this")
    with pytest.raises(RuntimeError, match="this: create_graph"):
        tensor_checks.forbid_double_backward("this")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3.0, -2.5])
def test_is_in_range_detects_values_outside(bad):
    good = torch.linspace(-2, 2, 50)
    assert tensor_checks.is_in_range(good, -2, 2)
    assert tensor_checks.is_in_range(good[:0], 0, 0)
    worse = good.clone()
    worse[17] = bad
    assert not tensor_checks.is_in_range(worse, -2, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_require_finite_names_the_value(bad, dtype):
    values = torch.zeros(3, 4, dtype=dtype)
    tensor_checks.require_finite(values, "x")
    tensor_checks.require_finite(torch.full((2,), torch.finfo(dtype).max, dtype=dtype), "x")
    values[1, 2] = bad
    with pytest.raises(
        ValueError, match=r"x must be finite; 1 of 12 values are not, the first at index \(1, 2\)"
    ):
        tensor_checks.require_finite(values, "x")
