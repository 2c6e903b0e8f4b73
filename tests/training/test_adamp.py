"""AdamP against loops over numbers, and against AdamW where nothing is projected."""

import math

import pytest
import torch

from prolip.training.adamp import AdamP

LR, BETAS, EPS, DECAY = 0.05, (0.9, 0.95), 1e-6, 0.2


def randn(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows_across(weight, seed):
    """StepOutput whose rows are orthogonal to those of the weight."""
    g = randn(*weight.shape, seed=seed)
    return g - weight * (g * weight).sum(1, keepdim=True) / (weight * weight).sum(1, keepdim=True)


def whole_across(weight, seed):
    """A gradient that is orthogonal to the weight, but not row by row."""
    g = randn(*weight.shape, seed=seed)
    return g - weight * (g * weight).sum() / (weight * weight).sum()


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def nearly_orthogonal(w, g, delta):
    return abs(dot(w, g)) / math.sqrt(dot(w, w) * dot(g, g)) < delta / math.sqrt(len(w))


def without(w, u):
    """u without its part along w."""
    return [b - a * dot(w, u) / dot(w, w) for a, b in zip(w, u, strict=True)]


def by_hand(w, g, m, v, t, delta=0.1):
    """One step of a matrix given as lists of rows: new rows and which view was projected."""
    width = len(w[0])
    flat = [[x for row in a for x in row] for a in (w, g, m, v)]
    W, G, M, V = flat
    M[:] = [BETAS[0] * a + (1 - BETAS[0]) * b for a, b in zip(M, G, strict=True)]
    V[:] = [BETAS[1] * a + (1 - BETAS[1]) * b * b for a, b in zip(V, G, strict=True)]
    U = [
        a / (1 - BETAS[0] ** t) / (math.sqrt(b / (1 - BETAS[1] ** t)) + EPS)
        for a, b in zip(M, V, strict=True)
    ]
    view, decay = "none", DECAY
    if all(nearly_orthogonal(a, b, delta) for a, b in zip(w, g, strict=True)):
        view, decay = "rows", 0.1 * DECAY
        U = [u for i, a in enumerate(w) for u in without(a, U[i * width : (i + 1) * width])]
    elif nearly_orthogonal(W, G, delta):
        view, decay = "whole", 0.1 * DECAY
        U = without(W, U)
    W = [a * (1 - LR * decay) - LR * b for a, b in zip(W, U, strict=True)]
    return [[a[i : i + width] for i in range(0, len(a), width)] for a in (W, M, V)], view


def adamp(parameters, **options):
    return AdamP(parameters, LR, betas=BETAS, eps=EPS, weight_decay=DECAY, **options)


def test_is_the_definition_for_gradients_across_and_along():
    weight = torch.nn.Parameter(randn(3, 5, seed=0))
    optimizer = adamp([weight])
    rows = [weight.tolist(), [[0.0] * 5] * 3, [[0.0] * 5] * 3]
    views = []
    for t in range(1, 8):
        make = (rows_across, whole_across, lambda w, seed: randn(*w.shape, seed=seed) + w)[t % 3]
        weight.grad = make(weight.detach(), seed=t)
        rows, view = by_hand(rows[0], weight.grad.tolist(), rows[1], rows[2], t)
        views.append(view)
        optimizer.step()
        assert weight.tolist() == [pytest.approx(row, rel=1e-11, abs=1e-13) for row in rows[0]]
    assert set(views) == {"rows", "whole", "none"}, "the test must see every branch"


def test_more_than_two_axes_are_rows_of_the_first():
    flat, deep = (torch.nn.Parameter(randn(4, 6, seed=3).reshape(shape)) for shape in ((4, 6), (4, 2, 3)))
    optimizer = adamp([flat, deep])
    for t in range(4):
        flat.grad = (rows_across, whole_across)[t % 2](flat.detach(), seed=t)
        deep.grad = flat.grad.reshape(4, 2, 3).clone()
        optimizer.step()
    torch.testing.assert_close(deep.detach().reshape(4, 6), flat.detach(), rtol=1e-12, atol=1e-14)


def test_never_projecting_is_adamw():
    shapes = ((4, 6), (6,), ())
    ours, theirs = ([torch.nn.Parameter(randn(*s, seed=1)) for s in shapes] for _ in range(2))
    a = adamp(ours, delta=0.0)
    b = torch.optim.AdamW(theirs, LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    for t in range(20):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = rows_across(p.detach(), seed=t) if p.ndim == 2 else randn(*p.shape, seed=t)
            q.grad = p.grad.clone()
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)
        for key in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(a.state[p][key], b.state[q][key], rtol=1e-12, atol=1e-12)


def test_vectors_are_never_projected():
    ours, theirs = (torch.nn.Parameter(torch.tensor([3.0, 0.0]).double()) for _ in range(2))
    ours.grad, theirs.grad = (torch.tensor([0.0, 1.0]).double() for _ in range(2))  # orthogonal
    adamp([ours]).step()
    torch.optim.AdamW([theirs], LR, betas=BETAS, eps=EPS, weight_decay=DECAY).step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_projected_step_without_decay_leaves_the_length_to_first_order():
    weight = torch.nn.Parameter(randn(3, 50, seed=0))
    weight.grad = rows_across(weight.detach(), seed=1)
    before = weight.detach().clone()
    AdamP([weight], LR, betas=BETAS, eps=EPS).step()
    move = weight.detach() - before
    assert move.norm() > 0.1
    assert (move * before).sum(1).abs().max() < 1e-12


def test_rate_zero_and_missing_gradients_change_nothing():
    weight, idle = (torch.nn.Parameter(randn(3, 5, seed=0)) for _ in range(2))
    before = weight.detach().clone()
    weight.grad = rows_across(before, seed=1)
    AdamP([weight, idle], 0.0, betas=BETAS, eps=EPS, weight_decay=DECAY).step()
    assert torch.equal(weight, before)
    optimizer = adamp([idle])
    optimizer.step()
    assert torch.equal(idle, before)
    assert not optimizer.state[idle]


def test_zero_weights_and_gradients_stay_finite():
    weight, still = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.ones(2, 3))
    weight.grad, still.grad = torch.ones(2, 3), torch.zeros(2, 3)
    optimizer = adamp([weight, still])
    optimizer.step()
    assert torch.equal(weight, torch.full((2, 3), weight[0, 0].item()))
    assert weight[0, 0].item() == pytest.approx(-LR, rel=1e-5)
    assert still.mean().item() == pytest.approx(1 - LR * 0.1 * DECAY), "no gradient at all is orthogonal"
