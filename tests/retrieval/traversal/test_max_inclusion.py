"""Tests of the most inclusive candidate against a comparison of all pairs."""

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.retrieval.traversal import max_inclusion
from prolip.retrieval.traversal.max_inclusion import find_max_inclusion

REGIMES = {
    "images below texts": ((-11.5, -10.5), (-9.8, -8.8)),
    "equal ranges": ((-6.0, -5.0), (-6.0, -5.0)),
    "queries more uncertain": ((-4.0, -3.0), (-8.0, -7.0)),
    "anything": ((-12.0, 2.0), (-12.0, 2.0)),
    "all the same": ((-5.0, -5.0), (-5.0, -5.0)),
}


def pairs_of(measure, queries, candidates, **options):
    matrix = {"inclusion": public.log_inclusion_matrix, "containment": public.log_containment_matrix}
    return matrix[measure](queries, candidates, **options)


@pytest.mark.parametrize("measure", ["inclusion", "containment"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("regime", REGIMES)
def test_find_max_inclusion_matches_all_pairs(draw, monkeypatch, measure, dtype, regime):
    monkeypatch.setattr(max_inclusion, "FEW_QUERIES", 3)
    monkeypatch.setattr(max_inclusion, "BLOCK", (16, 64))
    monkeypatch.setattr(max_inclusion, "MAX_EXACT_VALUES", 400)
    (low1, high1), (low2, high2) = REGIMES[regime]
    queries = draw(40, 48, low=low1, high=high1, dtype=dtype)
    candidates = draw(150, 48, low=low2, high=high2, dtype=dtype)
    values, indices = find_max_inclusion(queries, candidates, measure)
    full = pairs_of(measure, queries, candidates)
    torch.testing.assert_close(values, full.amax(1).to(dtype), rtol=1e-4, atol=1e-3)
    chosen = full.gather(1, indices[:, None])[:, 0]
    torch.testing.assert_close(chosen, full.amax(1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inclusion_bound_is_never_below_the_exact_value(draw, regime, form, dtype):
    (low1, high1), (low2, high2) = REGIMES[regime]
    queries = draw(30, 32, low=low1, high=high1, dtype=dtype)
    candidates = draw(60, 32, low=low2, high=high2, dtype=dtype)
    bound = max_inclusion._inclusion_bound(queries, candidates, form)
    exact = public.log_inclusion_matrix(queries.to(torch.float64), candidates.to(torch.float64), form=form)
    assert bool((bound >= exact).all())


def test_inclusion_bound_skips_most_pairs_if_images_are_more_certain(draw, monkeypatch):
    """As in trained models. Without this, the search would be right, and slow."""
    monkeypatch.setattr(max_inclusion, "FEW_QUERIES", 3)
    compared, matrix = [], public.log_inclusion_matrix
    monkeypatch.setattr(
        public, "log_inclusion_matrix", lambda a, b, **k: (compared.append(len(a)), matrix(a, b, **k))[1]
    )
    low, high = REGIMES["images below texts"][0]
    find_max_inclusion(draw(50, 256, low=low, high=high), draw(400, 256, low=-9.8, high=-8.8))
    assert sum(compared) <= 5


@pytest.mark.parametrize("few", [0, 64])
def test_find_max_inclusion_takes_the_first_of_equal_candidates(draw, monkeypatch, few):
    monkeypatch.setattr(max_inclusion, "FEW_QUERIES", few)
    one = draw(1, 8)
    assert find_max_inclusion(draw(3, 8), Gaussian.cat([one] * 30))[1].tolist() == [0, 0, 0]


def test_find_max_inclusion_prefers_uncertain_but_not_far_candidates():
    """The largest H would be the far one's (docs/measures.md)."""
    query = Gaussian(torch.zeros(1, 4), torch.full((1, 4), -4.0))
    means = torch.tensor([0.5, 0.5, 50.0])[:, None].expand(3, 4)
    candidates = Gaussian(means, torch.tensor([-8.0, -3.0, -1.0])[:, None].expand(3, 4))
    assert find_max_inclusion(query, candidates)[1].item() == 1
    assert find_max_inclusion(query, candidates, "containment")[1].item() == 1
    assert public.inclusion_matrix(query, candidates).argmax().item() == 2


def test_find_max_inclusion_with_few_candidates_or_no_queries(draw):
    assert find_max_inclusion(draw(3, 5), draw(1, 5))[1].tolist() == [0, 0, 0]
    values, indices = find_max_inclusion(draw(0, 5), draw(4, 5))
    assert values.shape == indices.shape == (0,)


def test_find_max_inclusion_rejects_invalid_input(draw):
    with pytest.raises(ValueError, match="same dimensions"):
        find_max_inclusion(draw(2, 3), draw(2, 4))
    with pytest.raises(ValueError, match="a point includes nothing"):
        find_max_inclusion(draw(2, 3), Gaussian.point(draw(2, 3).mean))
    with pytest.raises(ValueError, match="not one of"):
        find_max_inclusion(draw(2, 3), draw(2, 3), "H")
