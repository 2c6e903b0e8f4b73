"""Nearest items: exact, in order, ties by index, however it is cut into blocks."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from prolip.gaussian import Gaussian
from prolip.measures import nearest as module
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import find_nearest, similarity, stable_topk
from prolip.measures.public import csd_matrix


def test_csd_similarity_is_one_minus_half_the_distance(draw):
    queries, items = draw(5, 7), draw(9, 7)
    torch.testing.assert_close(similarity(queries, items), 1 - csd_matrix(queries, items) / 2)
    longer = Gaussian(3 * items.mean, items.log_var)
    torch.testing.assert_close(similarity(queries, longer), 1 - csd_matrix(queries, longer) / 2)


def test_cosine_similarity_ignores_lengths_and_variances(draw):
    queries, items = draw(5, 7), draw(9, 7)
    expected = [[float(torch.cosine_similarity(a, b, dim=0)) for b in items.mean] for a in queries.mean]
    longer = Gaussian(3 * items.mean, items.log_var + 1)
    torch.testing.assert_close(
        similarity(queries, longer, "cosine"), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("k", [1, 3, 11, 40])
def test_nearest_equals_a_sort_of_all_pairs(draw, monkeypatch, by, k):
    monkeypatch.setattr(module, "BLOCK", (4, 5))
    queries, items = draw(10, 6), draw(11, 6)
    values, places = find_nearest(queries, items, k, metric=by)
    expected, order = similarity(queries, items, by).sort(dim=1, descending=True)
    torch.testing.assert_close(values, expected[:, :k])
    assert torch.equal(places, order[:, :k])


LIKELIHOOD = LogitParameters(0.5, -3.0, 2.0)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_nearest_by_the_match_of_a_likelihood_is_a_loop(draw, monkeypatch, k):
    monkeypatch.setattr(module, "PMI_BLOCK", (4, 5))
    queries, items = draw(10, 6), draw(11, 6)
    logits = [[LIKELIHOOD.logits(queries[[q]], items[[i]]).item() for i in range(11)] for q in range(10)]
    values, places = find_nearest(queries, items, k, metric=LIKELIHOOD)
    for row, found, where in zip(logits, values, places, strict=True):
        order = sorted(range(11), key=lambda i, row=row: -row[i])[:k]
        assert where.tolist() == order
        assert found.tolist() == pytest.approx([row[i] for i in order])
    everything = similarity(queries, items, LIKELIHOOD)
    torch.testing.assert_close(everything, torch.tensor(logits, dtype=torch.float64))
    assert torch.equal(find_nearest(queries, items.mean_trace(), k, metric=LIKELIHOOD)[1], places)


def test_similarity_by_match_has_a_gradient_and_takes_no_queries(draw, monkeypatch):
    monkeypatch.setattr(module, "PMI_BLOCK", (1, 4))
    queries, items = draw(3, 6), draw(4, 6)
    mean = queries.mean.clone().requires_grad_()
    similarity(Gaussian(mean, queries.log_var), items, LIKELIHOOD).sum().backward()
    expected = mean.grad.clone()
    mean.grad = None
    LIKELIHOOD.logits_matrix(Gaussian(mean, queries.log_var), items).sum().backward()
    torch.testing.assert_close(mean.grad, expected)
    assert similarity(queries[:0], items, LIKELIHOOD).shape == (0, 4)


@pytest.mark.parametrize("bias", [-7.0, None])
def test_the_match_of_ppcl_has_exactly_the_order_of_csd(draw, bias):
    queries, items = draw(50, 4, dtype=torch.float32), draw(400, 4, dtype=torch.float32)
    items = Gaussian.cat([items, items])  # ties
    values, places = find_nearest(queries, items, 800, metric=LogitParameters(7.3, bias))
    csd, order = find_nearest(queries, items, 800)
    assert torch.equal(places, order)
    torch.testing.assert_close(values, 7.3 * csd + (bias or 0.0))
    torch.testing.assert_close(
        similarity(queries, items, LogitParameters(7.3, bias)).gather(1, places), values
    )


def test_the_match_of_points_has_the_order_of_the_cosine(draw):
    queries, items = (Gaussian.point(draw(count, 8).mean) for count in (20, 90))
    places = find_nearest(queries, items, 90, metric=LogitParameters(10.0, -10.0))[1]
    assert torch.equal(places, find_nearest(queries, items, 90, metric="cosine")[1])


@hypothesis.given(
    st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 8)
)
def test_nearest_orders_ties_by_index(rows, k):
    scores = torch.tensor(rows, dtype=torch.float32)
    values, places = stable_topk(scores, k)
    for row, best, where in zip(rows, values.tolist(), places.tolist(), strict=True):
        order = sorted(range(6), key=lambda i: (-row[i], i))[:k]
        assert where == order
        assert best == [row[i] for i in order]


def test_nearest_orders_ties_across_blocks(draw, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", (2, 3))
    one = draw(1, 4)
    items = Gaussian.cat([one] * 8)
    assert find_nearest(draw(5, 4), items, 4)[1].tolist() == [[0, 1, 2, 3]] * 5


def test_nearest_of_points(draw):
    points = Gaussian.point(draw(6, 4).mean)
    assert torch.equal(find_nearest(points, points, 1)[1][:, 0], torch.arange(6))


def test_nearest_rejects_invalid_input(draw):
    with pytest.raises(ValueError, match="different models"):
        find_nearest(draw(2, 3), draw(2, 4), 1)
    with pytest.raises(ValueError, match="items are empty"):
        find_nearest(draw(2, 3), draw(0, 3), 1)
    with pytest.raises(ValueError, match="rows, D"):
        similarity(draw(2, 2, 3), draw(2, 3))
    with pytest.raises(ValueError, match="not one of"):
        similarity(draw(2, 3), draw(2, 3), "l2")
    with pytest.raises(ValueError, match="k must be"):
        find_nearest(draw(2, 3), draw(2, 3), 0)


def test_half_precision_is_multiplied_in_float32(draw):
    wide = draw(6, 32, dtype=torch.float32), draw(40, 32, dtype=torch.float32)
    queries, items = (Gaussian(z.mean.bfloat16(), z.log_var) for z in wide)
    found = similarity(queries, items, "cosine")
    exact = torch.nn.functional.normalize(queries.mean.double(), dim=-1)
    exact = exact @ torch.nn.functional.normalize(items.mean.double(), dim=-1).mT
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)
