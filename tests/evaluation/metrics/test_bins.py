import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from prolip.evaluation.metrics import bins
from prolip.evaluation.result import Proportion


@given(st.integers(1, 60), st.integers(1, 12))
def test_bins_of_different_values_differ_by_one_sample_at_most(n, count):
    values = torch.randperm(n, generator=torch.Generator().manual_seed(n)).double()
    place = bins.equal_mass_bins(values, count)
    sizes = torch.bincount(place, minlength=count)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1
    assert (place[values.argsort()].diff() >= 0).all(), "larger values are in later bins"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 10))
def test_equal_values_share_a_bin(values, count):
    place = bins.equal_mass_bins(torch.tensor(values), count).tolist()
    assert len(set(zip(values, place, strict=True))) == len(set(values))
    assert all(0 <= p < count for p in place)
    first = [count * sum(v < own for v in values) // len(values) for own in values]
    assert place == first


def test_deciles_are_means_of_sorted_values(generator):
    uncertainty, correct = torch.rand(2, 100, generator=generator, dtype=torch.float64)
    correct = correct < uncertainty
    rows = bins.accuracy_by_uncertainty(correct, uncertainty)
    order = uncertainty.argsort().reshape(10, 10)
    assert [row.accuracy.n for row in rows] == [10] * 10
    assert [row.accuracy.value for row in rows] == pytest.approx(correct[order].double().mean(1).tolist())
    assert [row.uncertainty for row in rows] == pytest.approx(uncertainty[order].mean(1).tolist())
    found = bins.accuracy_correlations(correct, uncertainty)
    wanted = scipy.stats.pearsonr(range(10), [row.accuracy.value for row in rows])[0]
    assert found.deciles == pytest.approx(wanted)
    assert found.spearman == pytest.approx(scipy.stats.spearmanr(uncertainty, correct)[0])
    assert found.point_biserial == pytest.approx(scipy.stats.pointbiserialr(correct, uncertainty)[0])
    assert found.deciles > 0.8 > found.spearman > 0.2, "averages hide what varies within"


def test_the_remainder_is_spread():
    rows = bins.accuracy_by_uncertainty(torch.ones(23).bool(), torch.arange(23.0))
    assert sum(row.accuracy.n for row in rows) == 23
    assert {row.accuracy.n for row in rows} == {2, 3}


@pytest.mark.parametrize("n", [1, 3])
def test_few_samples_leave_bins_out(n):
    rows = bins.accuracy_by_uncertainty(torch.ones(n).bool(), torch.arange(float(n)))
    assert [row.accuracy.n for row in rows] == [1] * n
    assert bins.accuracy_correlations(torch.ones(n).bool(), torch.arange(float(n))).deciles is None


def test_constant_uncertainty_is_one_bin_and_correlates_with_nothing():
    correct = torch.tensor([True, False, True])
    assert bins.accuracy_by_uncertainty(correct, torch.full((3,), 0.1)) == (
        bins.AccuracyBin(index=0, uncertainty=pytest.approx(0.1), accuracy=Proportion.from_mean(2 / 3, 3)),
    )
    found = bins.accuracy_correlations(correct, torch.full((3,), 0.1))
    assert found == bins.AccuracyCorrelations(deciles=None, spearman=None, point_biserial=None)


def test_nan_has_no_bin():
    with pytest.raises(ValueError, match="NaN"):
        bins.equal_mass_bins(torch.tensor([1.0, torch.nan]), 2)
    with pytest.raises(ValueError, match="must both be"):
        bins.accuracy_by_uncertainty(torch.ones(2).bool(), torch.ones(3))
