import math

import pytest
import torch

from reproduction import finite_world, trace_trials
from reproduction.free_embeddings import FreeEmbeddings, TrainingConfig, train_embeddings
from reproduction.trace_trials import WorldSize, describe_embeddings


@pytest.fixture(scope="module")
def world():
    return finite_world.draw_world(40, 40)


@pytest.fixture(scope="module")
def trained(world):
    return {
        logit: describe_embeddings(
            train_embeddings(world, TrainingConfig(logit=logit, dims=16, steps=250)), world
        )
        for logit in ("ppcl", "likelihood")
    }


def test_width_falls_with_ambiguity_for_ppcl_and_rises_for_likelihood(trained):
    assert trained["ppcl"].rho < -0.5
    assert trained["likelihood"].rho > 0.5
    assert trained["likelihood"].excess < trained["ppcl"].excess


def test_trained_offset_is_the_exact_one_and_balances_the_surplus(trained):
    offsets = trained["ppcl"].offsets
    assert offsets.error < 0.1 * abs(offsets.gap)
    assert offsets.gap == pytest.approx(-offsets.surplus + offsets.push, abs=0.1 * abs(offsets.gap))


def test_describe_finds_made_up_offsets(world):
    """A trace that is the ambiguity itself, and a bias of minus half of what the trace adds."""
    embeddings = FreeEmbeddings(world, TrainingConfig(bias=True))
    with torch.no_grad():
        embeddings.caption_log_trace.copy_(world.log_ambiguity)
        embeddings.caption_bias.copy_(-0.5 * embeddings.trace_offsets)
    found = describe_embeddings(embeddings, world)
    assert found.rho == pytest.approx(1, abs=1e-3)  # float32 breaks some ties
    assert found.offsets.rho == pytest.approx(1, abs=1e-3)
    assert found.offsets.trace_share == pytest.approx(2)
    assert found.offsets.gap == pytest.approx(-0.5 * 5 * (found.widths[-1] - found.widths[0]), rel=1e-4)


def test_compact_is_the_ratio_of_widths_at_equal_ambiguity():
    world = finite_world.grow_tree(3, scattered=0.2)
    widths = torch.where(world.scattered, 1.0, 3.0) * (1 + world.levels)
    assert trace_trials.compare_scattered(widths, world) == pytest.approx(3)
    assert trace_trials.compare_scattered(widths, finite_world.grow_tree(3)) is None


def test_every_trial_has_its_own_name_and_runs():
    trials = trace_trials.list_trials(TrainingConfig(steps=1))
    assert len({trial.name for trial in trials}) == len(trials)
    for trial in trials:
        outcome = trace_trials.run_trial(trial, WorldSize(scenes=12, depth=3), seed=0)
        assert math.isfinite(outcome.excess)
        assert (outcome.compact is None) == (trial.world != "two trees")
