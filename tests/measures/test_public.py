"""The public face: laws, golden values of the release, precision, gradients, and errors that help."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file
from scipy import special

import prolip
from prolip.gaussian import Gaussian
from prolip.measures import containment_kernel as kernel
from prolip.measures import formulas, public
from tests.golden import FIXTURES

PAIRED = ["csd", "log_inclusion", "inclusion", "log_containment", "containment"]
ALL_PAIRS = [(name, f"{name}_matrix") for name in PAIRED]


def double(z):
    return Gaussian(z.mean.double(), z.log_var.double())


@pytest.mark.parametrize(("paired", "crossed"), ALL_PAIRS)
def test_matrix_form_equals_paired_form(draw, paired, crossed):
    a, b = draw(4, 6, low=-2), draw(5, 6, low=-2)
    matrix = getattr(prolip, crossed)(a, b)
    assert matrix.shape == (4, 5)
    for i in range(4):
        for j in range(5):
            torch.testing.assert_close(matrix[i, j], getattr(prolip, paired)(a[i], b[j]))


@pytest.mark.parametrize("name", PAIRED)
def test_rows_broadcast(draw, name):
    a, b = draw(2, 1, 4), draw(3, 4)
    value = getattr(prolip, name)(a, b)
    assert value.shape == (2, 3)
    torch.testing.assert_close(value[1, 2], getattr(prolip, name)(a[1, 0], b[2]))


def test_csd_is_the_expected_squared_distance_of_draws(draw, generator):
    a, b = draw(3, 5), draw(3, 5)
    distance = (a.sample(generator, 400_000) - b.sample(generator, 400_000)).square().sum(-1)
    error = distance.std(0) / math.sqrt(400_000)
    assert ((distance.mean(0) - prolip.csd(a, b)).abs() < 5 * error).all()


def test_csd_of_points_is_the_squared_distance(draw):
    a, b = Gaussian.point(draw(3, 5).mean), Gaussian.point(draw(4, 5).mean)
    torch.testing.assert_close(prolip.csd_matrix(a, b), torch.cdist(a.mean, b.mean).square())
    assert (prolip.csd_matrix(a.to(torch.float32), a.to(torch.float32)) >= 0).all()


@pytest.mark.parametrize("case", ["mid", "one_vs_many", "trained", "wide"])
@pytest.mark.parametrize("eps", [0, -5])
def test_published_inclusion_is_the_releases(case, eps):
    golden = load_file(FIXTURES / "analysis" / "inclusion.safetensors")
    a, b = (Gaussian(golden[f"{case}.mu{i}"].double(), golden[f"{case}.logvar{i}"].double()) for i in (1, 2))
    options = {"form": "published", "eps": float(eps)}
    for got, key in (
        (prolip.log_inclusion_matrix(a, b, **options), "inc"),
        (prolip.inclusion_matrix(a, b, **options), "H"),
    ):
        torch.testing.assert_close(got, golden[f"{case}.{key}_eps{eps}.f64"], rtol=1e-9, atol=1e-7)


def test_disjoint_gaussians_have_negative_log_inclusion_but_not_inclusion():
    narrow, wide = (
        Gaussian(torch.tensor([[m]]), torch.tensor([[2 * math.log(sd)]]))
        for m, sd in ((-9.0, 0.5), (9.0, 2.0))
    )
    assert prolip.inclusion(narrow, wide).item() > 0 > prolip.inclusion(wide, narrow).item()
    assert prolip.log_inclusion(narrow, wide).item() < -10
    assert prolip.log_inclusion(wide, narrow).item() < -10


def test_h_grows_with_distance_as_the_release_format_tabulates():
    wide = Gaussian(torch.zeros(4, 1).double(), torch.full((4, 1), 2 * math.log(2.0)).double())
    narrow = Gaussian(
        torch.tensor([[0.0], [5.0], [20.0], [100.0]]).double(), torch.full((4, 1), 2 * math.log(0.5)).double()
    )
    got = prolip.inclusion(narrow, wide, form="published")
    torch.testing.assert_close(got, torch.tensor([2.5, 5.0, 42.9, 1012.6]).double(), atol=0.06, rtol=0)


class TestContainment:
    @pytest.mark.parametrize("dims", [1, 2, 16])
    def test_it_is_the_share_of_draws_that_fall_into_the_box(self, draw, generator, dims):
        b = draw(6, dims, low=-3, high=-1)
        a = Gaussian(
            b.mean + 0.2 * draw(6, dims).mean, b.log_var + 1.5 * draw(6, dims, low=-2, high=1).log_var
        )
        side = public.box_half_width(dims, 0.9) * b.std
        inside = ((a.sample(generator, 200_000) - b.mean).abs() <= side).all(-1).double()
        error = inside.std(0) / math.sqrt(200_000) + 1e-5
        assert ((inside.mean(0) - prolip.containment(a, b, mass=0.9)).abs() < 5 * error).all()

    @pytest.mark.parametrize("dims", [1, 7, 768])
    @pytest.mark.parametrize("mass", [0.5, 0.95, 0.999])
    def test_a_gaussian_contains_itself_to_the_mass_of_the_box(self, draw, dims, mass):
        z = draw(3, dims)
        torch.testing.assert_close(prolip.containment(z, z, mass=mass), torch.full((3,), mass).double())

    def test_it_is_a_directed_measure_that_vanishes_both_ways_when_disjoint(self):
        def one(mean, sd):
            return Gaussian(torch.tensor([mean]), torch.tensor([2 * math.log(sd)]))

        assert prolip.containment(one(0.0, 0.5), one(0.0, 2.0)) > 0.999
        assert prolip.containment(one(0.0, 2.0), one(0.0, 0.5)) < 0.4
        assert prolip.containment(one(-4.0, 0.4), one(3.0, 1.4)) < 1e-6
        assert prolip.containment(one(3.0, 1.4), one(-4.0, 0.4)) < 1e-3

    def test_it_never_exceeds_the_coverage_of_any_single_dimension(self, draw):
        """Near 1 only if every dimension is covered: one that escapes is enough, however many there are."""
        b = draw(1, 768, low=-8, high=-8)
        a = Gaussian(b.mean.clone(), b.log_var - 1.4)
        assert prolip.containment(a, b) > 0.999
        a.mean[0, 5] += 8 * b.std[0, 5]
        assert prolip.containment(a, b) < 1e-6
        # an ellipsoid of the same mass would call this contained
        mahalanobis = ((a.sample(torch.Generator().manual_seed(0), 100) - b.mean).square() / b.var).sum(-1)
        assert (mahalanobis < 833.0).all(), "the 95 % quantile of chi-squared with 768 degrees"

    def test_it_grows_with_the_outer_width_and_falls_with_distance(self, draw):
        a = draw(1, 8, low=-4, high=-4)
        widths = Gaussian(a.mean.expand(30, 8), torch.linspace(-8, -1, 30).double()[:, None].expand(30, 8))
        assert (prolip.log_containment(a, widths).diff() > 0).all()
        away = Gaussian(a.mean + torch.linspace(0, 3, 30).double()[:, None], a.log_var.expand(30, 8))
        assert (prolip.log_containment(a, away).diff() < 0).all()

    def test_it_does_not_see_the_units_of_an_axis(self, draw):
        a, b = draw(5, 4), draw(5, 4)
        stretch, shift = (
            torch.tensor([0.1, 1.0, 3.0, 20.0]).double(),
            torch.tensor([1.0, -2.0, 0.0, 5.0]).double(),
        )
        moved = (Gaussian(z.mean * stretch + shift, z.log_var + 2 * stretch.log()) for z in (a, b))
        torch.testing.assert_close(prolip.log_containment(*moved), prolip.log_containment(a, b))

    @pytest.mark.parametrize("shift", [-2.0, 0.0, 1.0, 3.0, 8.0])
    @pytest.mark.parametrize("dims", [1, 5, 768])
    def test_the_fast_kernel_is_the_formula(self, draw, dims, shift):
        """Boxes from a tenth of sigma1 wide to those that hold everything, near and far."""
        a, b = (
            draw(20, dims, low=-8, high=-6, dtype=torch.float32),
            draw(30, dims, low=-8, high=-6, dtype=torch.float32),
        )
        b = Gaussian(torch.cat([b.mean[:15], a.mean[:15] + 0.02 * b.mean[15:]]), b.log_var + shift)
        half_width = public.box_half_width(dims, 0.95)
        assert kernel.kernel_applies(a.log_var, b.log_var, half_width)
        wanted = prolip.log_containment_matrix(double(a), double(b))
        error = (prolip.log_containment_matrix(a, b) - wanted).abs()
        assert (error <= 1e-5 * wanted.abs() + 1e-7 * dims + 1e-6).all()
        assert shift > 0 or wanted.min() < -1, "the kernel's far side is tried too"

    def test_folds_of_small_factors_do_not_underflow(self):
        """Every dimension at its worst: the narrowest box that the kernel takes, and one 6000 sigma away."""
        half_width = public.box_half_width(128, 0.95)
        zero, one = torch.zeros(1, 128), torch.ones(1, 128)
        for a, b in (
            (Gaussian(zero, zero), Gaussian(zero, zero + 2 * math.log(0.06 / half_width))),
            (Gaussian(one, zero - 16), Gaussian(-one, zero - 16)),
        ):
            assert kernel.kernel_applies(a.log_var, b.log_var, half_width)
            wanted = prolip.log_containment_matrix(double(a), double(b))
            error = (prolip.log_containment_matrix(a, b) - wanted).abs()
            assert (error <= 1e-5 * wanted.abs() + 1e-6).all()

    def test_the_kernel_takes_boxes_down_to_its_limit(self):
        z = torch.zeros(1, 1)
        assert kernel.kernel_applies(z, z, 0.051)
        assert not kernel.kernel_applies(z, z, 0.049)
        assert not kernel.kernel_applies(z.double(), z.double(), 1.0)

    def test_a_mass_near_1_keeps_its_digits(self, draw):
        mass = 1 - 1e-12
        wanted = -special.ndtri(-0.5 * math.expm1(math.log(mass) / 768))
        assert public.box_half_width(768, mass) == pytest.approx(wanted, rel=1e-12)
        z = draw(1, 768)
        assert prolip.log_containment(z, z, mass=mass).item() == pytest.approx(
            math.log(mass), rel=1e-6, abs=0
        )

    def test_narrow_boxes_take_the_exact_path(self, draw):
        a, b = (
            draw(4, 3, low=2, high=2, dtype=torch.float32),
            draw(5, 3, low=-20, high=-18, dtype=torch.float32),
        )
        assert not kernel.kernel_applies(a.log_var, b.log_var, 2.0)
        torch.testing.assert_close(
            prolip.log_containment_matrix(a, b).double(),
            prolip.log_containment_matrix(double(a), double(b)),
            rtol=1e-6,
            atol=0,
        )

    def test_its_logarithm_ranks_where_the_probability_underflows(self, draw):
        a = draw(1, 64, low=-12, high=-12)
        away = Gaussian(a.mean + torch.tensor([[0.5], [1.0], [2.0]]), a.log_var.expand(3, 64))
        assert prolip.containment(a, away).eq(0).all()
        logs = prolip.log_containment(a, away)
        assert torch.isfinite(logs).all()
        assert (logs.diff() < 0).all()

    @pytest.mark.parametrize("mass", [0.0, 1.0, -1.0, 1e-17, float("nan")])
    def test_the_mass_is_a_probability(self, draw, mass):
        with pytest.raises(ValueError, match="mass"):
            prolip.containment(draw(1, 2), draw(1, 2), mass=mass)


def absolute_terms(name, a, b):
    """The sum of the absolute values of what is added up, per pair, in float64: the scale of SPEC's error bound."""
    (m1, l1), (m2, l2) = ((z.mean.double(), z.log_var.double()) for z in (a, b))
    s1, s2, square = l1.exp(), l2.exp(), (m1 - m2).square()
    w12, w21 = s1 + 2 * s2, s2 + 2 * s1
    terms = {
        "csd": [square, s1, s2],
        "log_inclusion": [l1 / 2, w12.log() / 2, square / w12, torch.full_like(l1, math.log(2 * math.pi))],
        "inclusion": [(l2 - l1) / 2, (w12 / w21).log() / 2, square * (s2 - s1) / (w12 * w21)],
        "log_containment": [formulas.log_containment(m1, l1, m2, l2, public.box_half_width(a.dim, 0.95))],
    }[name]
    return sum(term.abs() for term in terms).sum(-1)


@pytest.mark.parametrize("name", ["csd", "log_inclusion", "inclusion", "log_containment"])
@pytest.mark.parametrize("dims", [3, 768])
def test_float32_is_within_1e_5_of_the_terms(draw, name, dims):
    a, b = (draw(30, dims, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    wanted = getattr(prolip, name)(double(a)[:, None], double(b))
    bound = 1e-5 * absolute_terms(name, a[:, None], b)
    assert ((getattr(prolip, name)(a[:, None], b).double() - wanted).abs() <= bound).all()
    matrix = getattr(prolip, f"{name}_matrix")(a, b).double()
    if name == "csd":  # the expanded square cancels to the size of a unit mean
        bound = bound + 1e-6
    if name == "log_containment":  # a probability near 1 is known to the last digit of 1
        bound = bound + 1e-7 * dims
    assert ((matrix - wanted).abs() <= bound).all()


@pytest.mark.parametrize("name", ["log_inclusion", "inclusion"])
@pytest.mark.parametrize("eps", [0.0, -10.0])
def test_float32_of_the_published_form(draw, name, eps):
    a, b = (draw(30, 768, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    options = {"form": "published", "eps": eps}
    wanted = getattr(prolip, name)(double(a)[:, None], double(b), **options)
    lengths = 1.5 * (a.log_var.abs().sum(-1)[:, None] + b.log_var.abs().sum(-1)).double()
    bound = 1e-5 * (absolute_terms(name, a[:, None], b) * math.exp(eps) + lengths)
    for got in (
        getattr(prolip, name)(a[:, None], b, **options),
        getattr(prolip, f"{name}_matrix")(a, b, **options),
    ):
        assert ((got.double() - wanted).abs() <= bound).all()


def test_float32_of_divergences_and_densities(draw):
    a, b = (draw(30, 768, low=-20, high=2, dtype=torch.float32) for _ in range(2))
    (m1, l1), (m2, l2) = ((z.mean.double(), z.log_var.double()) for z in (a, b))
    square = (m1 - m2).square() * torch.exp(-l2)
    standard = 0.5 * (l1.exp() + m1.square() + 1 + l1.abs()).sum(-1)
    divergence = 0.5 * (torch.exp(l1 - l2) + square + 1 + l1.abs() + l2.abs()).sum(-1)
    density = 0.5 * (square + l2.abs() + math.log(2 * math.pi)).sum(-1)
    for got, wanted, terms in (
        (prolip.kl_standard(a), prolip.kl_standard(double(a)), standard),
        (prolip.kl_divergence(a, b), prolip.kl_divergence(double(a), double(b)), divergence),
        (prolip.log_density(a.mean, b), prolip.log_density(m1, double(b)), density),
        (prolip.log_density_matrix(a.mean, b).diagonal(), prolip.log_density(m1, double(b)), density),
    ):
        assert ((got.double() - wanted).abs() <= 1e-5 * terms).all()


@pytest.mark.parametrize("name", [*PAIRED[:-1], *(f"{n}_matrix" for n in PAIRED[:-1]), "kl_divergence"])
def test_gradients(draw, name):
    a, b = draw(3, 4, low=-3), draw(3, 4, low=-3)
    tensors = [t.requires_grad_() for t in (a.mean, a.log_var, b.mean, b.log_var)]

    def function(m1, l1, m2, l2):
        return getattr(prolip, name)(Gaussian(m1, l1), Gaussian(m2, l2))

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("name", ["log_density", "log_density_matrix"])
def test_gradients_of_densities(draw, name):
    z, x = draw(3, 4, low=-3), draw(3, 4).mean.requires_grad_()
    tensors = [x, z.mean.requires_grad_(), z.log_var.requires_grad_()]
    assert torch.autograd.gradcheck(lambda x, m, v: getattr(prolip, name)(x, Gaussian(m, v)), tensors)
    assert torch.autograd.gradcheck(lambda m, v: prolip.kl_standard(Gaussian(m, v)), tensors[1:])


def test_gradients_at_equal_gaussians(draw):
    """Where tanh, abs and minimum have their corners."""
    z = draw(2, 3)
    a, b = (Gaussian(z.mean.clone().requires_grad_(), z.log_var.clone().requires_grad_()) for _ in range(2))
    tensors = [a.mean, a.log_var, b.mean, b.log_var]
    for name in ("inclusion", "log_inclusion", "log_containment"):
        grads = torch.autograd.grad(getattr(prolip, name)(a, b).sum(), tensors)
        assert all(torch.isfinite(g).all() for g in grads)
    grads = torch.autograd.grad(prolip.inclusion(a, b).sum(), tensors)
    torch.testing.assert_close(grads[3], torch.full_like(grads[3], 1 / 3))  # d/dx of x/2 - atanh(tanh(x/2)/3)


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    dims=st.sampled_from([1, 2, 63, 65]),
    centres=st.tuples(st.floats(-79, 79), st.floats(-79, 79)),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 10.0, 1000.0]),
    seed=st.integers(0, 999),
)
def test_measures_of_finite_values_are_finite(rows, columns, dims, centres, scale, seed):
    generator = torch.Generator().manual_seed(seed)

    def make(count, centre):
        mean = scale * torch.randn(count, dims, generator=generator)
        return Gaussian(mean, (centre + torch.randn(count, dims, generator=generator)).clamp(-80, 80))

    a, b = make(rows, centres[0]), make(columns, centres[1])
    largest = (
        40 * scale**2 * dims * math.exp(3 - min(*centres, 0.0))
    )  # of a squared distance in units of a variance
    for name in PAIRED:
        crossed, paired = getattr(prolip, f"{name}_matrix")(a, b), getattr(prolip, name)(a[:1], b)
        assert not torch.isnan(crossed).any(), name
        assert not torch.isnan(paired).any(), name
        if largest < 3e38:  # what float32 can hold
            assert torch.isfinite(crossed).all(), name
            torch.testing.assert_close(paired, crossed[0], rtol=1e-3, atol=1e-3 * dims)
    assert torch.isfinite(prolip.kl_standard(a)).all()
    probability = prolip.containment_matrix(a, b)
    assert ((probability >= 0) & (probability <= 1)).all()


def test_log_density_matrix_is_log_density_of_every_pair(draw):
    z, x = draw(2, 4, 8, low=-20, high=2), draw(2, 3, 8).mean
    matrix = prolip.log_density_matrix(x, z)
    assert matrix.shape == (2, 3, 4)
    wanted = prolip.log_density(x[:, :, None], z[:, None])
    torch.testing.assert_close(matrix, wanted)
    single = prolip.log_density_matrix(x.float(), z.to(torch.float32))
    assert single.dtype == torch.float32
    rounded = prolip.log_density(x.float().double()[:, :, None], double(z.to(torch.float32))[:, None])
    torch.testing.assert_close(single.double(), rounded, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("log_var", [-30.0, -40.0, -60.0, -80.0])
@pytest.mark.parametrize("centre", [1.0, 1000.0])
def test_log_density_matrix_is_accurate_for_small_variances(draw, log_var, centre):
    mean = centre * draw(2, 3, 16).mean
    z = Gaussian(mean, torch.full_like(mean, log_var))
    x = torch.cat([mean[:, :1] + z.std[:, :1], mean[:, 1:]], dim=1)
    torch.testing.assert_close(prolip.log_density_matrix(x, z), prolip.log_density(x[:, :, None], z[:, None]))


def test_density_integrates_to_one():
    z = Gaussian(torch.tensor([[0.3]]).double(), torch.tensor([[-1.0]]).double())
    x = torch.linspace(-10, 10, 20001).double()[:, None]
    assert torch.trapezoid(prolip.log_density(x, z).exp(), x[:, 0]).item() == pytest.approx(1, abs=1e-9)


def test_kl_is_zero_only_for_equals(draw):
    a, b = draw(5, 3), draw(5, 3)
    torch.testing.assert_close(prolip.kl_divergence(a, a), torch.zeros(5).double(), atol=1e-12, rtol=0)
    assert (prolip.kl_divergence(a, b) > 0).all()
    standard = Gaussian(torch.zeros(5, 3).double(), torch.zeros(5, 3).double())
    torch.testing.assert_close(prolip.kl_standard(a), prolip.kl_divergence(a, standard))


def test_mixed_dtypes_are_promoted(draw):
    a, b = draw(2, 3), draw(2, 3).to(torch.float32)
    assert prolip.csd(a, b).dtype == torch.float64
    assert prolip.inclusion_matrix(b, a).dtype == torch.float64
    half = draw(2, 3, dtype=torch.float32).to(torch.bfloat16)
    assert prolip.csd(half, b).dtype == torch.float32


@pytest.mark.parametrize("name", [*PAIRED, *(f"{n}_matrix" for n in PAIRED)])
def test_measures_reject_invalid_gaussians(draw, name):
    function, good = getattr(prolip, name), draw(2, 3)
    with pytest.raises(ValueError, match="3 and 4"):
        function(good, draw(2, 4))
    with pytest.raises(TypeError, match=r"b must be a Gaussian, not a torch\.float64 tensor"):
        function(good, good.mean)
    with pytest.raises(ValueError, match="b: mean must be finite"):
        function(good, Gaussian(good.mean * float("nan"), good.log_var))


def test_densities_and_divergences_reject_invalid_input(draw):
    good, nan = draw(2, 3), Gaussian(draw(2, 3).mean * float("nan"), draw(2, 3).log_var)
    for function in (prolip.kl_standard, lambda z: prolip.kl_divergence(z, good)):
        with pytest.raises(TypeError, match="must be a Gaussian"):
            function(good.mean)
        with pytest.raises(ValueError, match="mean must be finite"):
            function(nan)
    for function in (prolip.log_density, prolip.log_density_matrix):
        with pytest.raises(TypeError, match="points must be a floating-point tensor"):
            function(good, good)
        with pytest.raises(ValueError, match="points must be finite"):
            function(nan.mean, good)
        with pytest.raises(TypeError, match="z must be a Gaussian"):
            function(good.mean, good.mean)
        with pytest.raises(ValueError, match="points"):
            function(draw(2, 4).mean, good)
    with pytest.raises(ValueError, match=r"\(\.\.\., M, D\)"):
        prolip.log_density_matrix(good.mean, good[0])
    with pytest.raises(ValueError, match="don't pair up"):
        prolip.log_density(draw(5, 3).mean, good)


@pytest.mark.parametrize("eps", [800.0, float("nan"), float("inf")])
def test_eps_is_a_logarithm(draw, eps):
    for name in ("inclusion", "inclusion_matrix", "log_inclusion", "log_inclusion_matrix"):
        with pytest.raises(ValueError, match=f"not {eps}: it is a logarithm"):
            getattr(prolip, name)(draw(2, 3), draw(2, 3), eps=eps)


@pytest.mark.parametrize("spread", [1.0, 0.1, 1e-2, 1e-3])
@pytest.mark.parametrize("apart", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("form", ["exact", "published"])
def test_inclusion_of_nearly_equal_variances_is_accurate(draw, form, spread, apart):
    """Sums of 768 log-variances about -9 must not be subtracted from each other in float32."""
    a = draw(20, 768, low=-9 - spread, high=-9 + spread)
    mean = a.mean + apart * (draw(20, 768).mean - a.mean)
    b = Gaussian(mean, draw(20, 768, low=-9 - spread, high=-9 + spread).log_var)
    a, b = a.to(torch.float32), b.to(torch.float32)
    terms = formulas.inclusion(
        double(a).mean[:, None], double(a).log_var[:, None], double(b).mean, double(b).log_var, form, 0.0
    )
    got = prolip.inclusion_matrix(a, b, form=form)
    error = (got - terms.sum(-1)).abs()
    assert (error <= 1e-5 * terms.abs().sum(-1) + 5e-6).all()
    clear = terms.sum(-1).abs() > 1e-5 * terms.abs().sum(-1) + 5e-6
    assert clear.double().mean() > 0.9
    assert torch.equal(got.sign()[clear], terms.sum(-1).sign()[clear].float())


@pytest.mark.parametrize("spread", [1e-3, 1e-4, 1e-5])
def test_inclusion_of_nearly_equal_variances_in_few_dimensions(generator, spread):
    """Errors of single dimensions, which many would average away."""

    def make():
        log_var = -9 + spread * torch.rand(20, 3, generator=generator)
        return Gaussian(torch.randn(20, 3, generator=generator), log_var)

    a, b = make(), make()
    terms = formulas.inclusion(
        double(a).mean[:, None], double(a).log_var[:, None], double(b).mean, double(b).log_var, "exact", 0.0
    )
    error = (prolip.inclusion_matrix(a, b) - terms.sum(-1)).abs()
    assert (error <= 1e-5 * terms.abs().sum(-1) + 5e-6).all()


def test_squared_distances_are_never_negative(generator):
    z = Gaussian.point(100 * torch.randn(50, 64, generator=generator))
    assert (prolip.csd_matrix(z, z) >= 0).all()


@pytest.mark.parametrize("name", ["csd", "inclusion", "log_inclusion", "kl_divergence"])
def test_mixed_dtypes_are_promoted_before_computing(draw, name):
    a, b = draw(4, 5), draw(4, 5).to(torch.float32)
    function = getattr(prolip, name)
    torch.testing.assert_close(function(a, b), function(a, double(b)), rtol=1e-12, atol=0)
    torch.testing.assert_close(function(b, a), function(double(b), a), rtol=1e-12, atol=0)


def test_devices_must_agree(draw, monkeypatch):
    monkeypatch.setattr(public, "check_gaussian", lambda z, name: z)  # which would fail on meta tensors first
    with pytest.raises(ValueError, match="b on meta"):
        prolip.csd(draw(2, 3), draw(2, 3).to("meta"))


def test_measures_ignore_autocast(draw):
    a = draw(6, 64, dtype=torch.float32)
    near = Gaussian(a.mean + 0.01 * draw(6, 64, dtype=torch.float32).mean, a.log_var)
    for name in [*PAIRED, *(f"{n}_matrix" for n in PAIRED)]:
        wanted = getattr(prolip, name)(a, near)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(getattr(prolip, name)(a, near), wanted)


@pytest.mark.parametrize("name", [f"{n}_matrix" for n in PAIRED])
def test_empty_batches_give_empty_results_with_gradients(draw, name):
    function = getattr(prolip, name)
    for n, m in ((0, 3), (3, 0), (0, 0)):
        a, b = draw(n, 4), draw(m, 4)
        assert function(a, b).shape == (n, m)
        a.mean.requires_grad_()
        function(a, b).sum().backward()
        assert a.mean.grad.shape == (n, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAIRED, *(f"{n}_matrix" for n in PAIRED)])
def test_measures_compile_as_full_graphs(draw, name):
    a, b = draw(3, 4, dtype=torch.float32), draw(3, 4, dtype=torch.float32)
    compiled = torch.compile(getattr(prolip, name), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(a, b), getattr(prolip, name)(a, b))


def test_unequal_row_counts_suggest_the_matrix_form(draw):
    with pytest.raises(ValueError, match="_matrix"):
        prolip.csd(draw(2, 3), draw(4, 3))
    with pytest.raises(ValueError, match="all pairs need"):
        prolip.csd_matrix(draw(2, 2, 3), draw(4, 3))


def test_inclusion_rejects_points(draw):
    with pytest.raises(ValueError, match="zero variance"):
        prolip.inclusion(draw(2, 3), Gaussian.point(draw(2, 3).mean))
    with pytest.raises(ValueError, match="zero variance"):
        prolip.kl_standard(Gaussian.point(draw(2, 3).mean))
    with pytest.raises(ValueError, match="between -80 and 80"):
        prolip.containment(*[Gaussian(torch.zeros(1, 1), torch.full((1, 1), -90.0))] * 2)


def test_inclusion_rejects_unknown_form(draw):
    with pytest.raises(ValueError, match="published"):
        prolip.inclusion(draw(2, 3), draw(2, 3), form="printed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log_inclusion", "inclusion", "log_containment"])
def test_a_million_pairs_match_float64(draw, name):
    """All-pairs kernels at the size at which they are used: nothing depends on where a block ends."""
    a, b = (
        draw(1000, 96, low=-12, high=-6, dtype=torch.float32),
        draw(1000, 96, low=-9, high=-3, dtype=torch.float32),
    )
    got = getattr(prolip, f"{name}_matrix")(a, b).double()
    for i in range(0, 1000, 50):
        wanted = getattr(prolip, name)(double(a[i : i + 1]), double(b))
        bound = 1e-5 * absolute_terms(name, a[i : i + 1], b) + 1e-7 * 96
        assert ((got[i] - wanted).abs() <= bound).all()
