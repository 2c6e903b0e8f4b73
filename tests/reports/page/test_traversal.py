"""Descriptions and cards of traversals."""

import pytest

from prolip.reports.page import traversal
from tests.reports.page.test_descriptions import path


def test_describe_paths_reports_true_captions():
    assert "75.0\u00a0% of the captions are true" in traversal.describe_paths(
        [path(1, 2)], [True] * 3 + [False]
    )
    assert traversal.describe_paths([path(None, None)], []) == ""


@pytest.mark.parametrize(("total", "count"), [(1, 8), (8, 8), (9, 8), (50, 8)])
def test_choose_evenly_keeps_both_ends(total, count):
    shown = traversal.choose_evenly(total, count)
    assert shown[0] == 0
    assert shown[-1] == total - 1
    assert len(shown) == len(set(shown)) == min(total, count)
