import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prolip.gaussian import Gaussian
from prolip.measures import perplexity
from prolip.measures.match import LogitParameters
from prolip.measures.perplexity import log_match_perplexity, log_pool_perplexity, pool_perplexity


def points(generator, count, dims=8, dtype=torch.float32):
    means = torch.randn(count, dims, generator=generator, dtype=torch.float64)
    return Gaussian.point(torch.nn.functional.normalize(means, dim=-1).to(dtype))


def by_loop(queries, pool, scale, left_out=()):
    """exp(entropy) of each row, number by number in float64; left_out[i] is the row that query i leaves out."""
    found = []
    for i, mean in enumerate(queries.mean.double()):
        rows = [j for j in range(len(pool)) if not left_out or j != left_out[i]]
        weights = [math.exp(scale * float(mean @ pool.mean[j].double())) for j in rows]
        total = sum(weights)
        found.append(math.exp(-sum(w / total * math.log(w / total) for w in weights)))
    return found


@pytest.mark.parametrize("k", [0.5, 1.0, 4.0])
def test_it_is_the_loop_in_float64(generator, k):
    queries, pool = points(generator, 7), points(generator, 30)
    found = pool_perplexity(queries, pool, 10.0, k=k)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(by_loop(queries, pool, 10.0 * k), rel=1e-5)


def test_excluded_items_do_not_count(generator):
    queries, pool = points(generator, 4), points(generator, 9)
    exclude = torch.tensor([0, 3, -1, 8])
    found = pool_perplexity(queries, pool, 5.0, exclude=exclude)
    assert found.tolist() == pytest.approx(by_loop(queries, pool, 5.0, exclude.tolist()), rel=1e-5)


@given(st.integers(1, 20), st.floats(0, 1e4), st.integers(0, 2**31))
def test_it_is_between_one_and_the_size_of_the_pool(count, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    found = pool_perplexity(points(generator, 5), points(generator, count), scale)
    assert bool(((found >= 1) & (found <= count * (1 + 1e-12))).all())


def test_k_0_counts_the_whole_pool_and_a_large_k_one_item(generator):
    queries, pool = points(generator, 5), points(generator, 12)
    assert pool_perplexity(queries, pool, 7.0, k=0.0).tolist() == pytest.approx([12.0] * 5)
    assert pool_perplexity(queries, pool, 1e6).tolist() == pytest.approx([1.0] * 5)
    left_out = pool_perplexity(queries, pool, 7.0, k=0.0, exclude=torch.arange(5))
    assert left_out.tolist() == pytest.approx([11.0] * 5)


def test_the_order_of_the_pool_does_not_matter_and_duplicates_double_it(generator):
    queries, pool = points(generator, 5), points(generator, 40)
    found = pool_perplexity(queries, pool, 9.0)
    mixed = pool[torch.randperm(40, generator=generator)]
    assert pool_perplexity(queries, mixed, 9.0).tolist() == pytest.approx(found.tolist())
    twice = Gaussian.point(torch.cat([pool.mean, pool.mean]))
    assert pool_perplexity(queries, twice, 9.0).tolist() == pytest.approx((2 * found).tolist())


def test_blocks_change_nothing(generator, monkeypatch):
    queries, pool = points(generator, 11), points(generator, 6)
    exclude = torch.arange(11) % 6
    whole = log_pool_perplexity(queries, pool, 3.0, exclude=exclude)
    monkeypatch.setattr(perplexity, "BLOCK_PAIRS", 13)
    torch.testing.assert_close(log_pool_perplexity(queries, pool, 3.0, exclude=exclude), whole)


def test_variances_do_not_matter(generator):
    queries, pool = points(generator, 3), points(generator, 6)
    wide = Gaussian(queries.mean, torch.randn(queries.mean.shape, generator=generator))
    assert torch.equal(pool_perplexity(wide, pool, 3.0), pool_perplexity(queries, pool, 3.0))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"scale": -1.0}, "scale"),
        ({"k": math.nan}, "k must"),
        ({"exclude": torch.tensor([0, 1])}, r"int64 \(3,\)"),
        ({"exclude": torch.tensor([0, 1, 6])}, "pool of 6"),
    ],
)
def test_wrong_options_are_rejected(generator, options, named):
    with pytest.raises(ValueError, match=named):
        pool_perplexity(points(generator, 3), points(generator, 6), **{"scale": 1.0, **options})


def test_other_dimensions_and_pools_without_items_are_rejected(generator):
    queries = points(generator, 3)
    with pytest.raises(ValueError, match="8 dimensions, the pool has 5"):
        pool_perplexity(queries, points(generator, 4, dims=5), 1.0)
    with pytest.raises(ValueError, match="0 items"):
        pool_perplexity(queries, points(generator, 4)[:0], 1.0)
    with pytest.raises(ValueError, match="1 items"):
        pool_perplexity(queries, queries[:1], 1.0, exclude=torch.zeros(3, dtype=torch.int64))


def gaussians(generator, count):
    z = points(generator, count)
    return Gaussian(z.mean, torch.randn(z.mean.shape, generator=generator) - 3)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_match_perplexity_is_the_entropy_of_the_posterior_by_the_trained_match(generator, gamma):
    """p(item | query) is proportional to exp(logit) for items that are equally likely beforehand."""
    queries, pool, exclude = (
        gaussians(generator, 5),
        gaussians(generator, 20),
        torch.tensor([0, 4, -1, 3, 19]),
    )
    parameters = LogitParameters(scale=8.0, bias=-3.0, gamma=gamma)
    found = log_match_perplexity(queries, pool, parameters, exclude=exclude)
    for i in range(5):
        rows = [j for j in range(20) if j != exclude[i]]
        odds = [math.exp(float(parameters.logits(pool[j : j + 1], queries[i : i + 1]))) for j in rows]
        p = [value / sum(odds) for value in odds]
        assert found[i].item() == pytest.approx(-sum(x * math.log(x) for x in p), rel=1e-4)


def test_match_perplexity_of_a_deterministic_model_is_that_of_its_means(generator):
    queries, pool = points(generator, 4), points(generator, 9)
    by_match = log_match_perplexity(queries, pool, LogitParameters(scale=6.0, bias=-2.0), k=2.0)
    assert by_match.tolist() == pytest.approx(log_pool_perplexity(queries, pool, 12.0).tolist(), rel=1e-5)


def test_wide_queries_of_a_likelihood_model_have_a_high_match_perplexity(generator):
    query, pool = points(generator, 1), gaussians(generator, 30)
    widths = [Gaussian(query.mean, torch.full_like(query.mean, value)) for value in (-4.0, -3.0, -2.0, -1.0)]
    parameters = LogitParameters(scale=5.0, bias=0.0, gamma=1.0)
    found = log_match_perplexity(Gaussian.cat(widths), pool, parameters)
    assert bool((found.diff() > 0).all())
    by_ppcl = log_match_perplexity(Gaussian.cat(widths), pool, LogitParameters(scale=5.0, bias=0.0))
    assert by_ppcl.tolist() == pytest.approx([by_ppcl[0].item()] * 4), (
        "PPCL's trace is the same for all items"
    )
