"""Fractions in order and the sign test, against SciPy and a count by hand."""

import pytest
import torch
from scipy.stats import binomtest

from prolip.evaluation.metrics.order import binomial_p_value, fraction_in_order, sign_test


@pytest.mark.parametrize(
    ("wins", "losses"), [(0, 0), (0, 1), (3, 4), (5, 5), (20, 60), (900, 1100), (0, 2000)]
)
def test_binomial_p_value_is_scipys(wins, losses):
    wanted = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert binomial_p_value(wins, losses) == pytest.approx(wanted, rel=1e-9)
    assert binomial_p_value(losses, wins) == binomial_p_value(wins, losses)


def test_ties_count_half():
    higher, lower = torch.tensor([3, 1, 2, 2, 5]), torch.tensor([2, 2, 2, 2, 5])
    assert fraction_in_order(higher, lower) == 0.5
    assert fraction_in_order(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0])) == 0.75


def test_sign_test_by_a_loop(generator):
    higher, lower = torch.randint(6, (2, 200), generator=generator)
    higher = higher + (torch.rand(200, generator=generator) < 0.4)
    wins = sum(a > b for a, b in zip(higher.tolist(), lower.tolist(), strict=True))
    ties = sum(a == b for a, b in zip(higher.tolist(), lower.tolist(), strict=True))
    found = sign_test(higher, lower)
    assert (found.num_ties, found.in_order.n) == (ties, 200)
    assert found.in_order.value == pytest.approx((wins + ties / 2) / 200)
    assert found.p_value == pytest.approx(binomtest(wins, 200 - ties).pvalue)


def test_sign_test_without_pairs_is_none_and_of_ties_says_nothing():
    assert sign_test(torch.zeros(0), torch.zeros(0)) is None
    assert sign_test(torch.ones(4), torch.ones(4)).p_value == 1.0
