"""The likelihoods against loops over pairs in float64; chunks and parts against the whole; the NLL of own pairs."""

import math

import pytest
import torch

from prolip.gaussian import Gaussian, MeanTrace
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.objective import GlobalBatch, Objective
from prolip.losses.vmf_likelihood import LikelihoodTemperature, likelihood, nll, one_sided
from prolip.measures import vmf

GAMMA = 2.0


def make_rows(count, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(count, dim, dtype=torch.float64, generator=generator)
    trace = torch.rand(count, dtype=torch.float64, generator=generator) + 0.3
    return torch.nn.functional.normalize(mean, dim=-1).requires_grad_(), trace.requires_grad_()


def make_temperature(tau=0.7, bias=-1.0):
    parameters = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (tau, bias))
    return LikelihoodTemperature.from_model(*parameters, GAMMA)


def loop(images, texts, temperature, offset=0):
    """The definition, pair by pair."""
    kappas = [temperature.scale * z.uncertainty**-GAMMA for z in (images, texts)]
    total = 0.0
    for i in range(len(images.mean)):
        for j in range(len(texts.mean)):
            a, b, cosine = kappas[0][i], kappas[1][j], images.mean[i] @ texts.mean[j]
            resultant = (a**2 + b**2 + 2 * a * b * cosine).sqrt()
            dim = images.mean.shape[1]
            f = [vmf.log_partition(k, dim) for k in (resultant, kappas[0][i], kappas[1][j])]
            logit = f[0] - f[1] - f[2] + temperature.logit_bias
            sign = 1.0 if j == i + offset else -1.0
            total = total - torch.sigmoid(sign * logit).log()
    return total / len(texts.mean)


@pytest.mark.parametrize("dim", [2, 3, 64])
def test_likelihood_equals_the_loop_with_gradients(dim):
    images, texts = MeanTrace(*make_rows(4, dim, 0)), MeanTrace(*make_rows(6, dim, 1))
    temperature = make_temperature()
    leaves = [images.mean, images.uncertainty, texts.mean, texts.uncertainty]
    leaves += [temperature.logit_scale, temperature.logit_bias]
    fast, slow = (
        likelihood(images, texts, temperature, offset=2, chunk=4),
        loop(images, texts, temperature, 2),
    )
    torch.testing.assert_close(fast, slow)
    for a, b in zip(torch.autograd.grad(fast, leaves), torch.autograd.grad(slow, leaves), strict=True):
        torch.testing.assert_close(a, b)


def test_likelihood_passes_gradcheck():
    temperature = make_temperature()

    def compute(image_mean, image_trace, text_mean, text_trace, tau, bias):
        own = LikelihoodTemperature.from_model(tau, bias, GAMMA)
        return likelihood(MeanTrace(image_mean, image_trace), MeanTrace(text_mean, text_trace), own, chunk=2)

    tensors = (*make_rows(3, 5, 0), *make_rows(5, 5, 1), temperature.logit_scale, temperature.logit_bias)
    assert torch.autograd.gradcheck(compute, tensors)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_chunks_do_not_change_the_likelihood(chunk):
    images, texts = MeanTrace(*make_rows(5, 8, 0)), MeanTrace(*make_rows(5, 8, 1))
    whole = likelihood(images, texts, make_temperature())
    torch.testing.assert_close(likelihood(images, texts, make_temperature(), chunk=chunk), whole)


def test_parts_of_ranks_add_up_to_the_likelihood():
    (mean, trace), texts = make_rows(6, 8, 0), MeanTrace(*make_rows(6, 8, 1))
    temperature = make_temperature()
    whole = likelihood(MeanTrace(mean, trace), texts, temperature)
    parts = [
        likelihood(MeanTrace(mean[rows], trace[rows]), texts, temperature, offset=rows.start)
        for rows in (slice(0, 2), slice(2, 6))
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_likelihood_is_symmetric_in_images_and_texts():
    images, texts = MeanTrace(*make_rows(5, 8, 0)), MeanTrace(*make_rows(5, 8, 1))
    torch.testing.assert_close(
        likelihood(images, texts, make_temperature()), likelihood(texts, images, make_temperature())
    )


def test_float32_is_close_to_float64():
    images, texts = MeanTrace(*make_rows(40, 64, 0)), MeanTrace(*make_rows(40, 64, 1))
    temperature = LikelihoodTemperature(5.0, -3.0, GAMMA)
    exact = likelihood(images, texts, temperature.double())
    single = likelihood(
        MeanTrace(images.mean.float(), images.uncertainty.float()),
        MeanTrace(texts.mean.float(), texts.uncertainty.float()),
        temperature.float(),
    )
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=0)


def test_likelihood_of_a_general_caption_is_best_at_a_wide_density():
    """A text true of every image gains nothing by any direction: its loss falls as its width grows."""
    generator = torch.Generator().manual_seed(0)
    means = torch.nn.functional.normalize(
        torch.randn(64, 8, dtype=torch.float64, generator=generator), dim=-1
    )
    images = MeanTrace(means, torch.full((64,), 0.5, dtype=torch.float64))
    losses = []
    for width in (0.5, 1.0, 2.0):
        text = MeanTrace(means[:1].expand(64, -1), torch.full((64,), width, dtype=torch.float64))
        losses.append(likelihood(images, text, make_temperature(bias=-math.log(64))).item())
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("densities", ["image", "text"])
def test_one_sided_equals_the_loop_with_gradients(densities):
    images, texts = MeanTrace(*make_rows(4, 5, 0)), MeanTrace(*make_rows(6, 5, 1))
    temperature = make_temperature()
    widths = images if densities == "image" else texts

    def compute_logit(i, j):
        kappa = (temperature.scale * widths.uncertainty**-GAMMA)[i if densities == "image" else j]
        cosine = images.mean[i] @ texts.mean[j]
        return kappa * cosine - vmf.log_partition(kappa, 5) + temperature.logit_bias

    signs = torch.full((4, 6), -1.0, dtype=torch.float64)
    signs.diagonal(2).fill_(1.0)
    logits = torch.stack([torch.stack([compute_logit(i, j) for j in range(6)]) for i in range(4)])
    slow = -torch.nn.functional.logsigmoid(signs * logits).sum() / 6
    fast = one_sided(images, texts, temperature, densities=densities, offset=2, chunk=4)
    torch.testing.assert_close(fast, slow)
    leaves = [images.mean, texts.mean, widths.uncertainty, temperature.logit_scale, temperature.logit_bias]
    for a, b in zip(torch.autograd.grad(fast, leaves), torch.autograd.grad(slow, leaves), strict=True):
        torch.testing.assert_close(a, b)


def test_one_sided_mirrors_the_other_modality():
    images, texts = MeanTrace(*make_rows(5, 8, 0)), MeanTrace(*make_rows(5, 8, 1))
    torch.testing.assert_close(
        one_sided(images, texts, make_temperature(), densities="text"),
        one_sided(texts, images, make_temperature(), densities="image"),
    )


def test_one_sided_is_the_likelihood_of_images_that_know_their_concept():
    images, texts = MeanTrace(*make_rows(5, 8, 0)), MeanTrace(*make_rows(5, 8, 1))
    certain = MeanTrace(images.mean, torch.full((5,), 0.005, dtype=torch.float64))  # kappa is about 80,000
    torch.testing.assert_close(
        one_sided(images, texts, make_temperature(), densities="text"),
        likelihood(certain, texts, make_temperature()),
        rtol=1e-3,
        atol=0,
    )


def test_nll_equals_the_gaussian_density_and_moves_widths_only(draw):
    points, densities = draw(5, 4, low=-2, high=0), draw(5, 4, low=-2, high=0)
    densities = Gaussian(
        densities.mean.requires_grad_(), densities.log_var[:, :1].expand(-1, 4).requires_grad_()
    )
    temperature = LogitScaleBias(2.0, 0.0).double()
    value = nll(points, densities, temperature)
    std = (2.0 * densities.uncertainty / 4).sqrt()
    expected = -torch.distributions.Normal(densities.mean, std[:, None]).log_prob(points.mean).mean()
    torch.testing.assert_close(value, expected - 0.5 * math.log(2 * math.pi))
    mean_grad, var_grad = torch.autograd.grad(value, [densities.mean, densities.log_var], allow_unused=True)
    assert mean_grad is None
    assert var_grad.abs().sum() > 0


def test_nll_of_unpaired_rows_raises(draw):
    with pytest.raises(ValueError, match="row by row"):
        nll(draw(5, 4), draw(4, 4), LogitScaleBias())


def test_objective_computes_all_terms_over_ranks(draw):
    objective = Objective(ppcl=0, likelihood=1, one_sided=0.3, nll=0.5, inclusion=0, masked=0, vib=0)
    unit = [
        Gaussian(torch.nn.functional.normalize(z.mean, dim=-1), z.log_var) for z in (draw(6, 8), draw(6, 8))
    ]
    temperatures = objective.make_temperatures().double()
    whole = objective(*unit, temperatures)
    parts = [
        objective(
            unit[0][rows], unit[1][rows], temperatures,
            batch=GlobalBatch(texts=unit[1], offset=rows.start),
        )
        for rows in (slice(0, 4), slice(4, 6))
    ]  # fmt: skip
    assert set(whole.values) == {"likelihood", "one_sided_images", "one_sided_texts", "nll"}
    assert whole.weights["one_sided_images"] == whole.weights["one_sided_texts"] == 0.3
    torch.testing.assert_close(sum(part.total for part in parts), whole.total)


def test_likelihood_needs_its_own_kind_of_temperature(draw):
    objective = Objective(ppcl=0, likelihood=1, inclusion=0, masked=0, vib=0)
    unit = Gaussian(torch.nn.functional.normalize(draw(2, 8).mean, dim=-1), draw(2, 8).log_var)
    with pytest.raises(TypeError, match="LikelihoodTemperature"):
        objective(unit, unit, LogitScaleBias())
    with pytest.raises(TypeError, match="one_sided_images must be a LikelihoodTemperature"):
        Objective(ppcl=0, one_sided=1, inclusion=0, masked=0, vib=0)(unit, unit, LogitScaleBias())
