"""BPRW against a run of the release, planted mixtures, and its invariants."""

import pytest
import torch
from safetensors.torch import load_file

from prolip.gaussian import Gaussian
from prolip.mixture import fit_mixing_weights, inverse_uncertainty_weights, pool
from prolip.zeroshot import bprw
from prolip.zeroshot.bprw import (
    ZERO_SHOT_CONFIG,
    BPRWConfig,
    few_shot_config,
    find_nearest_images,
    fit_prompt_weights,
    fit_weights_to_samples,
)
from tests.golden import FIXTURES


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def problem(draw):
    """4 classes x 5 prompts; 6 images of each, near its first prompt; labels."""
    prompts = draw(4, 5, 8, low=-6, high=-4)
    means = prompts.mean[:, :1] + 0.15 * draw(4, 6, 8).mean
    images = Gaussian(means.flatten(0, 1), draw(24, 8, low=-7, high=-5).log_var)
    return prompts, images, torch.arange(4).repeat_interleave(6)


class TestGolden:
    @pytest.fixture
    def golden(self):
        return load_file(FIXTURES / "analysis" / "bprw.safetensors")

    @pytest.fixture
    def prompts(self, golden):
        return Gaussian(golden["full.classifier_all"].double(), golden["full.text_vars_all"].double().log())

    def test_weights_match_the_release(self, golden, prompts):
        found = fit_weights_to_samples(prompts, golden["full.samples"].double(), ZERO_SHOT_CONFIG)
        assert found.converged.all()
        torch.testing.assert_close(found.weights, golden["full.pi"].double(), atol=2e-6, rtol=0)

    def test_pooled_classes_match_the_release(self, golden, prompts):
        pooled = pool(prompts, golden["full.pi"].double(), variance="independent", normalize=False)
        torch.testing.assert_close(pooled.mean.T, golden["full.classifier"].double(), atol=2e-7, rtol=0)
        torch.testing.assert_close(pooled.var.T, golden["full.text_vars"].double(), atol=1e-9, rtol=1e-5)

    def test_nearest_images_by_cosine_match_the_release(self, golden, prompts):
        """Ten draws of an image, which stand together, have it as the image nearest to their mean."""
        images = Gaussian(golden["full.image_mean"].double(), golden["full.image_logvar"].double())
        centres = golden["full.samples"].double().reshape(4, 10, 10, 24).mean(2)
        wanted = torch.cdist(centres, images.mean.expand(4, -1, -1)).argmin(-1)
        assert torch.equal(find_nearest_images(prompts, images, 10, metric="cosine"), wanted)
        ours = find_nearest_images(prompts, images, 10)
        assert torch.equal(ours.sort().values, wanted.sort().values), (
            "here uncertainty changes their order only"
        )
        assert not torch.equal(ours, wanted)


class TestReweigh:
    def test_weights_sum_to_one_and_permute_with_classes(self, problem):
        prompts, images, _ = problem
        observed = Gaussian(images.mean.reshape(4, 6, 8), images.log_var.reshape(4, 6, 8))
        found = fit_prompt_weights(prompts, observed, few_shot_config(6), seeded())
        assert found.weights.shape == (4, 5)
        assert (found.weights >= 0).all()
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(4).double())
        order = torch.tensor([2, 0, 3, 1])
        again = fit_prompt_weights(prompts[order], observed[order], few_shot_config(6), seeded())
        torch.testing.assert_close(again.weights, found.weights[order], atol=1e-12, rtol=0)

    def test_fit_equals_em_on_widened_prompts_and_samples(self, problem):
        prompts, images, _ = problem
        observed = Gaussian(images.mean.reshape(4, 6, 8), images.log_var.reshape(4, 6, 8))
        settings = BPRWConfig(alpha=3.0, samples_per_image=2, extra_variance=0.1)
        noise = torch.randn(6, 2, 8, generator=seeded(), dtype=torch.float64)
        for c in range(4):
            points = [
                observed.mean[c, m] + observed.std[c, m] * noise[m, k] for m in range(6) for k in range(2)
            ]
            widened = Gaussian(prompts.mean[c : c + 1], (prompts.var[c : c + 1] + 0.1).log())
            wanted = fit_mixing_weights(torch.stack(points)[None], widened, alpha=3.0, tolerance=1e-12)
            found = fit_prompt_weights(prompts, observed, settings, seeded())
            torch.testing.assert_close(found.weights[c], wanted.weights[0], atol=1e-6, rtol=0)

    def test_planted_weights_are_found(self, generator):
        """Images drawn from a mixture of well separated prompts: EM finds its shares."""
        shares = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
        mean = torch.eye(3).expand(2, 3, 3).double()
        prompts = Gaussian(mean, torch.full_like(mean, -5.0))
        counts = (shares * 100).round().long()
        rows = [torch.arange(3).repeat_interleave(counts[c]) for c in range(2)]
        observed = Gaussian.stack([prompts[c, rows[c]] for c in range(2)])
        found = fit_prompt_weights(prompts, observed, BPRWConfig(alpha=1.0, samples_per_image=3), generator)
        torch.testing.assert_close(found.weights, shares.double(), atol=1e-3, rtol=0)

    def test_block_size_does_not_change_weights(self, problem, monkeypatch):
        prompts, images, _ = problem
        observed = Gaussian(images.mean.reshape(4, 6, 8), images.log_var.reshape(4, 6, 8))
        whole = fit_prompt_weights(prompts, observed, few_shot_config(6), seeded())
        for elements in (1, 3 * 6 * 16 * 8):
            monkeypatch.setattr(bprw, "BLOCK_ELEMENTS", elements)
            parts = fit_prompt_weights(prompts, observed, few_shot_config(6), seeded())
            torch.testing.assert_close(parts.weights, whole.weights, atol=1e-12, rtol=0)
            assert torch.equal(parts.iterations, whole.iterations)

    def test_prior_initial_and_dirichlet_differ(self):
        """A prior so strong that one observation moves nothing: its mode is what is left."""
        flat = Gaussian(torch.zeros(4, 5, 8).double(), torch.full((4, 5, 8), -4.0).double())
        flat.log_var[:, 0] -= 1.0  # a narrower prompt
        observed = Gaussian(torch.zeros(4, 1, 8).double() + 0.1, torch.full((4, 1, 8), -9.0).double())
        strong = {"alpha": 1e5, "samples_per_image": 1}
        initial = fit_prompt_weights(flat, observed, BPRWConfig(**strong), seeded()).weights
        dirichlet = fit_prompt_weights(
            flat, observed, BPRWConfig(**strong, prior="dirichlet"), seeded()
        ).weights
        torch.testing.assert_close(initial, torch.full((4, 5), 0.2).double(), atol=1e-4, rtol=0)
        torch.testing.assert_close(dirichlet, inverse_uncertainty_weights(flat), atol=1e-4, rtol=0)
        assert dirichlet[0, 0] > 1.5 * dirichlet[0, 1]

    def test_model_without_uncertainty_is_rejected(self, problem):
        prompts, images, labels = problem
        points = Gaussian.point(prompts.mean)
        with pytest.raises(ValueError, match="BPRW weights prompts by their uncertainty"):
            bprw.zero_shot_weights(points, images, ZERO_SHOT_CONFIG, seeded())
        with pytest.raises(ValueError, match="BPRW weights prompts by their uncertainty"):
            bprw.few_shot_weights(points, images, labels, 2, few_shot_config(2), seeded())

    def test_invalid_shapes_are_rejected(self, problem):
        prompts, images, _ = problem
        with pytest.raises(ValueError, match=r"\(C, M, D\)"):
            fit_prompt_weights(prompts, images, ZERO_SHOT_CONFIG, seeded())
        with pytest.raises(ValueError, match=r"\(C, M, D\)"):
            fit_prompt_weights(prompts, Gaussian.stack([images] * 3), ZERO_SHOT_CONFIG, seeded())


class TestNearest:
    def test_nearest_images_have_smallest_csd_to_pooled_prompts(self, problem):
        prompts, images, _ = problem
        pooled = pool(prompts)
        for c in range(4):
            distance = [
                ((pooled.mean[c] - x.mean) ** 2).sum() + x.uncertainty + pooled.uncertainty[c] for x in images
            ]
            wanted = sorted(range(24), key=lambda i: distance[i])[:7]
            assert find_nearest_images(prompts, images, 7)[c].tolist() == wanted

    def test_nearest_images_of_few_images_are_all(self, problem):
        prompts, images, _ = problem
        assert find_nearest_images(prompts, images[:3], 10).sort().values.tolist() == [[0, 1, 2]] * 4

    def test_nearest_images_without_images_raises(self, problem):
        prompts, images, _ = problem
        with pytest.raises(ValueError, match="items are empty"):
            find_nearest_images(prompts, images[:0], 10)


class TestFewShot:
    def test_zero_shot_equals_few_shot_if_nearest_images_are_true_ones(self, draw):
        """Classes far apart: all six images of a class are its six nearest. The order of images doesn't matter much:
        draws are narrow, so that weights agree closely."""
        centres = torch.eye(4, 8).double()
        means = torch.nn.functional.normalize(centres[:, None] + 0.05 * draw(4, 5, 8).mean, dim=-1)
        prompts = Gaussian(means, draw(4, 5, 8, low=-6, high=-5).log_var)
        near = centres[:, None] + 0.05 * draw(4, 6, 8).mean
        images = Gaussian(near.flatten(0, 1), torch.full((24, 8), -20.0).double())
        labels = torch.arange(4).repeat_interleave(6)
        assert (labels[find_nearest_images(prompts, images, 6)] == torch.arange(4)[:, None]).all()
        settings = BPRWConfig(alpha=2.0, samples_per_image=16, nearest_images=6, extra_variance=0.001)
        zero = bprw.zero_shot_weights(prompts, images, settings, seeded()).weights
        few = bprw.few_shot_weights(prompts, images, labels, 6, settings, seeded())
        torch.testing.assert_close(few.weights, zero, atol=2e-3, rtol=0)
        assert (zero.amax(-1) > 0.3).all(), "they are not just the prior"
        assert few.image_indices.sort().values.tolist() == torch.arange(24).reshape(4, 6).tolist()

    def test_image_indices_are_the_images_used(self, problem):
        """Replacing all others by nonsense changes nothing."""
        prompts, images, labels = problem
        first = bprw.few_shot_weights(prompts, images, labels, 3, few_shot_config(3), seeded())
        spoilt = Gaussian(torch.full_like(images.mean, 7.0), images.log_var)
        used = first.image_indices.flatten()
        spoilt.mean[used] = images.mean[used]
        again = bprw.few_shot_weights(prompts, spoilt, labels, 3, few_shot_config(3), seeded())
        assert torch.equal(first.image_indices, again.image_indices)
        assert torch.equal(first.weights, again.weights)

    @pytest.mark.parametrize("prior", ["initial", "dirichlet"])
    def test_class_without_images_has_the_weights_of_the_prior(self, problem, prior):
        prompts, images, labels = problem
        known = labels != 2
        settings = BPRWConfig(alpha=2.0, samples_per_image=4, prior=prior)
        found = bprw.few_shot_weights(prompts, images[known], labels[known], 3, settings, seeded())
        wanted = (
            torch.full((5,), 0.2).double() if prior == "initial" else inverse_uncertainty_weights(prompts)[2]
        )
        torch.testing.assert_close(found.weights[2], wanted)
        assert found.image_indices[2].tolist() == [-1, -1, -1]
        assert (found.image_indices[[0, 1, 3]] >= 0).all()
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(4).double())

    def test_few_shot_weights_without_images(self, problem):
        prompts, images, labels = problem
        found = bprw.few_shot_weights(prompts, images[:0], labels[:0], 3, few_shot_config(3), seeded())
        torch.testing.assert_close(found.weights, torch.full((4, 5), 0.2).double())


class TestSettings:
    def test_settings_of_the_paper(self):
        assert (
            ZERO_SHOT_CONFIG.alpha,
            ZERO_SHOT_CONFIG.nearest_images,
            ZERO_SHOT_CONFIG.samples_per_image,
            ZERO_SHOT_CONFIG.extra_variance,
        ) == (5.0, 10, 10, 0.02)
        assert [(few_shot_config(k).alpha, few_shot_config(k).samples_per_image) for k in (1, 5, 9, 200)] == [
            (2.0, 100),
            (2.0, 20),
            (2.0, 11),
            (2.0, 1),
        ]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"alpha": 0.0}, "alpha must be positive"),
            ({"alpha": float("nan")}, "alpha must be positive"),
            ({"samples_per_image": 0}, "samples_per_image must be"),
            ({"nearest_images": 0}, "nearest_images must be"),
            ({"extra_variance": -0.1}, "extra_variance must be"),
            ({"prior": "flat"}, "prior 'flat'"),
            ({"prior": "dirichlet", "alpha": 0.5}, "dirichlet.* not 0.5"),
        ],
    )
    def test_invalid_settings_are_rejected(self, change, message):
        with pytest.raises(ValueError, match=message):
            BPRWConfig(**{"alpha": 2.0, "samples_per_image": 1, **change})

    def test_zero_shot_requires_nearest_images(self, problem):
        prompts, images, _ = problem
        with pytest.raises(ValueError, match="nearest_images must be set"):
            bprw.zero_shot_weights(prompts, images, few_shot_config(5), seeded())


def test_single_prompt_without_uncertainty_is_rejected(draw, generator):
    prompts = draw(2, 3, 4)
    log_var = prompts.log_var.clone()
    log_var[1, 2] = -torch.inf
    with pytest.raises(ValueError, match="BPRW weights prompts by their uncertainty"):
        bprw.fit_prompt_weights(
            Gaussian(prompts.mean, log_var), draw(2, 5, 4), bprw.few_shot_config(5), generator
        )
