"""The log-partition of vMF densities against exact Bessel functions; PMI against integrals on the sphere."""

import math

import pytest
import torch
from scipy import special
from torch.nn.functional import normalize

from prolip.measures import vmf

DIMS = (2, 3, 4, 5, 16, 33, 34, 64, 256, 768, 1024)
KAPPAS = (1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 31.0, 100.0, 300.0, 1e3, 1e4, 1e5, 1e6)


def log_partition_by_scipy(kappa, dim):
    """ln Gamma(nu + 1) - nu ln(kappa/2) + ln I_nu(kappa); None where scipy's scaled Bessel function underflows."""
    nu = dim / 2 - 1
    scaled = special.ive(nu, kappa)
    if not scaled > 1e-290:
        return None
    return special.gammaln(nu + 1) - nu * math.log(kappa / 2) + math.log(scaled) + kappa


@pytest.mark.parametrize("dim", DIMS)
def test_log_partition_equals_scipys_bessel_functions(dim):
    compared = 0
    for kappa in KAPPAS:
        expected = log_partition_by_scipy(kappa, dim)
        if expected is None:
            continue
        value = vmf.log_partition(torch.tensor(kappa, dtype=torch.float64), dim).item()
        # scipy's own terms cancel: its error is relative to them
        terms = abs(special.gammaln(dim / 2)) + abs((dim / 2 - 1) * math.log(kappa / 2)) + kappa + 1
        assert value == pytest.approx(expected, abs=1e-13 * terms)
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("dim", DIMS)
def test_derivative_equals_ratio_of_bessel_functions(dim):
    nu = dim / 2 - 1
    kappa = torch.tensor([k for k in KAPPAS if special.ive(nu + 1, k) > 1e-290], dtype=torch.float64)
    expected = torch.from_numpy(special.ive(nu + 1, kappa.numpy()) / special.ive(nu, kappa.numpy()))
    torch.testing.assert_close(vmf.compute_log_partition(kappa, dim).derivative, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("nats", [1e-3, 0.5, 5.0, 10.0, 12.0])
def test_find_concentration_solves_the_pmi_of_equal_means(dim, nats):
    """By scipy's Bessel functions: F(2 k) - 2 F(k) is the PMI; for small ones k is sqrt(D PMI)."""
    if nats > 6 * (dim - 1):  # on a circle, 10 nats need a kappa beyond MAX_KAPPA
        with pytest.raises(ValueError, match=f"PMI of {nats}"):
            vmf.find_concentration(nats, dim)
        return
    kappa = vmf.find_concentration(nats, dim)
    parts = [log_partition_by_scipy(k, dim) for k in (2 * kappa, kappa)]
    if None not in parts:
        assert parts[0] - 2 * parts[1] == pytest.approx(nats, rel=1e-6, abs=1e-9)
    if nats < 0.01 * dim:
        assert kappa == pytest.approx(math.sqrt(dim * nats), rel=0.02)


@pytest.mark.parametrize("nats", [0.0, -1.0, math.nan, 1e6])
def test_find_concentration_needs_a_positive_pmi(nats):
    with pytest.raises(ValueError, match="no concentration"):
        vmf.find_concentration(nats, 64)


@pytest.mark.parametrize("dim", DIMS)
def test_float32_is_within_three_roundings_of_float64(dim):
    kappa = torch.logspace(-3, 6, 200)
    for single, double in zip(
        vmf.compute_log_partition(kappa, dim), vmf.compute_log_partition(kappa.double(), dim), strict=True
    ):
        torch.testing.assert_close(single.double(), double, rtol=4e-7, atol=0)


def test_log_partition_in_three_dimensions_is_sinh():
    kappa = torch.logspace(-2, 2, 50, dtype=torch.float64)
    expected = torch.log(torch.sinh(kappa) / kappa)
    torch.testing.assert_close(vmf.log_partition(kappa, 3), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dim", [2, 3, 64])
def test_log_partition_has_its_derivative(dim):
    kappa = torch.logspace(-2, 3, 20, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda k: vmf.log_partition(k, dim), kappa)


@pytest.mark.parametrize("dim", [2, 3, 64])
def test_pmi_equals_the_integral_by_sampling(dim):
    """E over the uniform sphere of the product of two densities, relative to the uniform one."""
    generator = torch.Generator().manual_seed(0)
    concepts = normalize(torch.randn(400_000, dim, dtype=torch.float64, generator=generator), dim=-1)
    means = normalize(torch.randn(2, dim, dtype=torch.float64, generator=generator), dim=-1)
    kappas = torch.tensor([1.5, 3.0], dtype=torch.float64)
    log_densities = [
        k * (concepts @ m) - vmf.log_partition(k, dim) for m, k in zip(means, kappas, strict=True)
    ]
    for log_density in log_densities:  # each is a density
        assert log_density.exp().mean().item() == pytest.approx(1.0, abs=0.02)
    products = (log_densities[0] + log_densities[1]).exp()
    error = (products.std() / len(products) ** 0.5 / products.mean()).item()
    expected = vmf.pmi(means[0] @ means[1], *kappas, dim)
    assert products.mean().log().item() == pytest.approx(expected.item(), abs=4 * error)


def test_pmi_is_symmetric_and_zero_without_knowledge():
    generator = torch.Generator().manual_seed(1)
    cosine = torch.rand(50, dtype=torch.float64, generator=generator) * 2 - 1
    a, b = torch.rand(2, 50, dtype=torch.float64, generator=generator) * 100
    torch.testing.assert_close(vmf.pmi(cosine, a, b, 64), vmf.pmi(cosine, b, a, 64))
    nothing = torch.zeros_like(a)
    torch.testing.assert_close(vmf.pmi(cosine, a, nothing, 64), nothing, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", [3, 64])
def test_expected_pmi_of_a_point_image_is_the_kl_divergence(dim):
    """For images that are points drawn from a text's posterior: E[PMI | text] = KL(vMF || uniform)."""
    kappa = torch.tensor([0.5, 5.0, 50.0], dtype=torch.float64)
    value, mean_cosine = vmf.compute_log_partition(kappa, dim)
    kl = kappa * mean_cosine - value  # E[kappa mu.c - F]
    assert (kl.diff() > 0).all()  # it rises strictly with the concentration
    point = torch.tensor(1e6, dtype=torch.float64)
    expected = vmf.pmi(mean_cosine, kappa, point, dim)  # PMI is linear in the cosine for a point
    torch.testing.assert_close(expected, kl, rtol=1e-3, atol=1e-4)


def test_extreme_concentrations_are_finite():
    kappa = torch.tensor([0.0, 1e-3, 1.0, 1e6])
    cosine = torch.tensor([-1.0, -1.0 - 1e-7, 0.0, 1.0 + 1e-7])[:, None, None]
    value = vmf.pmi(cosine, kappa[:, None], kappa, 64)
    assert torch.isfinite(value).all()


def test_concentration_of_zero_variance_is_the_largest():
    traces = torch.tensor([0.0, 0.1, 1.0])
    kappa = vmf.concentration(traces, torch.tensor(0.0), 4.0)
    assert kappa.tolist() == pytest.approx([vmf.MAX_KAPPA, 1e4, 1.0], rel=1e-5)


def test_dimension_of_one_raises():
    with pytest.raises(ValueError, match="2 dimensions"):
        vmf.log_partition(torch.ones(1), 1)
