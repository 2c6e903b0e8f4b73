import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from prolip.evaluation.metrics import fit


@pytest.fixture
def pairs(generator):
    x = 0.3 + 0.05 * torch.randn(4000, generator=generator, dtype=torch.float64)
    chance = torch.rand(4000, generator=generator, dtype=torch.float64)
    return x, chance < torch.sigmoid(40 * x - 15)


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_and_bias_are_those_of_a_logistic_regression(pairs, weighted, generator, monkeypatch):
    x, match = pairs
    weights = torch.rand(len(x), generator=generator) + 0.1 if weighted else None
    found = fit.fit_scale_and_bias(x, match, weights)
    reference = LogisticRegression(C=math.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    reference.fit(100 * x[:, None], match, weights)
    assert found.converged
    assert found.scale == pytest.approx(100 * reference.coef_[0, 0], rel=1e-4)
    assert found.bias == pytest.approx(reference.intercept_[0], rel=1e-4)
    if not weighted:
        assert found.scale == pytest.approx(40, rel=0.1), "the scale that made the data"
    monkeypatch.setattr(fit, "BLOCK_PAIRS", 700)
    blocks = fit.fit_scale_and_bias(x, match, weights)
    assert (blocks.scale, blocks.bias) == pytest.approx((found.scale, found.bias), rel=1e-6)


def test_mean_probability_is_the_fraction_of_matches(pairs):
    x, match = pairs
    found = fit.fit_scale_and_bias(x, match)
    p = torch.sigmoid(found.scale * x + found.bias)
    assert p.mean().item() == pytest.approx(match.double().mean().item(), rel=1e-6)


def test_whole_weights_are_repetitions(pairs):
    x, match = (values[:300] for values in pairs)
    times = 1 + torch.arange(300) % 3
    weighted = fit.fit_scale_and_bias(x, match, times)
    repeated = fit.fit_scale_and_bias(x.repeat_interleave(times), match.repeat_interleave(times))
    assert (weighted.scale, weighted.bias) == pytest.approx((repeated.scale, repeated.bias), rel=1e-5)


@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=12))
def test_any_data_with_both_kinds_has_a_finite_fit_that_no_step_betters(samples):
    """Separable, constant, reversed data and so on."""
    x = torch.tensor([float(v) for v, _ in samples]).double()
    match = torch.tensor([m for _, m in samples])
    if match.all() or not match.any():
        with pytest.raises(ValueError, match="pairs that don't"):
            fit.fit_scale_and_bias(x, match)
        return
    found = fit.fit_scale_and_bias(x, match)
    assert found.converged
    assert math.isfinite(found.scale)
    assert math.isfinite(found.bias)

    def loss(scale, bias):
        logit = scale * x + bias
        ridge = fit.RIDGE / 2 * (scale * x.std(correction=0).item()) ** 2
        return -torch.nn.functional.logsigmoid(torch.where(match, logit, -logit)).mean().item() + ridge

    best = loss(found.scale, found.bias)
    assert best == pytest.approx(found.loss)
    for scale, bias in ((1e-2, 0), (-1e-2, 0), (0, 1e-2), (0, -1e-2)):
        assert loss(found.scale + scale, found.bias + bias) >= best - 1e-12


def test_separable_pairs_have_a_finite_scale():
    x = torch.tensor([0.1, 0.2, 0.3, 0.4])
    found = fit.fit_scale_and_bias(x, x > 0.25)
    assert found.converged
    assert found.loss < 1e-5
    assert 50 < found.scale < 1e4


@pytest.fixture
def task(generator):
    """Labels drawn from softmax(8 x similarity)."""
    x = torch.randn(3000, 5, generator=generator, dtype=torch.float64) * 0.2
    return x, torch.multinomial(torch.softmax(8 * x, 1), 1, generator=generator)[:, 0]


def test_the_temperature_is_the_least_of_cross_entropy(task, monkeypatch):
    x, labels = task
    found = fit.fit_temperature(x, labels)
    wanted = minimize_scalar(
        lambda s: torch.nn.functional.cross_entropy(s * x, labels).item(),
        bounds=(0, 100),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert found.converged
    assert found.scale == pytest.approx(wanted.x, rel=1e-5)
    assert found.loss == pytest.approx(wanted.fun)
    assert found.scale == pytest.approx(8, rel=0.1), "the scale that made the data"
    monkeypatch.setattr(fit, "BLOCK_PAIRS", 700)
    assert fit.fit_temperature(x, labels).scale == pytest.approx(found.scale, rel=1e-6)


def test_a_temperature_of_reversed_or_constant_similarities_is_zero(task):
    x, labels = task
    for similarities in (-x, torch.ones(3000, 5)):
        found = fit.fit_temperature(similarities, labels)
        assert found.scale == 0.0
        assert found.loss == pytest.approx(math.log(5))


@given(st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=8), st.data())
def test_any_task_has_a_finite_temperature(rows, data):
    labels = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    found = fit.fit_temperature(torch.tensor(rows).double(), torch.tensor(labels))
    assert found.converged
    assert 0.0 <= found.scale < 1e4
    assert found.loss <= math.log(3) + 1e-12


def test_bad_input_is_reported():
    x, match = torch.zeros(2), torch.tensor([True, False])
    for arguments, message in (
        ((x, match[:1]), "one shape"),
        ((x, match.long()), "bool"),
        ((torch.tensor([0.0, torch.inf]), match), "finite"),
        ((x, match, torch.tensor([1.0, -1.0])), "negative"),
        ((x, match, torch.tensor([1.0, 0.0])), "pairs that don't"),
    ):
        with pytest.raises(ValueError, match=message):
            fit.fit_scale_and_bias(*arguments)
    with pytest.raises(ValueError, match=r"\(N, C\)"):
        fit.fit_temperature(x, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="finite"):
        fit.fit_temperature(torch.full((1, 2), torch.nan), torch.tensor([0]))
