"""Calibration of match probabilities in batches, against a loop over pairs."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prolip.evaluation.metrics import match_calibration as module
from prolip.evaluation.metrics.match_calibration import draw_batches, match_calibration
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from tests.evaluation.metrics.test_calibration import loop_ece

PPCL, LIKELIHOOD = LogitParameters(8.0, -2.0), LogitParameters(2.0, -4.0, 2.0)


def loop_pairs(images, texts, owner, logits, batches):
    """Probability and match of each pair of a batch, pair by pair."""
    return [
        (torch.sigmoid(logits.logits(images[[owner[i]]], texts[[j]])).item(), i == j)
        for batch in batches
        for i in batch.tolist()
        for j in batch.tolist()
    ]


def check(found, pairs):
    p, y = zip(*pairs, strict=True)
    assert found.ece == pytest.approx(loop_ece(p, y, 15))
    assert found.brier == pytest.approx(sum((a - b) ** 2 for a, b in pairs) / len(pairs))
    assert found.log_loss == pytest.approx(-sum(math.log(a if b else 1 - a) for a, b in pairs) / len(pairs))


@pytest.mark.parametrize("logits", [PPCL, LIKELIHOOD])
@pytest.mark.parametrize("block", [2**20, 10])
def test_calibration_is_the_loop(draw, monkeypatch, logits, block):
    monkeypatch.setattr(module, "BLOCK_PAIRS", block)
    images, texts, owner = draw(23, 6), draw(40, 6), (torch.arange(40) ** 2) % 23
    found = match_calibration(images, texts, owner, logits, 5, seed=3)
    batches = draw_batches(owner, 5, 3)
    assert (found.n, found.batch_size) == (5 * len(batches), 5)
    pairs = loop_pairs(images, texts, owner, logits, batches)
    check(found.pairs, pairs)
    likely = [pair for pair in pairs if pair[0] > 0.02]
    assert 0 < len(likely) == found.num_likely < len(pairs) == 5 * found.n
    check(found.likely, likely)


def test_probabilities_of_a_batch_are_calibrated_only_with_its_size(generator):
    """Texts that say nothing but one of 8 codes, which their images show: P(match | same code) is known exactly."""
    codes = torch.eye(8, dtype=torch.float64)[torch.randint(8, (6000,), generator=generator)]
    z = Gaussian.point(codes)
    batch, other = 20, 80

    def make_logits(size):
        # same code: 1 match among 1 + (size - 1) / 8 on average; other codes never match
        return LogitParameters(40.0, math.log(8 / (size - 1)) - 40.0)

    good = match_calibration(z, z, torch.arange(6000), make_logits(batch), batch)
    assert good.likely.ece < 0.02
    assert good.num_likely / good.n == pytest.approx(1 + (batch - 1) / 8, rel=0.05)
    assert match_calibration(z, z, torch.arange(6000), make_logits(batch), other).likely.ece > 0.1


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 6), st.integers(0, 3))
def test_batches_are_passes_over_images(owner, batch_size, seed):
    owner = torch.tensor(owner, dtype=torch.int64)
    batches = draw_batches(owner, batch_size, seed)
    rows = [row for batch in batches for row in batch.tolist()]
    assert len(set(rows)) == len(rows) == batch_size * len(batches)
    assert all(len(owner[batch].unique()) == batch_size for batch in batches)
    counts = torch.bincount(owner).tolist()
    in_pass = [sum(count > number for count in counts) for number in range(max(counts, default=0))]
    assert len(batches) == sum(count // batch_size for count in in_pass)


def test_every_text_of_an_image_may_come_first():
    owner, found = torch.tensor([0, 1, 0, 0]), torch.zeros(4)
    for seed in range(300):
        found[draw_batches(owner, 2, seed)[0]] += 1
    assert found[1] == 300
    assert ((found[[0, 2, 3]] - 100).abs() < 35).all(), "each about equally often"


def test_without_matches_or_batches_there_is_none(draw):
    images, texts, owner = draw(6, 4), draw(6, 4), torch.arange(6)
    assert match_calibration(images, texts, owner, PPCL, 7) is None
    assert match_calibration(images, texts, owner, LogitParameters(8.0, None), 3) is None
    unlikely = match_calibration(images, texts, owner, LogitParameters(1.0, -50.0), 3)
    assert (unlikely.num_likely, unlikely.likely) == (0, None)
    with pytest.raises(ValueError, match="batch_size"):
        match_calibration(images, texts, owner, PPCL, 0)
