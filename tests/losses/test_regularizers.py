import math

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.losses import regularizers
from prolip.measures import formulas


@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.parametrize(("c", "eps"), [(10.0, -10.0), (1000.0, -20.0), (10.0, -100.0), (1.0, 0.0)])
def test_inclusion_is_the_mean_over_dimensions_and_pairs(draw, c, eps, form):
    inner, outer = draw(3, 4), draw(3, 4)
    total = 0.0
    for i in range(3):
        for d in range(4):
            h = formulas.inclusion(
                inner.mean[i, d], inner.log_var[i, d], outer.mean[i, d], outer.log_var[i, d], form, eps
            ).item()
            total += max(-c * h, 0) + math.log1p(math.exp(-abs(c * h)))
    got = regularizers.inclusion(inner, outer, c=c, eps=eps, form=form)
    assert got.item() == pytest.approx(total / 12, rel=1e-12)


def test_summed_reduction_has_one_logit_per_pair(draw):
    inner, outer = draw(3, 4), draw(3, 4)
    h = formulas.inclusion(inner.mean, inner.log_var, outer.mean, outer.log_var, "published", -2.0).sum(-1)
    got = regularizers.inclusion(inner, outer, c=3.0, eps=-2.0, reduction="summed")
    torch.testing.assert_close(got, -torch.sigmoid(3.0 * h).log().mean())


@pytest.mark.parametrize("eps", [-10.0, -20.0, -100.0])
def test_gradients(draw, eps):
    a, b = draw(3, 4), draw(3, 4)
    tensors = [t.requires_grad_() for t in (a.mean, a.log_var, b.mean, b.log_var)]

    def function(m1, l1, m2, l2):
        return regularizers.inclusion(Gaussian(m1, l1), Gaussian(m2, l2), c=10.0, eps=eps)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradcheck(lambda m, v: regularizers.vib(Gaussian(m, v)), tensors[:2])


def test_regularizers_reject_invalid_input(draw):
    a, b = draw(5, 4), draw(5, 4)
    with pytest.raises(ValueError, match=r"inner \(1, 4\) and outer \(5, 4\)"):
        regularizers.inclusion(a[:1], b)
    with pytest.raises(ValueError, match="reduction 'mean'"):
        regularizers.inclusion(a, b, reduction="mean")
    with pytest.raises(ValueError, match="form 'Exact'"):
        regularizers.inclusion(a, b, form="Exact")
    with pytest.raises(ValueError, match=r"z must be \(n, D\)"):
        regularizers.vib(a[0])
    with pytest.raises(TypeError, match=r"log_var is torch\.bfloat16"):
        regularizers.vib(Gaussian(a.mean, a.log_var.bfloat16()))


def test_half_precision_means_are_raised_first(draw):
    a, b = (draw(5, 64, dtype=torch.float32).to(torch.bfloat16) for _ in range(2))
    full = [Gaussian(z.mean.float(), z.log_var) for z in (a, b)]
    assert torch.equal(regularizers.inclusion(a, b, eps=0.0), regularizers.inclusion(*full, eps=0.0))
    assert torch.equal(regularizers.vib(a), regularizers.vib(full[0]))


def test_tiny_epsilon_leaves_float32_finite(draw):
    """At eps = -100 the release's arithmetic underflows to denormals and NaN."""
    a, b = (draw(8, 16, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    tensors = [t.requires_grad_() for t in (a.mean, a.log_var, b.mean, b.log_var)]
    loss = regularizers.inclusion(a, b, c=1000.0, eps=-100.0)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, tensors))


def test_training_on_inclusion_increases_outer_and_decreases_inner_variance(draw):
    inner, outer = (
        Gaussian(draw(1, 4).mean, torch.full((1, 4), -5.0).double().requires_grad_()) for _ in range(2)
    )
    regularizers.inclusion(inner, outer).backward()
    assert (inner.log_var.grad > 0).all()
    assert (outer.log_var.grad < 0).all()


def test_vib_is_the_mean_kl(draw):
    z = draw(5, 4)
    wanted = 0.5 * (z.var + z.mean.square() - 1 - z.log_var).mean()
    torch.testing.assert_close(regularizers.vib(z), wanted)


def test_parts_add_up_and_an_empty_batch_gives_zero(draw):
    a, b = draw(5, 4), draw(5, 4)
    for function in (
        lambda s, **k: regularizers.inclusion(a[s], b[s], **k),
        lambda s, **k: regularizers.vib(a[s], **k),
    ):
        whole = function(slice(None))
        torch.testing.assert_close(function(slice(2), count=5) + function(slice(2, 5), count=5), whole)
        nothing = function(slice(0), count=5)
        assert nothing.item() == 0
        assert function(slice(0)).item() == 0, "not 0/0"
