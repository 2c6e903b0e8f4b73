import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from prolip.evaluation.metrics.correlation import pearson, ranks, spearman

COLUMN = st.lists(st.integers(-3, 3), min_size=3, max_size=25)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@given(COLUMN)
def test_ranks_are_scipys(values):
    assert ranks(torch.tensor(values)).tolist() == scipy.stats.rankdata(values).tolist()


@given(COLUMN, st.data())
def test_both_correlations_are_scipys_and_none_for_a_constant(a, data):
    b = data.draw(st.lists(st.integers(-3, 3), min_size=len(a), max_size=len(a)))
    for ours, theirs in ((pearson, scipy.stats.pearsonr), (spearman, scipy.stats.spearmanr)):
        if len(set(a)) == 1 or len(set(b)) == 1:
            assert ours(tensor(a), tensor(b)) is None
        else:
            assert ours(tensor(a), tensor(b)) == pytest.approx(theirs(a, b)[0], abs=1e-12)


def test_equal_numbers_that_are_no_binary_fraction_are_constant():
    assert pearson(torch.full((7,), 0.1), torch.arange(7.0)) is None


def test_close_numbers_are_still_told_apart():
    a = 1e6 + 1e-6 * torch.arange(9, dtype=torch.float64)
    assert pearson(a, torch.arange(9.0)) == pytest.approx(1.0, abs=1e-3)


def test_monotone_maps_leave_spearman_alone(generator):
    a, b = torch.randn(2, 200, generator=generator, dtype=torch.float64)
    assert spearman(a.exp(), b**3) == pytest.approx(spearman(a, b))


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_samples_have_none(n):
    assert pearson(torch.zeros(n), torch.zeros(n)) is None
    assert spearman(torch.zeros(n), torch.zeros(n)) is None


def test_nan_and_different_shapes_are_rejected():
    with pytest.raises(ValueError, match="finite"):
        pearson(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="must both be"):
        spearman(torch.zeros(2), torch.zeros(3))
