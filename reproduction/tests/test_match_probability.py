import pytest
import torch

from prolip.measures.match import LogitParameters
from prolip.training.recipes.miniature import recipe
from reproduction import match_probability
from reproduction.match_probability import measure_match
from reproduction.tests.factories import embedded


class Logits:
    """An embedder of which only the logits are known."""

    def __init__(self, *values):
        self.logit_parameters = LogitParameters(*values)


def test_constant_probabilities_have_a_known_error():
    """Every pair has the probability sigmoid(bias) of a match, and one of a batch matches."""
    scenes = embedded(lambda caption: 0.1)
    found = measure_match(Logits(1e-9, -2.0), scenes, batch_size=50)
    p, share = torch.sigmoid(torch.tensor(-2.0)).item(), 1 / 50
    assert (found["batch"], found["n"] % 50) == (50, 0)
    assert found["n"] > len(scenes.images), "scenes have several captions, each in a batch of its own pass"
    assert [found["ece"], found["ece_likely"]] == pytest.approx([p - share] * 2, abs=1e-6)
    assert found["brier"] == pytest.approx(share * (1 - p) ** 2 + (1 - share) * p**2, abs=1e-6)
    assert found["num_likely"] == 50 * found["n"]


def test_a_softmax_has_no_match_probability():
    scenes = embedded(lambda caption: 0.1)
    assert measure_match(Logits(10.0, None), scenes) is None
    assert measure_match(Logits(10.0, -4.0), scenes, batch_size=10_000) is None


def test_the_batch_is_that_of_training():
    assert recipe().batch_size == match_probability.BATCH_SIZE
