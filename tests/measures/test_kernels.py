"""The blockwise kernels against the three-line definition: broadcast the formula, sum over D."""

import math
from functools import partial

import pytest
import torch
from scipy import special

from prolip.gaussian import Gaussian
from prolip.measures import all_pairs, containment_kernel, formulas, inclusion_kernel
from tests.watch import Watch

FORMS = ("exact", "published")
KERNELS = {
    "inclusion": (inclusion_kernel.inclusion, formulas.inclusion),
    "log_inclusion": (inclusion_kernel.log_inclusion, formulas.log_inclusion),
}
SHAPES = [(1, 1, 1), (3, 5, 7), (5, 3, 64), (2, 9, 130), (0, 4, 8), (4, 0, 8), (33, 65, 3)]


def leaves(a, b):
    return a.mean, a.log_var, b.mean, b.log_var


def broadcast(formula, a, b, *args):
    return formula(a.mean[:, None], a.log_var[:, None], b.mean[None], b.log_var[None], *args).sum(-1)


@pytest.fixture(params=[1, inclusion_kernel.MIN_PAIRS], ids=["by dimension", "by pair"], autouse=True)
def min_pairs(request, monkeypatch):
    """H of a few pairs is otherwise computed by pair alone."""
    monkeypatch.setattr(inclusion_kernel, "MIN_PAIRS", request.param)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_equal_the_broadcast_definition(draw, monkeypatch, name, form, shape):
    n, m, dims = shape
    kernel, formula = KERNELS[name]
    a, b = draw(n, dims, low=-20, high=2), draw(m, dims, low=-20, high=2)
    wanted = broadcast(formula, a, b, form, -3.0)
    for elements in (1, 100, 2**19):  # a pair at a time, uneven blocks, all at once
        monkeypatch.setitem(all_pairs.BLOCK_ELEMENTS, "cpu", elements)
        torch.testing.assert_close(kernel(*leaves(a, b), form, -3.0), wanted)
        terms = partial(formula, form=form, eps=-3.0)
        torch.testing.assert_close(all_pairs.sum_terms(terms, *leaves(a, b)), wanted)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("low", "high"), [(-20, 2), (-10, -8), (-80, 80), (-80, -79), (79, 80), (-80, 0)])
def test_products_never_leave_float32(draw, name, low, high):
    """The number of factors before a logarithm follows the range of the data."""
    kernel, formula = KERNELS[name]
    a, b = (draw(6, 200, low=low, high=high, dtype=torch.float32) for _ in range(2))
    a64, b64 = (Gaussian(z.mean.double(), z.log_var.double()) for z in (a, b))
    wanted = broadcast(formula, a64, b64, "exact", 0.0)
    terms = formula(a64.mean[:, None], a64.log_var[:, None], b64.mean[None], b64.log_var[None], "exact", 0.0)
    slack = terms.abs().sum(-1) + 0.5 * (a64.log_var.abs().sum(-1)[:, None] + b64.log_var.abs().sum(-1))
    error = (kernel(*leaves(a, b), "exact", 0.0).double() - wanted).abs()
    assert (error <= 1e-5 * slack).all()


@pytest.mark.parametrize("extreme", [1.2, 2.4, 4.9, 9.7, 20.0, 39.0, 79.0])
def test_products_of_extreme_rows_never_leave_float32(extreme):
    """Whole rows at one end of the range: nothing averages out in the product."""
    rows = torch.tensor([[-extreme], [extreme]]).expand(2, 128)
    z = Gaussian(torch.zeros(2, 128), rows)
    z64 = Gaussian(z.mean.double(), z.log_var.double())
    for kernel, formula in KERNELS.values():
        wanted = broadcast(formula, z64, z64, "exact", 0.0)
        torch.testing.assert_close(kernel(*leaves(z, z), "exact", 0.0).double(), wanted, rtol=1e-5, atol=1e-3)


def test_narrow_dimensions_are_summed_by_pair(draw, monkeypatch):
    """Where s1 and s2 nearly agree in a dimension, a difference of two quotients would lose the digits."""
    used = []
    for name in ("_sum_by_dimension", "_sum_by_pair"):
        function = getattr(inclusion_kernel, name)
        monkeypatch.setattr(
            inclusion_kernel,
            name,
            lambda *args, name=name, function=function: (used.append(name), function(*args))[1],
        )
    monkeypatch.setattr(inclusion_kernel, "MIN_PAIRS", 25)
    wide, narrow = draw(5, 32, low=-9, high=-8), draw(5, 32, low=-9, high=-8.9)
    wide.log_var[0] = -4
    mixed = Gaussian(wide.mean, torch.cat([wide.log_var[:, :31], narrow.log_var[:, 31:]], dim=1))
    for z in (wide, narrow, mixed):
        inclusion_kernel.inclusion(*leaves(z, z), "exact", 0.0)
    inclusion_kernel.inclusion(*leaves(wide[:4], wide), "exact", 0.0)  # too few pairs
    assert used == ["_sum_by_dimension", *["_sum_by_pair"] * 3]


def test_backward_stores_the_inputs_only(draw, monkeypatch):
    monkeypatch.setitem(all_pairs.BLOCK_ELEMENTS, "cpu", 1024)
    a, b = draw(20, 64), draw(20, 64)
    a.mean.requires_grad_()
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 8
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        all_pairs.sum_terms(partial(formulas.inclusion, form="exact", eps=0.0), *leaves(a, b))
    assert sum(kept.values()) <= 4 * 20 * 64


def test_mills_ratio_equals_scipy():
    t = torch.cat([torch.zeros(1), torch.logspace(-6, 18, 5000)])
    wanted = 0.5 * special.erfcx(t.double().numpy() / math.sqrt(2))
    got = containment_kernel._mills_(t.clone(), torch.empty_like(t)).double()
    torch.testing.assert_close(got, torch.from_numpy(wanted), rtol=4e-7, atol=0)


def test_kernels_make_no_n_m_d_tensor(draw, monkeypatch):
    """The largest tensor that any kernel allocates is a block, however many pairs there are."""
    monkeypatch.setitem(all_pairs.BLOCK_ELEMENTS, "cpu", 1024)
    a, b = draw(40, 64), draw(50, 64)
    with Watch() as seen:
        for kernel, formula in KERNELS.values():
            kernel(*leaves(a, b), "exact", 0.0)
            all_pairs.sum_terms(partial(formula, form="exact", eps=0.0), *leaves(a, b))
        containment_kernel.log_containment(*leaves(a, b), 3.0)
    assert seen.largest == 50 * 64  # an input
    a.mean.requires_grad_()
    with Watch() as seen:
        all_pairs.sum_terms(
            partial(formulas.inclusion, form="exact", eps=0.0), *leaves(a, b)
        ).sum().backward()
    assert seen.largest == 40 * 64, "nor in the backward pass"


@pytest.mark.parametrize("formula", [formulas.inclusion, formulas.log_inclusion])
def test_blocks_have_the_gradients_of_the_definition(draw, monkeypatch, formula):
    monkeypatch.setitem(all_pairs.BLOCK_ELEMENTS, "cpu", 60)
    a, b = draw(5, 6), draw(7, 6)
    tensors = [t.requires_grad_() for t in leaves(a, b)]
    weight = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    terms = partial(formula, form="exact", eps=0.0)
    got = torch.autograd.grad((weight * all_pairs.sum_terms(terms, *tensors)).sum(), tensors)
    wanted = torch.autograd.grad((weight * broadcast(formula, a, b, "exact", 0.0)).sum(), tensors)
    torch.testing.assert_close(got, wanted)
