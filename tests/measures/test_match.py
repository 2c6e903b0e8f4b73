"""Logits of matches: PPCL's formula and the likelihood's, paired and for all pairs."""

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.measures import public, vmf
from prolip.measures.match import LogitParameters


@pytest.fixture
def pair(draw):
    return draw(4, 6, low=-4, high=-1), draw(4, 6, low=-4, high=-1)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_paired_logits_are_the_diagonal_of_all_pairs(pair, gamma):
    parameters = LogitParameters(3.0, -1.0, gamma)
    torch.testing.assert_close(parameters.logits(*pair), parameters.logits_matrix(*pair).diagonal())


def test_a_likelihood_is_ranked_by_match_and_all_others_by_csd():
    assert LogitParameters(3.0, -1.0, 2.0).default_rank_by == "match"
    assert {LogitParameters(3.0, bias).default_rank_by for bias in (-1.0, None)} == {"csd"}


def test_points_are_compared_as_matches_are_but_by_csd_for_a_likelihood():
    means_only = LogitParameters(3.0, -1.0, reads_variances=False)
    others = (LogitParameters(3.0, -1.0), LogitParameters(3.0, -1.0, 2.0))
    assert [one.nearest_metric for one in (means_only, *others)] == ["cosine", "csd", "csd"]


def test_logits_without_gamma_are_those_of_csd(pair):
    unit = [Gaussian(torch.nn.functional.normalize(z.mean, dim=-1), z.log_var) for z in pair]
    expected = 3.0 * (1 - 0.5 * public.csd_matrix(*unit)) - 1.0
    torch.testing.assert_close(LogitParameters(3.0, -1.0).logits_matrix(*unit), expected)


def test_logits_with_gamma_are_pmi_plus_bias(pair):
    images, texts = pair
    kappas = [3.0 * z.uncertainty**-2.0 for z in pair]
    for i in range(4):
        for j in range(4):
            cosine = images.mean[i] @ texts.mean[j]
            expected = vmf.pmi(cosine, kappas[0][i], kappas[1][j], 6) - 1.0
            actual = LogitParameters(3.0, -1.0, 2.0).logits_matrix(images, texts)[i, j]
            torch.testing.assert_close(actual, expected)
