"""What evaluations rank by: the choice, or the order that the model was trained for."""

import pytest
import torch

from prolip.evaluation.ranking import resolve_ranking
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import similarity

PPCL, SOFTMAX = LogitParameters(20.0, -12.0), LogitParameters(20.0, None)
LIKELIHOOD = LogitParameters(0.5, -3.0, 2.0)


def test_the_default_is_the_order_that_was_trained():
    assert [resolve_ranking(None, logits).rank_by for logits in (PPCL, SOFTMAX, LIKELIHOOD)] == [
        "csd",
        "csd",
        "match",
    ]
    assert resolve_ranking("cosine", LIKELIHOOD).rank_by == "cosine"


@pytest.mark.parametrize("logits", [PPCL, LIKELIHOOD])
def test_logits_of_a_ranking_by_match_are_those_of_the_model(draw, logits):
    images, texts = draw(5, 7), draw(6, 7)
    _, metric, affine = resolve_ranking("match", logits)
    found = affine.scale * similarity(images, texts, metric) + affine.bias
    torch.testing.assert_close(found, logits.logits_matrix(images, texts))


def test_a_likelihood_has_no_logits_of_csd():
    for rank_by in ("csd", "cosine"):
        assert resolve_ranking(rank_by, LIKELIHOOD) == (rank_by, rank_by, (1.0, None, None, True))
        assert resolve_ranking(rank_by, PPCL) == (rank_by, rank_by, PPCL)


def test_a_softmax_has_no_match():
    with pytest.raises(ValueError, match="softmax"):
        resolve_ranking("match", SOFTMAX)
