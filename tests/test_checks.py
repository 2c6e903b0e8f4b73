import pytest
import torch

from prolip import checks


def test_a_choice_is_named_with_what_there_is():
    checks.require_choice("exact", ("exact", "published"), "form")
    with pytest.raises(ValueError, match=r"form 'printed' is not one of \('exact', 'published'\)"):
        checks.require_choice("printed", ("exact", "published"), "form")


def test_the_first_bad_value_is_shown():
    values = torch.tensor([[1.0, 2.0], [float("inf"), float("nan")]])
    with pytest.raises(
        ValueError, match=r"x must be finite; 2 of 4 values are not, the first at index \(1, 0\) is inf"
    ):
        checks.require_all(values, torch.isfinite, "x", "finite")


def test_points_are_vectors():
    points = torch.zeros(2, 3)
    assert checks.checked_points(points, "x") is points
    with pytest.raises(ValueError, match=r"x must have the shape \(\.\.\., D\)"):
        checks.checked_points(torch.zeros(()), "x")
    with pytest.raises(
        TypeError, match=r"x must be a floating-point tensor of 16 bits or more, not a torch\.int64"
    ):
        checks.checked_points(points.long(), "x")


def test_second_derivatives_are_refused_only_where_they_are_asked_for():
    with torch.no_grad():
        checks.refuse_second_derivative("this")
    with pytest.raises(RuntimeError, match="this: no create_graph"):
        checks.refuse_second_derivative("this")
