import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures import perplexity
from prolip.measures.match import LogitParameters
from prolip.measures.perplexity import estimate_entropy, log_perplexity


def points(generator, count, dims=8, dtype=torch.float32):
    means = torch.randn(count, dims, generator=generator, dtype=torch.float64)
    return Gaussian.point(torch.nn.functional.normalize(means, dim=-1).to(dtype))


def count_fitting(*args, **options):
    return log_perplexity(*args, **options).exp()


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
    found = count_fitting(queries, pool, 10.0, k=k)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(by_loop(queries, pool, 10.0 * k), rel=1e-5)


def test_excluded_items_do_not_count(generator):
    queries, pool = points(generator, 4), points(generator, 9)
    exclude = torch.tensor([0, 3, -1, 8])
    found = count_fitting(queries, pool, 5.0, exclude=exclude)
    assert found.tolist() == pytest.approx(by_loop(queries, pool, 5.0, exclude.tolist()), rel=1e-5)


@given(st.integers(1, 20), st.floats(0, 1e4), st.integers(0, 2**31))
def test_it_is_between_one_and_the_size_of_the_pool(count, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    found = count_fitting(points(generator, 5), points(generator, count), scale)
    assert bool(((found >= 1) & (found <= count * (1 + 1e-12))).all())


def test_k_0_counts_the_whole_pool_and_a_large_k_one_item(generator):
    queries, pool = points(generator, 5), points(generator, 12)
    assert count_fitting(queries, pool, 7.0, k=0.0).tolist() == pytest.approx([12.0] * 5)
    assert count_fitting(queries, pool, 1e6).tolist() == pytest.approx([1.0] * 5)
    left_out = count_fitting(queries, pool, 7.0, k=0.0, exclude=torch.arange(5))
    assert left_out.tolist() == pytest.approx([11.0] * 5)


def test_the_order_of_the_pool_does_not_matter_and_duplicates_double_it(generator):
    queries, pool = points(generator, 5), points(generator, 40)
    found = count_fitting(queries, pool, 9.0)
    mixed = pool[torch.randperm(40, generator=generator)]
    assert count_fitting(queries, mixed, 9.0).tolist() == pytest.approx(found.tolist())
    twice = Gaussian.point(torch.cat([pool.mean, pool.mean]))
    assert count_fitting(queries, twice, 9.0).tolist() == pytest.approx((2 * found).tolist())


def test_blocks_change_nothing(generator, monkeypatch):
    queries, pool = points(generator, 11), points(generator, 6)
    exclude = torch.arange(11) % 6
    whole = log_perplexity(queries, pool, 3.0, exclude=exclude)
    monkeypatch.setattr(perplexity, "BLOCK_PAIRS", 13)
    monkeypatch.setattr(perplexity, "BLOCK_ITEMS", 4)
    torch.testing.assert_close(log_perplexity(queries, pool, 3.0, exclude=exclude), whole)


@pytest.mark.parametrize("size", [1, 3, 7, 20, 50])
@pytest.mark.parametrize("logits", [6.0, LogitParameters(scale=4.0, bias=-3.0, gamma=1.5)])
def test_parts_of_any_size_change_nothing(generator, size, logits):
    queries, pool = points(generator, 8), gaussians(generator, 20)
    exclude = torch.tensor([0, 19, -1, 7, 7, 3, 2, 12])
    parts = (pool[first : first + size].mean_trace() for first in range(0, 20, size))  # read once
    found = log_perplexity(queries, parts, logits, exclude=exclude)
    assert found.tolist() == pytest.approx(
        log_perplexity(queries, pool, logits, exclude=exclude).tolist(), rel=1e-6
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 1e6), st.integers(0, 2**31))
def test_parts_agree_with_the_loop_of_one_softmax(sizes, scale, seed):
    """Also where exp(scale) overflows float64."""
    generator = torch.Generator().manual_seed(seed)
    queries, pool = (
        points(generator, 3, dtype=torch.float64),
        points(generator, sum(sizes), dtype=torch.float64),
    )
    parts = [
        MeanTrace(mean, uncertainty)
        for mean, uncertainty in zip(pool.mean.split(sizes), pool.uncertainty.split(sizes), strict=True)
    ]
    p = (scale * queries.mean @ pool.mean.T).softmax(1)
    expected = -torch.special.xlogy(p, p).sum(1)
    torch.testing.assert_close(log_perplexity(queries, parts, scale), expected, atol=1e-9, rtol=1e-9)


def test_copies_of_one_item_count_each(generator):
    queries, item = points(generator, 4), points(generator, 1)
    pool = Gaussian.cat([item] * 17)
    assert count_fitting(queries, pool, 50.0).tolist() == pytest.approx([17.0] * 4)
    by_match = count_fitting(queries, pool, LogitParameters(scale=9.0, bias=-2.0, gamma=1.0))
    assert by_match.tolist() == pytest.approx([17.0] * 4)


def test_an_estimate_from_all_others_is_exact(generator):
    logits = 4 * torch.randn(60, generator=generator, dtype=torch.float64)
    p = logits.softmax(0)
    exact = float(torch.special.entr(p).sum())
    for known in (1, 10, 59, 60):
        order = torch.randperm(60 - known, generator=generator)
        assert estimate_entropy(logits[:known], logits[known:][order], 60 - known) == pytest.approx(
            (exact, 0.0)
        )


def test_the_interval_of_an_estimate_holds_the_exact_entropy(generator):
    """Of 400 draws 95 % should; the logits are those of a broad query, with half the mass beyond the known ones."""
    logits = (2 * torch.randn(3000, generator=generator, dtype=torch.float64)).sort(descending=True).values
    exact = float(torch.special.entr(logits.softmax(0)).sum())
    known, others = logits[:40], logits[40:]
    assert 0.3 < float(known.exp().sum() / logits.exp().sum()) < 0.7
    hits, errors = 0, []
    for _ in range(400):
        drawn = others[torch.randperm(len(others), generator=generator)[:300]]
        estimate, error = estimate_entropy(known, drawn, len(others))
        hits += abs(estimate - exact) <= 1.96 * error
        errors.append((estimate - exact, error))
    assert 0.91 < hits / 400 < 0.99
    difference, predicted = torch.tensor(errors).T
    assert float(predicted.mean()) == pytest.approx(float(difference.std()), rel=0.15)


def test_an_estimate_needs_a_drawn_item_if_any_is_left(generator):
    with pytest.raises(ValueError, match="5 items are left"):
        estimate_entropy(torch.zeros(3), torch.zeros(0), 5)


def test_variances_do_not_matter(generator):
    queries, pool = points(generator, 3), points(generator, 6)
    wide = Gaussian(queries.mean, torch.randn(queries.mean.shape, generator=generator))
    assert torch.equal(count_fitting(wide, pool, 3.0), count_fitting(queries, pool, 3.0))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"logits": -1.0}, "scale"),
        ({"k": math.nan}, "k must"),
        ({"exclude": torch.tensor([0, 1])}, r"int64 \(3,\)"),
        ({"exclude": torch.tensor([0, 1, 6])}, "pool of 6"),
        ({"exclude": torch.tensor([0, -2, 5])}, "not -2"),
        ({"logits": LogitParameters(scale=math.inf, bias=0.0)}, "scale"),
    ],
)
def test_wrong_options_are_rejected(generator, options, named):
    with pytest.raises(ValueError, match=named):
        count_fitting(points(generator, 3), points(generator, 6), **{"logits": 1.0, **options})


def test_other_dimensions_and_pools_without_items_are_rejected(generator):
    queries = points(generator, 3)
    with pytest.raises(ValueError, match="8 dimensions, the pool has 5"):
        count_fitting(queries, points(generator, 4, dims=5), 1.0)
    with pytest.raises(ValueError, match="0 items"):
        count_fitting(queries, points(generator, 4)[:0], 1.0)
    with pytest.raises(ValueError, match="1 items"):
        count_fitting(queries, queries[:1], 1.0, exclude=torch.zeros(3, dtype=torch.int64))


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
    found = log_perplexity(queries, pool, parameters, exclude=exclude)
    for i in range(5):
        rows = [j for j in range(20) if j != exclude[i]]
        odds = [math.exp(float(parameters.logits(pool[j : j + 1], queries[i : i + 1]))) for j in rows]
        p = [value / sum(odds) for value in odds]
        assert found[i].item() == pytest.approx(-sum(x * math.log(x) for x in p), rel=1e-4)


def test_match_perplexity_of_a_deterministic_model_is_that_of_its_means(generator):
    queries, pool = points(generator, 4), points(generator, 9)
    by_match = log_perplexity(queries, pool, LogitParameters(scale=6.0, bias=-2.0), k=2.0)
    assert by_match.tolist() == pytest.approx(log_perplexity(queries, pool, 12.0).tolist(), rel=1e-5)


def test_wide_queries_of_a_likelihood_model_have_a_high_match_perplexity(generator):
    query, pool = points(generator, 1), gaussians(generator, 30)
    widths = [Gaussian(query.mean, torch.full_like(query.mean, value)) for value in (-4.0, -3.0, -2.0, -1.0)]
    parameters = LogitParameters(scale=5.0, bias=0.0, gamma=1.0)
    found = log_perplexity(Gaussian.cat(widths), pool, parameters)
    assert bool((found.diff() > 0).all())
    by_ppcl = log_perplexity(Gaussian.cat(widths), pool, LogitParameters(scale=5.0, bias=0.0))
    assert by_ppcl.tolist() == pytest.approx([by_ppcl[0].item()] * 4), (
        "PPCL's trace is the same for all items"
    )
