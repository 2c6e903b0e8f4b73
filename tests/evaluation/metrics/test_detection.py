import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_curve

from prolip.evaluation.metrics import detection
from prolip.gaussian import Gaussian

CASES = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40)


def columns(cases):
    positive, score = zip(*cases, strict=True)
    return torch.tensor(positive), torch.tensor(score, dtype=torch.float32)


def sklearn_fpr(positive, score, tpr):
    false, true, _ = roc_curve(positive.numpy(), score.numpy(), drop_intermediate=False)
    return next(f for f, t in zip(false, true, strict=True) if t >= tpr)


@given(CASES)
def test_average_precision_and_fpr_are_sklearns_with_ties(cases):
    positive, score = columns(cases)
    found = detection.average_precision(positive, score), detection.fpr_at_tpr(positive, score)
    if positive.all() or not positive.any():
        assert found == (None, None)
        return
    wanted = average_precision_score(positive.numpy(), score.numpy()), sklearn_fpr(positive, score, 0.95)
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("tpr", [0.05, 0.5, 0.9, 1.0])
def test_fpr_at_other_rates_is_sklearns(generator, tpr):
    positive = torch.rand(300, generator=generator) < 0.3
    score = torch.randn(300, generator=generator) + positive
    assert detection.fpr_at_tpr(positive, score, tpr) == pytest.approx(sklearn_fpr(positive, score, tpr))


@pytest.mark.parametrize("tpr", [0.0, 1.01])
def test_fpr_rejects_a_rate_out_of_range(tpr):
    with pytest.raises(ValueError, match=str(tpr)):
        detection.fpr_at_tpr(torch.tensor([True, False]), torch.zeros(2), tpr)


def test_detection_metrics_of_a_perfect_and_a_reversed_score():
    positive = torch.tensor([True, True, False, False, False])
    perfect = detection.detection_metrics(positive, positive.double())
    assert (perfect.n, perfect.num_positive) == (5, 2)
    assert (perfect.auroc, perfect.average_precision, perfect.fpr95) == (1.0, 1.0, 0.0)
    worst = detection.detection_metrics(positive, -positive.double())
    assert (worst.auroc, worst.average_precision, worst.fpr95) == (0.0, pytest.approx(0.4), 1.0)


def test_scores_that_are_nan_are_rejected():
    with pytest.raises(ValueError, match="NaN"):
        detection.average_precision(torch.tensor([True, False]), torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize("metric", ["cosine", "csd"])
def test_r_auroc_is_the_loop(generator, metric):
    mean = torch.nn.functional.normalize(torch.randn(60, 4, generator=generator), dim=-1)
    z = Gaussian(mean, torch.randn(60, 4, generator=generator))
    labels = torch.randint(0, 3, (60,), generator=generator)
    gap = z.uncertainty[None] if metric == "csd" else 0
    distance = torch.cdist(mean, mean).square() + gap
    distance.fill_diagonal_(torch.inf)
    nearest = distance.argmin(1)
    assert torch.equal(detection.find_nearest_other(z, metric), nearest)
    wrong = [i for i in range(60) if labels[nearest[i]] != labels[i]]
    right = [i for i in range(60) if i not in wrong]
    wins = sum(float(z.uncertainty[i] > z.uncertainty[j]) for i in wrong for j in right)
    found = detection.r_auroc(z, labels, metric)
    assert found.auroc == pytest.approx(wins / len(wrong) / len(right))
    assert (found.n, found.num_positive) == (60, len(wrong))


def test_nearest_other_of_duplicates_is_never_the_sample_itself():
    z = Gaussian.point(torch.tensor([[1.0, 0.0]]).expand(4, 2))
    nearest = detection.find_nearest_other(z)
    assert (nearest != torch.arange(4)).all()


def test_r_auroc_rejects_labels_of_another_number():
    with pytest.raises(ValueError, match="3 queries"):
        detection.r_auroc(Gaussian.point(torch.eye(3)), torch.zeros(2, dtype=torch.int64))
