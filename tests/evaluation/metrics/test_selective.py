import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from prolip.evaluation.metrics import selective

SAMPLES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=25)


def columns(samples):
    correct, confidence = zip(*samples, strict=True)
    return torch.tensor(correct), torch.tensor(confidence, dtype=torch.float32)


def mean_over_orders(correct, confidence):
    """Mean risk curve over every order that sorts confidence."""
    orders = [
        order
        for order in itertools.permutations(range(len(correct)))
        if all(confidence[a] >= confidence[b] for a, b in itertools.pairwise(order))
    ]
    curves = [
        [sum(not correct[i] for i in order[:k]) / k for k in range(1, len(order) + 1)] for order in orders
    ]
    return [sum(risks) / len(curves) for risks in zip(*curves, strict=True)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=6))
def test_ties_come_in_random_order(samples):
    correct, confidence = columns(samples)
    coverage, risk = selective.risk_coverage(correct, confidence)
    assert risk.tolist() == pytest.approx(mean_over_orders(correct.tolist(), confidence.tolist()))
    assert coverage.tolist() == pytest.approx([k / len(correct) for k in range(1, len(correct) + 1)])


def test_without_ties_it_is_the_loop(generator):
    correct, confidence = torch.rand(2, 200, generator=generator)
    correct = correct > 0.4
    order = sorted(range(200), key=lambda i: -confidence[i])
    risks = [sum(not correct[i] for i in order[:k]) / k for k in range(1, 201)]
    assert selective.risk_coverage(correct, confidence)[1].tolist() == pytest.approx(risks)
    assert selective.aurc(correct, confidence) == pytest.approx(sum(risks) / 200)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples, random):
    mixed = random.sample(samples, len(samples))
    for measure in (selective.aurc, selective.auroc):
        assert measure(*columns(samples)) == pytest.approx(measure(*columns(mixed)))


@given(SAMPLES)
def test_the_oracle_is_best_and_no_confidence_gives_the_error_rate(samples):
    correct, confidence = columns(samples)
    assert selective.excess_aurc(correct, confidence) >= -1e-12
    assert selective.excess_aurc(correct, correct.float()) == 0.0
    error = 1 - correct.double().mean().item()
    assert selective.aurc(correct, torch.zeros(len(correct))) == pytest.approx(error)
    assert selective.risk_coverage(correct, confidence)[1][-1].item() == pytest.approx(error)


@given(SAMPLES)
def test_auroc_is_scikit_learns_and_none_for_one_kind(samples):
    positive, score = columns(samples)
    found = selective.auroc(positive, score)
    if len(set(positive.tolist())) == 1:
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(positive, score))
        assert found == pytest.approx(1 - selective.auroc(positive, -score))


def test_auroc_takes_infinite_scores():
    assert selective.auroc(torch.tensor([True, False]), torch.tensor([torch.inf, 0.0])) == 1.0


@pytest.mark.parametrize(("n", "points"), [(1, 1), (7, 7), (100, 100), (1003, 100)])
def test_curves_are_thinned_and_end_at_full_coverage(n, points, generator):
    correct, confidence = torch.rand(2, n, generator=generator)
    curve = selective.sample_risk_coverage(correct > 0.5, confidence)
    coverage, risk = selective.risk_coverage(correct > 0.5, confidence)
    assert len(curve.coverage) == len(curve.risk) == points
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(risk[-1].item())
    assert set(curve.coverage) <= set(coverage.tolist())


def test_nan_can_not_be_ranked():
    for measure in (selective.aurc, selective.auroc):
        with pytest.raises(ValueError, match="NaN"):
            measure(torch.tensor([True, False]), torch.tensor([torch.nan, 0.0]))
    with pytest.raises(ValueError, match="N at least 1"):
        selective.aurc(torch.zeros(0).bool(), torch.zeros(0))
