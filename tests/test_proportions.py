"""Wilson's interval against scipy's."""

import pytest
from scipy.stats import binomtest

from prolip.proportions import compute_wilson_interval


@pytest.mark.parametrize("n", [1, 2, 7, 104, 5000])
def test_compute_wilson_interval_is_that_of_scipy(n):
    for successes in {0, 1, n // 3, n - 1, n}:
        expected = binomtest(successes, n).proportion_ci(0.95, method="wilson")
        low, high = compute_wilson_interval(successes / n, n)
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert 0 <= low <= successes / n <= high <= 1
        assert low < high


@pytest.mark.parametrize(("value", "n"), [(0.5, 0), (-0.1, 3), (1.1, 3), (float("nan"), 3)])
def test_compute_wilson_interval_rejects_what_is_no_proportion(value, n):
    with pytest.raises(ValueError, match=f"{value} of {n}"):
        compute_wilson_interval(value, n)
