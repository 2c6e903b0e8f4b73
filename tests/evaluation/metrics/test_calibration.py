import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from prolip.evaluation.metrics import calibration as cal


def loop_ece(confidence, correct, bins):
    """Equal width: (lower, upper], 0 in the first."""
    error = 0.0
    for b in range(bins):
        inside = [
            i for i, p in enumerate(confidence) if b / bins < p <= (b + 1) / bins or (b == 0 and p == 0)
        ]
        if inside:
            gap = sum(correct[i] for i in inside) - sum(confidence[i] for i in inside)
            error += abs(gap) / len(confidence)
    return error


@given(
    st.lists(st.tuples(st.integers(0, 64), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([1, 4, 8]),
)
def test_ece_is_the_loop(samples, bins):
    confidence, correct = [p / 64 for p, _ in samples], [c for _, c in samples]
    found = cal.expected_calibration_error(torch.tensor(confidence), torch.tensor(correct), bins)
    assert found == pytest.approx(loop_ece(confidence, correct, bins), abs=1e-12)


def test_ece_of_equal_mass_is_the_loop(generator):
    confidence, correct = torch.rand(2, 90, generator=generator, dtype=torch.float64)
    correct = correct < 0.3
    order = confidence.argsort().reshape(9, 10)
    wanted = (correct[order].double().mean(1) - confidence[order].mean(1)).abs().mean().item()
    assert cal.expected_calibration_error(confidence, correct, 9, "mass") == pytest.approx(wanted)
    rows = cal.bin_by_confidence(confidence, correct, 9, "mass").to_rows()
    assert [row.n for row in rows] == [10] * 9


@pytest.mark.parametrize("by", ["width", "mass"])
def test_honest_probabilities_have_little_error_and_shifted_ones_the_shift(by, generator):
    p, chance = torch.rand(2, 200_000, generator=generator, dtype=torch.float64)
    p = 0.8 * p
    assert cal.expected_calibration_error(p, chance < p, binning=by) < 0.01
    assert cal.expected_calibration_error(p + 0.2, chance < p, binning=by) == pytest.approx(0.2, abs=0.01)


def test_parts_add_up(generator):
    p, chance = torch.rand(2, 500, generator=generator)
    parts = cal.bin_by_confidence(p[:123], chance[:123] < 0.5) + cal.bin_by_confidence(
        p[123:], chance[123:] < 0.5
    )
    assert parts.error == pytest.approx(cal.bin_by_confidence(p, chance < 0.5).error)
    assert sum(row.n for row in parts.to_rows()) == 500


@pytest.fixture
def task(generator):
    similarities = torch.randn(80, 6, generator=generator)
    return similarities, torch.randint(6, (80,), generator=generator)


def test_losses_of_the_softmax_are_scikit_learns(task, monkeypatch):
    similarities, labels = task
    p = torch.softmax(1.7 * similarities.double(), 1)
    found = cal.softmax_calibration(similarities, labels, 1.7)
    assert found.log_loss == pytest.approx(log_loss(labels, p, labels=range(6)))
    one_hot = torch.nn.functional.one_hot(labels, 6)
    assert found.brier == pytest.approx((p - one_hot).square().sum(1).mean().item())
    confidence, predicted = p.max(1)
    assert found.ece == pytest.approx(cal.expected_calibration_error(confidence, predicted == labels))
    assert found.ece_mass == pytest.approx(
        cal.expected_calibration_error(confidence, predicted == labels, binning="mass")
    )
    assert sum(row.n for row in found.bins) == 80
    monkeypatch.setattr(cal, "_num_rows_per_block", lambda _: 7)
    blocks = cal.softmax_calibration(similarities, labels, 1.7)
    assert (blocks.ece, blocks.brier, blocks.log_loss) == pytest.approx(
        (found.ece, found.brier, found.log_loss)
    )


def test_losses_of_pairs_are_scikit_learns(task, monkeypatch):
    similarities, labels = task
    p = cal.pair_probabilities(similarities, 1.7, -0.6)
    match = torch.nn.functional.one_hot(labels, 6).bool()
    on_predictions, pairs = cal.sigmoid_calibration(similarities, labels, 1.7, -0.6)
    assert pairs.log_loss == pytest.approx(log_loss(match.flatten(), p.flatten()))
    assert pairs.brier == pytest.approx(brier_score_loss(match.flatten(), p.flatten()))
    assert pairs.ece == pytest.approx(cal.expected_calibration_error(p.flatten(), match.flatten()))
    best, predicted = p.max(1)
    right = predicted == labels
    assert on_predictions.log_loss == pytest.approx(log_loss(right, best))
    assert on_predictions.brier == pytest.approx(brier_score_loss(right, best))
    assert on_predictions.ece == pytest.approx(cal.expected_calibration_error(best, right))
    monkeypatch.setattr(cal, "_num_rows_per_block", lambda _: 7)
    _, blocks = cal.sigmoid_calibration(similarities, labels, 1.7, -0.6)
    assert dataclasses.asdict(blocks) == pytest.approx(dataclasses.asdict(pairs))


def test_saturated_logits_have_finite_losses():
    similarities, labels = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([0, 1])
    found = cal.softmax_calibration(similarities, labels, 1e5)
    assert found.log_loss == pytest.approx(1e5)
    _, pairs = cal.sigmoid_calibration(similarities, labels, 1e5, 0.0)
    assert pairs.log_loss == pytest.approx(5e4)
    assert math.isfinite(pairs.ece)


def test_bad_input_is_reported():
    right = torch.tensor([True, False])
    with pytest.raises(ValueError, match="probability"):
        cal.bin_by_confidence(torch.tensor([0.5, 1.1]), right)
    with pytest.raises(ValueError, match="probability"):
        cal.bin_by_confidence(torch.tensor([0.5, torch.nan]), right)
    with pytest.raises(ValueError, match="N at least 1"):
        cal.bin_by_confidence(torch.zeros(0), right[:0])
    with pytest.raises(ValueError, match="binning 'height'"):
        cal.bin_by_confidence(torch.tensor([0.5, 0.1]), right, binning="height")
