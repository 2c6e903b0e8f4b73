"""Von Mises-Fisher posteriors on the sphere: their log-partition F, and the pointwise mutual information of two.

Let a concept c be uniform on the unit sphere in D dimensions, and let an input be a von Mises-Fisher posterior over it,
p(c | input) / p(c) = exp(kappa mu . c - F(kappa)), with direction mu and concentration kappa. Then (docs/likelihood.md)

    F(kappa) = log E[exp(kappa mu . c)] = ln Gamma(nu + 1) - nu ln(kappa / 2) + ln I_nu(kappa),   nu = D/2 - 1
    F'(kappa) = A(kappa) = I_{nu+1}(kappa) / I_nu(kappa),   the mean of mu . c under the posterior
    PMI = log E[p(c | image) p(c | text) / p(c)^2] = F(r) - F(kappa_i) - F(kappa_t),   r = |kappa_i mu_i + kappa_t mu_t|

F and A come from Debye's expansion of I_nu, uniform in kappa, at an order of at least `MIN_ORDER`; smaller orders are
reached by the recurrence of Bessel functions, which is stable downwards. Errors against exact values:
tests/measures/test_vmf.py.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prolip.tensor_checks import forbid_double_backward

MIN_ORDER = {torch.float32: 12.0, torch.float64: 36.0}
"""Smallest order nu at which Debye's expansion is used, by dtype."""
MAX_KAPPA = 1e6
"""Upper limit of concentrations: an input of zero variance, as of a deterministic model, would have an infinite one."""
MAX_TERMS = 10
"""Terms of the expansion of which the needed ones are chosen."""


class LogPartition(NamedTuple):
    """F(kappa) and its derivative A(kappa), both of the shape of kappa."""

    value: Tensor
    derivative: Tensor


def log_partition(kappa: Tensor, dim: int) -> Tensor:
    """F(kappa), the log-partition of the von Mises-Fisher density against the uniform one. Differentiable once.

    Args:
        kappa: Concentrations of any shape, at least 0, float32 or float64.
        dim: D, at least 2.

    Returns:
        F, of the shape of kappa; 0 for kappa = 0, rising, convex, at most kappa.
    """
    value: Tensor = _LogPartition.apply(kappa, dim)
    return value


def compute_log_partition(kappa: Tensor, dim: int) -> LogPartition:
    """F(kappa) and A(kappa) in one pass, without a graph.

    Args:
        kappa: As for `log_partition`.
        dim: D, at least 2.

    Returns:
        Both, of the shape of kappa.
    """
    if dim < 2:
        raise ValueError(f"a sphere needs at least 2 dimensions, not {dim}")
    order = dim / 2 - 1
    steps = max(0, math.ceil(MIN_ORDER[kappa.dtype] - order))  # how far the order is raised
    value, derivative = _expand(kappa, order + steps)
    for j in reversed(range(steps)):
        # with h = kappa / (2 (order + j + 1)): A_{order+j} = h / (1 + h A_{order+j+1}), and F gains log(1 + h A)
        half_ratio = kappa / (2 * (order + j + 1))
        growth = half_ratio * derivative
        value = value + torch.log1p(growth)
        derivative = half_ratio / (1 + growth)
    return LogPartition(value, derivative)


def pmi(cosine: Tensor, kappa_a: Tensor, kappa_b: Tensor, dim: int) -> Tensor:
    """Pointwise mutual information of two posteriors: F(r) - F(kappa_a) - F(kappa_b), in nats. Differentiable once.

    Args:
        cosine: mu_a . mu_b, of any shape.
        kappa_a: Concentrations that broadcast with `cosine`.
        kappa_b: Likewise.
        dim: D.

    Returns:
        Nats, of the broadcast shape: 0 if one side knows nothing (kappa = 0).
    """
    resultant = compute_resultant(cosine, kappa_a, kappa_b)
    return log_partition(resultant, dim) - log_partition(kappa_a, dim) - log_partition(kappa_b, dim)


def compute_resultant(cosine: Tensor, kappa_a: Tensor, kappa_b: Tensor) -> Tensor:
    """|kappa_a mu_a + kappa_b mu_b| from the cosine of the means; arguments broadcast.

    As sqrt((kappa_a - kappa_b)^2 + 2 kappa_a kappa_b (1 + cosine)), whose terms are not negative: r can't be NaN, and
    opposite directions don't cancel.
    """
    squared = (kappa_a - kappa_b).square() + 2 * kappa_a * kappa_b * (1 + cosine).clamp_min(0.0)
    return squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()


def concentration(trace: Tensor, log_scale: Tensor, gamma: float) -> Tensor:
    """kappa = e^tau tr^-gamma, at most MAX_KAPPA: the concentration of an input from the trace of its Gaussian.

    Args:
        trace: tr(Sigma), of any shape.
        log_scale: tau, a scalar.
        gamma: Exponent.

    Returns:
        Concentrations, of the shape of `trace`.
    """
    return (log_scale - gamma * trace.log()).clamp_max(math.log(MAX_KAPPA)).exp()


def find_concentration(pmi_of_match: float, dim: int) -> float:
    """The concentration kappa at which two posteriors of the same direction have a given PMI: F(2 kappa) - 2 F(kappa).

    For small kappa, F is kappa^2 / (2 D), and the PMI kappa^2 / D: kappa is about sqrt(D PMI).

    Args:
        pmi_of_match: In nats, above 0.
        dim: D, at least 2.

    Returns:
        kappa, to rounding error; at most MAX_KAPPA.

    Raises:
        ValueError: The PMI is not positive, or needs a larger kappa.
    """
    low, high = (torch.tensor(math.log(kappa), dtype=torch.float64) for kappa in (1e-12, MAX_KAPPA))
    one = torch.ones((), dtype=torch.float64)
    if not 0.0 < pmi_of_match <= float(pmi(one, high.exp(), high.exp(), dim)):
        raise ValueError(
            f"no concentration up to {MAX_KAPPA:g} has a PMI of {pmi_of_match} in {dim} dimensions"
        )
    for _ in range(64):  # halving: the PMI rises with kappa
        middle = (low + high) / 2
        is_above = float(pmi(one, middle.exp(), middle.exp(), dim)) > pmi_of_match
        low, high = (low, middle) if is_above else (middle, high)
    return math.exp(float(high))


class _LogPartition(torch.autograd.Function):
    """F, with A as its derivative."""

    @staticmethod
    def forward(ctx: Any, kappa: Tensor, dim: int) -> Tensor:
        """F of the concentrations; keeps A for the backward pass."""
        value, derivative = compute_log_partition(kappa, dim)
        ctx.save_for_backward(derivative)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Multiply by A."""
        forbid_double_backward("log_partition has a first derivative only")
        (derivative,) = ctx.saved_tensors
        return grad * derivative, None


def _expand(kappa: Tensor, order: float) -> LogPartition:
    """F and A by Debye's expansion: with s = sqrt(nu^2 + kappa^2) and t = nu / s,

    F = (s - nu) - nu log((nu + s) / 2 nu) + log(t) / 2 + Q(t) - Q(1),   Q(t) = sum_k d_k(t) / nu^k.

    Written so that every part is 0 at kappa = 0 and none cancels another.
    """
    hypotenuse = torch.hypot(kappa, torch.full_like(kappa, order))
    excess = kappa * (kappa / (hypotenuse + order))  # s - nu
    t, t_minus_1 = order / hypotenuse, -excess / hypotenuse
    coefficients = _compute_quotient(order, torch.finfo(kappa.dtype).eps)
    quotient, slope = torch.full_like(t, coefficients[-1]), torch.zeros_like(t)
    for coefficient in reversed(coefficients[:-1]):  # Horner's rule for the quotient and its derivative
        slope = slope.mul_(t).add_(quotient)
        quotient = quotient.mul_(t).add_(coefficient)
    half_log_t = -0.25 * torch.log1p((kappa / order).square())
    value = excess - order * torch.log1p(excess / (2 * order)) + half_log_t + t_minus_1 * quotient
    series_slope = quotient + t_minus_1 * slope  # Q'(t); dt/dkappa = -t kappa / s^2
    derivative = kappa / (hypotenuse + order) - (kappa / hypotenuse / hypotenuse) * (0.5 + t * series_slope)
    return LogPartition(value, derivative)


@lru_cache(maxsize=256)
def _compute_quotient(order: float, eps: float) -> tuple[float, ...]:
    """Coefficients of (Q(t) - Q(1)) / (t - 1), from the constant one on; Q(t) = sum of d_k(t) / order^k.

    The sum ends where the next term, relative to the leading one, order (1 - t), is below a quarter of `eps`.
    """
    polynomials = _make_log_debye_polynomials(MAX_TERMS)
    series = [0.0] * (3 * MAX_TERMS + 1)
    num_terms = 0
    for k, polynomial in enumerate(polynomials, start=1):
        if _bound_slope(polynomial) / order ** (k + 1) < 0.25 * eps:
            break
        num_terms = k
        for power, coefficient in enumerate(polynomial):
            series[power] += float(coefficient) / order**k
    return tuple(math.fsum(series[power + 1 :]) for power in range(3 * num_terms)) or (0.0,)


def _bound_slope(polynomial: Polynomial) -> float:
    """Largest |p(t) - p(1)| / (1 - t) for t from 0 to 1, on a grid."""
    at_one = float(sum(polynomial))
    coefficients = [float(c) for c in polynomial]
    values = ((t / 64, math.fsum(c * (t / 64) ** i for i, c in enumerate(coefficients))) for t in range(64))
    return max(abs(value - at_one) / (1 - t) for t, value in values)


Polynomial = list[Fraction]
"""Coefficients, from the constant one on."""


@lru_cache(maxsize=4)
def _make_log_debye_polynomials(count: int) -> tuple[Polynomial, ...]:
    """d_1 to d_count: the logarithm of Debye's series 1 + sum_k u_k(t) / nu^k as a series in 1/nu.

    u_{k+1} = t^2 (1 - t^2) u_k' / 2 + (1/8) integral of (1 - 5 t^2) u_k (DLMF 10.41.9); the logarithm by
    k u_k = sum_{j=1}^{k} j d_j u_{k-j}.
    """
    u: list[Polynomial] = [[Fraction(1)]]
    for _ in range(count):
        slope = [power * c for power, c in enumerate(u[-1])][1:]
        derivative_part = _multiply(
            [Fraction(0), Fraction(0), Fraction(1, 2), Fraction(0), Fraction(-1, 2)], slope
        )
        integrand = _multiply([Fraction(1, 8), Fraction(0), Fraction(-5, 8)], u[-1])
        integral = [Fraction(0), *(c / (power + 1) for power, c in enumerate(integrand))]
        u.append(_add(derivative_part, integral))
    d: list[Polynomial] = [[Fraction(0)]]
    for k in range(1, count + 1):
        total = u[k]
        for j in range(1, k):
            total = _add(total, [-Fraction(j, k) * c for c in _multiply(d[j], u[k - j])])
        d.append(total)
    return tuple(d[1:])


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    product = [Fraction(0)] * max(0, len(a) + len(b) - 1) if b else []
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x and y:  # half of the coefficients are 0: all powers of a polynomial are even, or all are odd
                product[i + j] += x * y
    return product


def _add(a: Polynomial, b: Polynomial) -> Polynomial:
    """The sum of two polynomials."""
    length = max(len(a), len(b))
    return [
        (a[i] if i < len(a) else Fraction(0)) + (b[i] if i < len(b) else Fraction(0)) for i in range(length)
    ]
