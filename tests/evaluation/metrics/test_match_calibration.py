"""Calibration of match probabilities in batches, against a loop over pairs."""

import math

import pytest
import torch

from prolip.evaluation.metrics import match_calibration as module
from prolip.evaluation.metrics.match_calibration import match_calibration
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from tests.evaluation.metrics.test_calibration import loop_ece

PPCL, LIKELIHOOD = LogitParameters(8.0, -2.0), LogitParameters(0.5, -3.0, 2.0)


def loop_pairs(images, texts, logits, batch_size, seed):
    """Probability and match of each pair of a batch, pair by pair."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).tolist()
    pairs = []
    for first in range(0, len(order) - batch_size + 1, batch_size):
        batch = order[first : first + batch_size]
        for i in batch:
            for j in batch:
                pairs.append((torch.sigmoid(logits.logits(images[[i]], texts[[j]])).item(), i == j))
    return pairs


def check(found, pairs):
    p, y = zip(*pairs, strict=True)
    assert found.ece == pytest.approx(loop_ece(p, y, 15))
    assert found.brier == pytest.approx(sum((a - b) ** 2 for a, b in pairs) / len(pairs))
    assert found.log_loss == pytest.approx(-sum(math.log(a if b else 1 - a) for a, b in pairs) / len(pairs))


@pytest.mark.parametrize("logits", [PPCL, LIKELIHOOD])
@pytest.mark.parametrize("block", [2**20, 10])
def test_calibration_is_the_loop(draw, monkeypatch, logits, block):
    monkeypatch.setattr(module, "BLOCK_PAIRS", block)
    images, texts = draw(23, 6), draw(23, 6)
    found = match_calibration(images, texts, logits, 5, seed=3)
    assert (found.n, found.batch_size) == (20, 5)
    pairs = loop_pairs(images, texts, logits, 5, 3)
    check(found.pairs, pairs)
    likely = [pair for pair in pairs if pair[0] > 0.02]
    assert 0 < len(likely) == found.num_likely < len(pairs) == 100
    check(found.likely, likely)


def test_probabilities_of_a_batch_are_calibrated_only_with_its_size(generator):
    """Texts that say nothing but one of 8 codes, which their images show: P(match | same code) is known exactly."""
    codes = torch.eye(8, dtype=torch.float64)[torch.randint(8, (6000,), generator=generator)]
    z = Gaussian.point(codes)
    batch, other = 20, 80

    def make_logits(size):
        # same code: 1 match among 1 + (size - 1) / 8 on average; other codes never match
        return LogitParameters(40.0, math.log(8 / (size - 1)) - 40.0)

    good = match_calibration(z, z, make_logits(batch), batch)
    assert good.likely.ece < 0.02
    assert good.num_likely / good.n == pytest.approx(1 + (batch - 1) / 8, rel=0.05)
    assert match_calibration(z, z, make_logits(batch), other).likely.ece > 0.1


def test_without_matches_or_batches_there_is_none(draw):
    images, texts = draw(6, 4), draw(6, 4)
    assert match_calibration(images, texts, PPCL, 7) is None
    assert match_calibration(images, texts, LogitParameters(8.0, None), 3) is None
    unlikely = match_calibration(images, texts, LogitParameters(1.0, -50.0), 3)
    assert (unlikely.num_likely, unlikely.likely) == (0, None)
    with pytest.raises(ValueError, match=r"\(6, 4\).*\(5, 4\)"):
        match_calibration(images, texts[:5], PPCL, 3)
    with pytest.raises(ValueError, match="batch_size"):
        match_calibration(images, texts, PPCL, 0)
