"""Every closed form against its definition: an integral by quadrature, or the paper's own algebra in float64."""

import math

import numpy
import pytest
import torch
from scipy import integrate, stats

from prolip.measures import formulas

PAIRS = [
    ((0.0, 0.5), (0.0, 2.0)),
    ((0.3, 1.5), (-0.7, 0.4)),
    ((1.0, 0.05), (0.9, 0.2)),
    ((-2.0, 0.7), (2.0, 0.7)),
    ((0.0, 0.01), (0.02, 0.03)),
]
FORMS = ("exact", "published")


def tensors(first, second):
    (m1, sd1), (m2, sd2) = first, second
    values = (m1, 2 * math.log(sd1), m2, 2 * math.log(sd2))
    return tuple(torch.tensor(v, dtype=torch.float64) for v in values)


def log_integral(log_integrand, centre, width):
    """log of the integral of exp(log_integrand), by quadrature about its peak."""
    x = numpy.linspace(centre - 14 * width, centre + 14 * width, 20001)
    values = log_integrand(x)
    peak = values.max()
    return peak + math.log(integrate.simpson(numpy.exp(values - peak), x=x))


@pytest.mark.parametrize("pair", PAIRS)
def test_log_inclusion_is_the_integral_of_p1_squared_p2(pair):
    (m1, sd1), (m2, sd2) = pair
    p1, p2 = stats.norm(m1, sd1), stats.norm(m2, sd2)
    precision = 2 / sd1**2 + 1 / sd2**2
    centre, width = (2 * m1 / sd1**2 + m2 / sd2**2) / precision, precision**-0.5
    wanted = log_integral(lambda x: 2 * p1.logpdf(x) + p2.logpdf(x), centre, width)
    assert formulas.log_inclusion(*tensors(*pair), "exact", 0.0).item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("pair", PAIRS)
def test_inclusion_is_the_difference_of_the_two_integrals(pair):
    there = formulas.log_inclusion(*tensors(*pair), "exact", 0.0)
    back = formulas.log_inclusion(*tensors(*reversed(pair)), "exact", 0.0)
    torch.testing.assert_close(formulas.inclusion(*tensors(*pair), "exact", 0.0), there - back)


def paper_log_inclusion(m1, l1, m2, l2, form, eps):
    """Eq. 4 and its A, B, C, letter by letter; `exact` with the constants and factors of the appendix."""
    i1, i2 = torch.exp(eps - l1), torch.exp(eps - l2)
    a, b, c = i1 + i2 / 2, 2 * m1 * i1 + m2 * i2, m1**2 * i1 + m2**2 * i2 / 2
    widths = -2 * l1 - l2 if form == "published" else -l1 - l2 / 2 - math.log(2 * math.pi) - math.log(2) / 2
    return widths - 0.5 * torch.log(a) + b**2 / (4 * a) - c


@pytest.mark.parametrize("eps", [0.0, -5.0, -20.0])
@pytest.mark.parametrize("form", FORMS)
def test_closed_forms_equal_the_papers_abc_form(draw, form, eps):
    a, b = draw(50, 4, low=-4, high=2), draw(50, 4, low=-4, high=2)
    there, back = (a.mean, a.log_var, b.mean, b.log_var), (b.mean, b.log_var, a.mean, a.log_var)
    wanted = paper_log_inclusion(*there, form, eps)
    torch.testing.assert_close(formulas.log_inclusion(*there, form, eps), wanted)
    wanted = wanted - paper_log_inclusion(*back, form, eps)
    torch.testing.assert_close(formulas.inclusion(*there, form, eps), wanted, rtol=1e-9, atol=1e-9)


def test_closed_forms_are_more_accurate_than_the_abc_form(draw):
    """Why the closed form exists: B^2/4A - C is a small difference of numbers of size mean^2/s."""
    a, b = (draw(200, 64, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    near = (a.mean, a.log_var, a.mean + 0.01 * (b.mean - a.mean), b.log_var)
    m1, l1, m2, l2 = (t.double() for t in near)
    wanted = formulas.log_inclusion(m1, l1, m2, l2, "exact", 0.0).sum(-1)
    width = l1.exp() + 2 * l2.exp()
    terms = ((m1 - m2) ** 2 / width + l1.abs() / 2 + width.log().abs() / 2 + math.log(2 * math.pi)).sum(-1)
    ours = formulas.log_inclusion(*near, "exact", 0.0).double().sum(-1)
    theirs = paper_log_inclusion(*near, "exact", 0.0).double().sum(-1)
    assert ((ours - wanted).abs() <= 1e-5 * terms).all()
    assert ((theirs - wanted).abs() > 1e-5 * terms).double().mean() > 0.95


@pytest.mark.parametrize("eps", [0.0, -10.0, -100.0])
@pytest.mark.parametrize("form", FORMS)
def test_inclusion_is_exactly_antisymmetric(draw, form, eps):
    a, b = (draw(100, 8, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    there = formulas.inclusion(a.mean, a.log_var, b.mean, b.log_var, form, eps)
    back = formulas.inclusion(b.mean, b.log_var, a.mean, a.log_var, form, eps)
    assert torch.equal(there, -back)
    assert torch.equal(there.sign(), (b.log_var - a.log_var).sign()), "the sign is that of s2 - s1"


def test_inclusion_is_accurate_for_nearly_equal_variances():
    """x = 1e-6: H is x/3, where a ratio of widths in float32 would leave noise of 1e-7."""
    narrow, wide = torch.tensor(-3.0), torch.tensor(-3.0 + 2**-20)
    value = formulas.inclusion(torch.tensor(0.0), narrow, torch.tensor(0.0), wide, "exact", 0.0)
    assert value.item() == pytest.approx(2**-20 / 3, rel=1e-5)


@pytest.mark.parametrize("pair", PAIRS)
def test_kl_is_its_integral(pair):
    (m1, sd1), (m2, sd2) = pair
    p1, p2 = stats.norm(m1, sd1), stats.norm(m2, sd2)
    x = numpy.linspace(m1 - 14 * sd1, m1 + 14 * sd1, 20001)
    wanted = integrate.simpson(p1.pdf(x) * (p1.logpdf(x) - p2.logpdf(x)), x=x)
    assert formulas.kl_divergence(*tensors(*pair)).item() == pytest.approx(wanted, rel=1e-6)


def test_kl_to_the_standard_normal_is_kl_with_mean_0_and_variance_1(draw):
    z = draw(20, 3)
    zero = torch.zeros_like(z.mean)
    wanted = formulas.kl_divergence(z.mean, z.log_var, zero, zero)
    torch.testing.assert_close(formulas.kl_standard(z.mean, z.log_var), wanted)
    assert (wanted >= 0).all()
    assert formulas.kl_standard(zero, zero).eq(0).all()


def test_log_density_is_scipys(draw, generator):
    z = draw(30, 3)
    x = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    wanted = stats.norm(z.mean.numpy(), z.std.numpy()).logpdf(x.numpy())
    torch.testing.assert_close(formulas.log_density(x, z.mean, z.log_var), torch.from_numpy(wanted))


@pytest.mark.parametrize("pair", [*PAIRS, ((0.0, 1e-6), (0.5, 1e-3)), ((0.0, 3.0), (1.0, 1e-7))])
@pytest.mark.parametrize("half_width", [0.5, 1.96, 4.0])
def test_log_containment_is_the_log_of_an_interval_of_p1(pair, half_width):
    """By quadrature in logarithms, so that probabilities far below the smallest float are checked too."""
    (m1, sd1), (m2, sd2) = pair
    x = numpy.linspace(m2 - half_width * sd2, m2 + half_width * sd2, 400_001)
    values = stats.norm(m1, sd1).logpdf(x)
    # a grid that resolves p1's side of the interval as well
    edge = numpy.clip(m1, x[0], x[-1])
    x = numpy.unique(
        numpy.concatenate([x, numpy.clip(edge + sd1 * numpy.linspace(-12, 12, 400_001), x[0], x[-1])])
    )
    values = stats.norm(m1, sd1).logpdf(x)
    wanted = values.max() + math.log(integrate.trapezoid(numpy.exp(values - values.max()), x=x))
    got = formulas.log_containment(*tensors(*pair), half_width).item()
    assert got == pytest.approx(wanted, rel=2e-6, abs=1e-7)


def test_log_containment_keeps_small_misses():
    """Equal means, an interval of 9 sigma: the probability misses 1 by 2 Q(9), which 1 - p would round away."""
    zero = torch.zeros((), dtype=torch.float64)
    got = formulas.log_containment(zero, zero, zero, zero, 9.0).item()
    assert got == pytest.approx(-2 * stats.norm.sf(9), rel=1e-9, abs=0)


def test_log_containment_of_a_narrow_interval_far_away():
    """gap 1e6, reach 9e-6: the density varies by e^18 across the interval."""
    gap, reach = 1e6, 9e-6
    got = formulas.log_containment(*tensors((gap, 1.0), (0.0, reach)), 1.0).item()
    wanted = -(gap**2) / 2 - math.log(2 * math.pi) / 2 + math.log(2 * math.sinh(reach * gap) / gap)
    assert got == pytest.approx(wanted, rel=0, abs=1e-2)


def test_kl_of_nearly_standard_gaussians_keeps_its_digits():
    log_var = torch.tensor([1e-3, 3e-4])
    got = formulas.kl_standard(torch.zeros(2), log_var)
    wanted = formulas.kl_standard(torch.zeros(2).double(), log_var.double())
    torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=0)
