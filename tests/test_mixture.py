"""Pooling against three-line definitions; EM against Algorithm 1 by the book, golden runs, and its own laws."""

import json
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file

from prolip import mixture
from prolip.gaussian import Gaussian
from prolip.measures.public import log_density_matrix
from tests.golden import FIXTURES


def by_the_book(points, components, alpha, initial, iterations):
    """Algorithm 1 for one class, with its own loops: points (M, D), components (T, D)."""
    pi = (initial / initial.sum()).tolist()
    count = len(pi)
    for _ in range(iterations):
        totals = [0.0] * count
        for x in points:
            logs = [
                (math.log(pi[n]) if pi[n] else -math.inf)
                + torch.distributions.Normal(components.mean[n], components.std[n]).log_prob(x).sum().item()
                for n in range(count)
            ]
            top = max(logs)
            density = [math.exp(value - top) for value in logs]
            for n in range(count):
                totals[n] += density[n] / sum(density)
        pi = [max(0.0, (totals[n] + alpha - 1) / (len(points) + count * (alpha - 1))) for n in range(count)]
        pi = [p / sum(pi) for p in pi]
    return torch.tensor(pi, dtype=torch.float64)


@pytest.fixture
def problem(draw, generator):
    """3 classes, 6 observations, 4 components, 5 dimensions."""
    components = draw(3, 4, 5, low=-1.5, high=0.0)
    points = components.mean[:, :1] + 0.5 * torch.randn(3, 6, 5, generator=generator, dtype=torch.float64)
    return points, components


class TestPool:
    def test_uniform_weights_are_the_prompt_ensemble(self, draw):
        prompts = draw(3, 7, 5)
        pooled = mixture.pool(prompts)
        wanted = torch.nn.functional.normalize(prompts.mean.mean(1), dim=-1)
        torch.testing.assert_close(pooled.mean, wanted)
        torch.testing.assert_close(pooled.var, prompts.var.mean(1))

    @pytest.mark.parametrize(("variance", "power"), [("average", 1), ("independent", 2)])
    def test_weighted_sums(self, draw, generator, variance, power):
        prompts, weights = draw(3, 7, 5), torch.rand(3, 7, generator=generator, dtype=torch.float64)
        pooled = mixture.pool(prompts, weights, variance=variance, normalize=False)
        for c in range(3):
            pi = weights[c] / weights[c].sum()
            torch.testing.assert_close(pooled.mean[c], sum(pi[t] * prompts.mean[c, t] for t in range(7)))
            torch.testing.assert_close(
                pooled.var[c], sum(pi[t] ** power * prompts.var[c, t] for t in range(7))
            )

    def test_independent_variance_is_that_of_a_weighted_sum_of_draws(self, draw, generator):
        prompts, weights = draw(4, 3, low=-1), torch.tensor([0.5, 0.2, 0.2, 0.1])
        draws = (weights[:, None] * prompts.sample(generator, 200_000)).sum(1)
        pooled = mixture.pool(prompts, weights, variance="independent")
        torch.testing.assert_close(draws.var(0), pooled.var, rtol=0.02, atol=0)

    def test_a_mask_is_a_weight(self, draw):
        prompts = draw(4, 5)
        kept = mixture.pool(prompts, torch.tensor([1.0, 0.0, 1.0, 0.0]))
        wanted = mixture.pool(prompts[[0, 2]])
        torch.testing.assert_close(kept.mean, wanted.mean)
        torch.testing.assert_close(kept.log_var, wanted.log_var)

    def test_points_pool_to_a_point(self, draw):
        pooled = mixture.pool(Gaussian.point(draw(2, 4, 5).mean))
        assert torch.equal(pooled.uncertainty, torch.zeros(2).double())
        torch.testing.assert_close(pooled.mean.norm(dim=-1), torch.ones(2).double())

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            (torch.tensor([1.0, -0.1, 0.1]), "not negative"),
            (torch.zeros(3), "above 0"),
            (torch.tensor([1.0, float("nan"), 0.0]), "finite"),
            (torch.ones(4), r"\(4,\) must be \(2, 3\) or \(3,\)"),
        ],
    )
    def test_bad_weights_are_named(self, draw, weights, message):
        with pytest.raises(ValueError, match=message):
            mixture.pool(draw(2, 3, 5), weights)

    def test_a_weight_of_zero_has_a_gradient(self, draw):
        prompts, weights = draw(3, 5), torch.tensor([1.0, 0.0, 1.0], requires_grad=True, dtype=torch.float64)

        def pooled(weights):
            z = mixture.pool(prompts, weights)
            return z.mean.sum() + z.log_var.sum()

        (got,) = torch.autograd.grad(pooled(weights), weights)
        for t in range(3):
            step = 1e-6 * torch.eye(3).double()[t]
            assert got[t].item() == pytest.approx(
                ((pooled(weights + step) - pooled(weights)) / 1e-6).item(), rel=1e-4
            )

    def test_a_wide_prompt_of_weight_zero_does_not_drown_the_rest(self):
        prompts = Gaussian(torch.ones(3, 1), torch.tensor([[-60.0], [-61.0], [50.0]]))
        pooled = mixture.pool(prompts, torch.tensor([1.0, 1.0, 0.0]))
        assert pooled.log_var.item() == pytest.approx(math.log(0.5 * (math.exp(-60) + math.exp(-61))))

    @given(
        prompts=st.integers(1, 6),
        dims=st.integers(1, 5),
        centre=st.floats(-80, 70),
        variance=st.sampled_from(["average", "independent"]),
        seed=st.integers(0, 99),
    )
    def test_pooling_lies_between_the_prompts(self, prompts, dims, centre, variance, seed):
        generator = torch.Generator().manual_seed(seed)
        log_var = (centre + 3 * torch.randn(2, prompts, dims, generator=generator)).clamp(-80, 80)
        z = Gaussian(1 + torch.rand(2, prompts, dims, generator=generator), log_var)
        weights = torch.rand(prompts, generator=generator) + 1e-3
        pooled = mixture.pool(z, weights, variance=variance)
        torch.testing.assert_close(pooled.mean.norm(dim=-1), torch.ones(2))
        assert torch.isfinite(pooled.log_var).all()
        assert (pooled.log_var <= log_var.amax(1) + 1e-4).all()
        lowest = log_var.amin(1) - (math.log(prompts) if variance == "independent" else 0.0)
        assert (pooled.log_var >= lowest - 1e-4).all(), "sum of pi^2 is at least 1/T"

    def test_bad_options_are_named(self, draw):
        with pytest.raises(ValueError, match="averge"):
            mixture.pool(draw(2, 3), variance="averge")
        with pytest.raises(TypeError, match="prompts must be a Gaussian"):
            mixture.pool(draw(2, 3).mean)
        with pytest.raises(TypeError, match="weights must be a tensor, not list"):
            mixture.pool(draw(2, 3), [1.0, 1.0])

    def test_opposite_prompts_have_no_mean(self):
        for rest in (0.0, 1e-7):
            mean = torch.tensor([[1.0, 0.0], [-1.0, rest]])
            with pytest.raises(ValueError, match="is zero"):
                mixture.pool(Gaussian(mean, torch.zeros(2, 2)))

    def test_one_gaussian_is_not_a_set_of_prompts(self, draw):
        with pytest.raises(ValueError, match="T at least 1"):
            mixture.pool(draw(5))


def test_inverse_uncertainty_weights(draw):
    prompts = draw(3, 7, 5)
    weights = mixture.inverse_uncertainty_weights(prompts)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3).double())
    torch.testing.assert_close(
        weights * prompts.uncertainty, (weights * prompts.uncertainty)[:, :1].expand(3, 7)
    )
    with pytest.raises(ValueError, match="none"):
        mixture.inverse_uncertainty_weights(Gaussian.point(prompts.mean))


def test_dirichlet_prior_has_alphas_total_pull(draw):
    weights = mixture.inverse_uncertainty_weights(draw(3, 7, 5))
    alpha = mixture.dirichlet_prior(weights, 5.0)
    torch.testing.assert_close((alpha - 1).sum(-1), torch.full((3,), 4.0 * 7).double())
    torch.testing.assert_close(mixture.dirichlet_prior(torch.full((7,), 3.0), 5.0), torch.full((7,), 5.0))


class TestMixingWeights:
    @pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0, 0.8])
    @pytest.mark.parametrize("iterations", [1, 2, 7])
    def test_each_step_is_algorithm_1(self, problem, alpha, iterations):
        points, components = problem
        initial = mixture.inverse_uncertainty_weights(components)
        found = mixture.fit_mixing_weights(
            points, components, alpha=alpha, initial=initial, tolerance=0.0, max_iterations=iterations
        )
        for c in range(3):
            wanted = by_the_book(points[c], components[c], alpha, initial[c], iterations)
            torch.testing.assert_close(found.weights[c], wanted, rtol=1e-9, atol=1e-12)
        assert ((found.iterations == iterations) | found.converged).all()

    @pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 10.0])
    def test_no_step_lowers_the_posterior(self, problem, alpha):
        points, components = problem
        values = torch.stack(
            [
                mixture.fit_mixing_weights(
                    points, components, alpha=alpha, tolerance=0.0, max_iterations=k
                ).log_posterior
                for k in range(1, 25)
            ]
        )
        assert (values.diff(dim=0) >= -1e-10).all()
        assert (values[-1] > values[0]).all()

    def test_the_log_posterior_is_the_definition(self, problem):
        points, components = problem
        found = mixture.fit_mixing_weights(points, components, alpha=3.0)
        for c in range(3):
            normal = torch.distributions.Normal(components.mean[c], components.std[c])
            density = normal.log_prob(points[c][:, None]).sum(-1).exp() @ found.weights[c]
            wanted = density.log().sum() + 2.0 * found.weights[c].log().sum()
            torch.testing.assert_close(found.log_posterior[c], wanted)

    def test_the_end_is_a_fixed_point_and_does_not_depend_on_the_start(self, problem):
        """For alpha > 1 the posterior is concave: the start can't change where EM ends."""
        points, components = problem
        ends = [
            mixture.fit_mixing_weights(points, components, alpha=2.0, initial=initial, tolerance=1e-12)
            for initial in (
                None,
                torch.tensor([0.97, 0.01, 0.01, 0.01]),
                torch.tensor([0.01, 0.01, 0.01, 0.97]),
            )
        ]
        assert all(end.converged.all() for end in ends)
        for end in ends[1:]:
            torch.testing.assert_close(end.weights, ends[0].weights, atol=1e-9, rtol=0)
        again = mixture.fit_mixing_weights(
            points, components, alpha=2.0, initial=ends[0].weights, max_iterations=1
        )
        torch.testing.assert_close(again.weights, ends[0].weights, atol=1e-10, rtol=0)

    def test_classes_do_not_touch_each_other(self, problem):
        """Classes stop at different times; each ends as if it were alone."""
        points, components = problem
        together = mixture.fit_mixing_weights(points, components, alpha=1.2)
        assert len(set(together.iterations.tolist())) > 1
        for c in range(3):
            alone = mixture.fit_mixing_weights(points[c : c + 1], components[c : c + 1], alpha=1.2)
            torch.testing.assert_close(together.weights[c], alone.weights[0])
            assert together.iterations[c] == alone.iterations[0]

    def test_concentrations_may_differ(self, problem):
        points, components = problem
        flat = mixture.fit_mixing_weights(points, components, alpha=2.0)
        same = mixture.fit_mixing_weights(points, components, alpha=torch.full((4,), 2.0))
        torch.testing.assert_close(flat.weights, same.weights)
        pulled = mixture.fit_mixing_weights(points, components, alpha=torch.tensor([1.0, 1.0, 1.0, 500.0]))
        assert (pulled.weights[:, 3] > 0.95).all()

    @given(
        alpha=st.sampled_from([1e-3, 0.1, 0.5, 0.99]),
        spread=st.sampled_from([0.1, 1.0, 30.0]),
        log_var=st.sampled_from([-20.0, -4.0, 0.0]),
        shape=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 9), st.integers(1, 4)),
        seed=st.integers(0, 99),
    )
    def test_below_alpha_1_weights_stay_finite_and_normalised(self, alpha, spread, log_var, shape, seed):
        classes, count, prompts, dims = shape
        generator = torch.Generator().manual_seed(seed)
        components = Gaussian(
            spread * torch.randn(classes, prompts, dims, generator=generator),
            torch.full((classes, prompts, dims), log_var),
        )
        points = spread * torch.randn(classes, count, dims, generator=generator)
        found = mixture.fit_mixing_weights(points, components, alpha=alpha, max_iterations=50)
        assert torch.isfinite(found.weights).all()
        assert torch.isfinite(found.log_posterior).all()
        assert (found.weights >= 0).all()
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(classes).double())

    def test_a_lost_component_leaves_the_rest_to_share_its_observations(self):
        """The best component of an observation is clipped to 0; what is left is thousands of nats below it."""
        mean = torch.tensor([[[0.0], [100.0], [103.0]]])
        components = Gaussian(mean, torch.zeros(1, 3, 1))
        points = torch.tensor([[[0.0], [100.0], [100.2], [102.8]]])
        # component 0 explains one observation, 0.9 less than what alpha = 1e-3 takes
        found = mixture.fit_mixing_weights(
            points, components, alpha=1e-3, initial=torch.tensor([1e-9, 0.5, 0.5])
        )
        assert torch.isfinite(found.weights).all()
        counts = torch.softmax(
            -0.5 * (points[0] - mean[0].T).double().square() + found.weights.log(), dim=-1
        ).sum(0)
        fixed = (counts + 1e-3 - 1).clamp_min(0)
        torch.testing.assert_close(found.weights[0], fixed / fixed.sum(), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("far", [100.0, 37.8])
    def test_clipping_the_best_components_leaves_their_observation_to_the_rest(self, far):
        """Two share an observation, half each, and are clipped; the others are far below (37.8: in denormals)."""
        mean = torch.tensor([[[0.0], [0.0], [far], [far + 3]]])
        points = torch.tensor([[[0.0], [far], [far + 0.2], [far + 2.8]]])
        found = mixture.fit_mixing_weights(points, Gaussian(mean, torch.zeros(1, 4, 1)), alpha=1e-3)
        assert found.weights[0, :2].tolist() == [0.0, 0.0]
        logits = -0.5 * (points[0] - mean[0].T).double().square() + found.weights.log()
        fixed = (torch.softmax(logits, dim=-1).sum(0) + 1e-3 - 1).clamp_min(0)
        torch.testing.assert_close(found.weights[0], fixed / fixed.sum(), atol=1e-6, rtol=0)

    def test_a_class_that_has_stopped_stays_stopped(self):
        """Class 0's first step is below the tolerance, its second would not be."""
        components = Gaussian(torch.tensor([0.0, 1.8]).expand(4, 2)[..., None], torch.zeros(4, 2, 1))
        points = torch.tensor([[0.0, 0.0], [0.75, 0.95], [0.8, 0.9], [0.85, 1.05]])[..., None]
        initial = torch.tensor([[1e-6, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
        options = {"alpha": 1.0, "tolerance": 1e-5}
        together = mixture.fit_mixing_weights(points, components, initial=initial, **options)
        alone = mixture.fit_mixing_weights(points[:1], components[:1], initial=initial[:1], **options)
        assert together.iterations[0] == alone.iterations[0] == 1
        assert together.iterations[1:].min() > 1
        torch.testing.assert_close(together.weights[0], alone.weights[0])

    def test_all_clipped_leaves_the_largest(self):
        components = Gaussian(torch.tensor([[[0.0], [1.0], [2.0]]]), torch.zeros(1, 3, 1))
        found = mixture.fit_mixing_weights(torch.tensor([[[1.1]]]), components, alpha=0.01)
        assert found.weights.tolist() == [[0.0, 1.0, 0.0]]

    def test_many_classes_each_end_as_if_alone(self, draw, generator):
        components = draw(40, 4, 5, low=-1.5, high=0.0)
        points = components.mean[:, :1] + 0.5 * torch.randn(
            40, 6, 5, generator=generator, dtype=torch.float64
        )
        together = mixture.fit_mixing_weights(points, components, alpha=2.0)
        for c in range(40):
            alone = mixture.fit_mixing_weights(points[c : c + 1], components[c : c + 1], alpha=2.0)
            assert together.iterations[c] == alone.iterations[0]
            torch.testing.assert_close(together.weights[c], alone.weights[0], rtol=0, atol=1e-14)

    def test_narrow_components_close_together_are_told_apart(self, generator):
        """sigma about 2e-9, a tenth of it between components: the expanded square would have no digits left."""
        z = Gaussian(torch.zeros(1, 3, 64).double(), torch.full((1, 3, 64), -40.0).double())
        z.mean[0] += 1.0 + 0.1 * z.std[0] * torch.randn(3, 64, generator=generator, dtype=torch.float64)
        points = z[:, 0].sample(generator, 30).transpose(0, 1)
        found = mixture.fit_mixing_weights(points, z, alpha=2.0, tolerance=0.0, max_iterations=5)
        wanted = by_the_book(points[0], z[0], 2.0, torch.ones(3), 5)
        torch.testing.assert_close(found.weights[0], wanted, rtol=1e-6, atol=1e-6)

    def test_densities_that_overflow_are_an_error(self, problem):
        points, components = problem
        with pytest.raises(ValueError, match="overflow"):
            mixture.fit_mixing_weights(points * 1e160, components, alpha=2.0)

    def test_far_observations_do_not_make_nans(self, draw):
        components = draw(2, 5, 64, low=-20, high=-18)
        found = mixture.fit_mixing_weights(50.0 + draw(2, 10, 64).mean, components, alpha=5.0)
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2).double())

    def test_density_blocks_change_nothing(self, problem, monkeypatch):
        points, components = problem
        whole = mixture.class_log_densities(points, components)
        sizes = []

        def record(x, z):
            sizes.append(len(x))
            return log_density_matrix(x, z)

        monkeypatch.setattr(mixture, "log_density_matrix", record)
        for elements, wanted in ((1, [1, 1, 1]), (2 * 6 * 5, [2, 1])):
            sizes.clear()
            monkeypatch.setattr(mixture, "DENSITY_ELEMENTS", elements)
            assert torch.equal(mixture.class_log_densities(points, components), whole)
            assert sizes == wanted

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"alpha": 0.0}, "alpha must be positive"),
            ({"alpha": float("inf")}, "alpha must be positive"),
            ({"alpha": 1e308}, "below 1e100"),
            ({"tolerance": float("nan")}, "tolerance nan"),
            ({"max_iterations": 0}, "max_iterations 0"),
            ({"alpha": torch.ones(5)}, r"alpha \(5,\)"),
            ({"initial": torch.tensor([1.0, 0.0, 1.0, 1.0])}, "initial weights must be positive"),
            ({"initial": torch.ones(2, 4)}, r"initial \(2, 4\)"),
        ],
    )
    def test_bad_settings_are_named(self, problem, change, message):
        points, components = problem
        with pytest.raises(ValueError, match=message):
            mixture.fit_mixing_weights(points, components, **{"alpha": 2.0, **change})

    def test_bad_shapes_are_named(self, problem):
        points, components = problem
        with pytest.raises(ValueError, match="number of classes"):
            mixture.fit_mixing_weights(points[:2], components, alpha=2.0)
        with pytest.raises(ValueError, match="must not be empty"):
            mixture.fit_mixing_weights(points[:, :0], components, alpha=2.0)
        with pytest.raises(ValueError, match="observations must be finite"):
            mixture.fit_mixing_weights(points * float("nan"), components, alpha=2.0)


def golden_cases():
    info = json.loads((FIXTURES / "analysis" / "bprw_info.json").read_text())
    return {name: case for name, case in info.items() if isinstance(case, dict) and "kw" in case}


@pytest.mark.parametrize("name", golden_cases())
def test_em_ends_where_the_release_does(name):
    golden, case = load_file(FIXTURES / "analysis" / "bprw.safetensors"), golden_cases()[name]
    group, options = name.split(".")[0], case["kw"]
    variance = golden[f"{group}.vars"].double()
    factor = options.get("var_multi", 1)
    widened = (variance * factor + (options.get("stable_eps") or 0.0)) * factor
    components = Gaussian(golden[f"{group}.means"].double()[None], widened.log()[None])
    initial = None
    if options["prior"] == "inverse":
        initial = mixture.inverse_uncertainty_weights(Gaussian(components.mean, variance.log()[None]))
    found = mixture.fit_mixing_weights(
        golden[f"{group}.obs"][None].double(),
        components,
        alpha=options["alpha"],
        initial=initial,
        tolerance=1e-12,
        max_iterations=options.get("max_iter", 1000),
    )
    wanted = golden[f"{name}.pi_f64in"].double()
    torch.testing.assert_close(found.weights[0], wanted, atol=1e-6, rtol=0)
