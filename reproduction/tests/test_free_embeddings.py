import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from prolip.gaussian import Gaussian
from prolip.measures import vmf
from prolip.measures.match import LogitParameters
from reproduction import finite_world, free_embeddings
from reproduction.free_embeddings import FreeEmbeddings, TrainingConfig


@pytest.fixture(scope="module")
def world():
    return finite_world.draw_world(40, 40)


def test_gradient_of_trace_is_that_of_a_bias(world):
    embeddings = FreeEmbeddings(world, TrainingConfig(bias=True, dims=8))
    finite_world.compute_loss(embeddings(), world, 128).backward()
    trace = embeddings.caption_log_trace.exp()
    torch.testing.assert_close(
        embeddings.caption_log_trace.grad, -0.5 * 10.0 * trace * embeddings.caption_bias.grad
    )


def test_share_of_equal_steps_is_the_ratio_of_what_they_do_to_the_logit(world):
    config = TrainingConfig(bias=True, trace_rate=0.1)
    embeddings = FreeEmbeddings(world, config)
    before = embeddings.trace_offsets.detach()
    with torch.no_grad():
        embeddings.caption_log_trace += 1e-4 * config.trace_rate
    by_trace = (before - embeddings.trace_offsets).mean().item()
    assert config.trace_share == pytest.approx(by_trace / (by_trace + 1e-4), rel=0.01)
    assert replace(config, bias=False).trace_share == 1


def test_logits_are_those_of_ppcl(world):
    embeddings = FreeEmbeddings(world, TrainingConfig(dims=8))
    scenes, captions = (
        Gaussian(normalize(means, dim=-1), log_trace.sub(math.log(8))[:, None].expand_as(means))
        for means, log_trace in (
            (embeddings.scene_means, embeddings.scene_log_trace),
            (embeddings.caption_means, embeddings.caption_log_trace),
        )
    )
    expected = LogitParameters(10.0, -math.log(128)).logits_matrix(scenes, captions)
    torch.testing.assert_close(embeddings(), expected)


def test_density_is_that_of_torch(world):
    embeddings = FreeEmbeddings(world, TrainingConfig(logit="density", dims=4, diagonal=True))
    with torch.no_grad():
        embeddings.caption_log_var += torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    scenes, captions = (
        normalize(means, dim=-1) for means in (embeddings.scene_means, embeddings.caption_means)
    )
    normal = torch.distributions.Normal(captions, (0.5 * embeddings.caption_log_vars).exp())
    expected = normal.log_prob(scenes[:, None]).sum(-1) + 2 * math.log(2 * math.pi)
    torch.testing.assert_close(embeddings() - embeddings.bias, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("dims", "bound"), [(8, 0.14), (64, 0.02)])
def test_log_mgf_is_near_the_exact_one(dims, bound):
    kappa = torch.logspace(0, 2.4, 9, dtype=torch.float64)
    exact = vmf.log_partition(kappa, dims)
    torch.testing.assert_close(free_embeddings.compute_log_mgf(kappa, dims), exact, rtol=bound, atol=0)


def test_starts_have_the_order_that_they_say(world):
    truth = world.log_ambiguity.argsort()
    traces = {
        start: FreeEmbeddings(world, TrainingConfig(start=start)).caption_log_trace.detach()
        for start in ("equal", "random", "true")
    }
    assert traces["equal"].unique().numel() == 1
    assert (traces["true"][truth].diff() >= 0).all()
    assert not (traces["random"][truth].diff() >= 0).all()


def test_rates_of_zero_keep_what_they_are_of(world):
    config = TrainingConfig(bias=True, trace_rate=0.0, bias_rate=0.0, steps=2, dims=4)
    trained, fresh = free_embeddings.train_embeddings(world, config), FreeEmbeddings(world, config)
    assert torch.equal(trained.offsets, fresh.offsets)
    assert torch.equal(trained.log_scale, fresh.log_scale)
    assert not torch.equal(trained.caption_means, fresh.caption_means)


def test_sampled_loss_is_the_expected_one_on_average(world):
    logits, generator = FreeEmbeddings(world, TrainingConfig())().detach(), torch.Generator().manual_seed(0)
    float_world = finite_world.FiniteWorld(world.joint.float(), world.levels)
    sampled = torch.stack(
        [free_embeddings._compute_sampled_loss(logits, float_world, generator, 16) for _ in range(400)]
    )
    error = sampled.std() / 20
    assert abs(sampled.mean() - finite_world.compute_loss(logits, world, 16)) < 4 * error
