"""What is said of training."""

from prolip.reports.page import curves


def test_losses_that_do_not_fall_are_told():
    assert "PPCL fell from 4 to 2" in curves.describe_contrast({"ppcl": [(0, 4.0), (1, 2.0)]})
    assert "did not fall" in curves.describe_contrast({"ppcl": [(0, 2.0), (1, 4.0)]})


def test_recall_that_does_not_rise_is_told_and_so_is_the_best():
    assert "rose from 2.0\u00a0% to 4.0\u00a0%" in curves.describe_recall([(0, 0.02), (1, 0.04)])
    assert "did not rise" in curves.describe_recall([(0, 0.04), (1, 0.02)])
    assert "best check, 9.0\u00a0%, was at 5 " in curves.describe_recall([(0, 0.01), (5, 0.09), (9, 0.02)])


def test_lines_without_a_number_are_passed_over():
    lines = [{"samples": 1, "a": 2.0}, {"samples": 2}, {"samples": 3, "a": None}, {"a": 1.0}]
    lines += [{"samples": 4, "a": float("nan")}, {"samples": 5, "a": float("inf")}]
    assert curves.points(lines, "a") == [(1, 2.0)]
