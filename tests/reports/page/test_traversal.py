"""What is said of ways, and what is shown of them."""

import pytest

from prolip.reports.page import traversal
from tests.reports.page.test_sentences import way


def test_truth_of_the_captions_passed():
    assert "75.0\u00a0% of the captions passed are true" in traversal.describe_walks(
        [way(1, 2)], [True] * 3 + [False]
    )
    assert traversal.describe_walks([way(None, None)], []) == ""


@pytest.mark.parametrize(("total", "most"), [(1, 8), (8, 8), (9, 8), (50, 8)])
def test_both_ends_of_a_long_way_are_shown(total, most):
    shown = traversal.spread(total, most)
    assert shown[0] == 0
    assert shown[-1] == total - 1
    assert len(shown) == len(set(shown)) == min(total, most)
