import math

import pytest
import torch
from scipy.special import gammaln, ive

from prolip.files import read_json
from reproduction import ppcl_trace
from reproduction.ppcl_trace import FiniteWorld, TrainingConfig


def two_scenes():
    """Caption 0 is true of both scenes, captions 1 and 2 of one each; a scene draws its two evenly."""
    joint = torch.tensor([[0.25, 0.25, 0.0], [0.25, 0.0, 0.25]], dtype=torch.float64)
    return FiniteWorld(joint, torch.tensor([0, 1, 1]))


@pytest.fixture(scope="module")
def world():
    return ppcl_trace.draw_world(64, 64)


def test_pmi_of_true_captions_is_minus_log_ambiguity():
    world, ln2 = two_scenes(), math.log(2)
    assert world.log_ambiguity.tolist() == pytest.approx([0.0, -ln2, -ln2])
    assert world.pmi.flatten().tolist() == pytest.approx([0.0, ln2, -math.inf, 0.0, -math.inf, ln2])


def test_loss_is_least_at_pmi_minus_log_of_the_negatives():
    world = two_scenes()
    logits = (world.pmi - math.log(7)).clamp(min=-50).requires_grad_()
    ppcl_trace.compute_loss(logits, world, 8).backward()
    assert logits.grad.abs().max() < 1e-12
    # by hand: caption 0 is right 1 time in 8, the others 2 times in 9
    entropies = 0.5 * (math.log(8) + 7 * math.log(8 / 7)) + 0.5 * math.log(9 / 2) + 7 / 4 * math.log(9 / 7)
    assert ppcl_trace.compute_least_loss(world, 8) == pytest.approx(entropies)


def test_gradient_of_trace_is_that_of_a_bias(world):
    tables = ppcl_trace.Tables(world, TrainingConfig(logit="ppcl+bias", dims=8))
    ppcl_trace.compute_loss(tables(), world, 128).backward()
    trace = tables.caption_log_trace.exp()
    expected = -0.5 * 10.0 * trace * tables.caption_bias.grad
    torch.testing.assert_close(tables.caption_log_trace.grad, expected)


@pytest.mark.parametrize(("dims", "bound"), [(8, 0.14), (64, 0.02)])
def test_log_mgf_is_near_the_exact_one(dims, bound):
    kappa, nu = torch.logspace(0, 2.4, 9, dtype=torch.float64), dims / 2 - 1
    exact = gammaln(nu + 1) - nu * (kappa / 2).log() + torch.from_numpy(ive(nu, kappa.numpy())).log() + kappa
    torch.testing.assert_close(ppcl_trace.compute_log_mgf(kappa, dims), exact, rtol=bound, atol=0)


def test_width_falls_with_ambiguity_for_ppcl_and_rises_for_likelihood(world):
    found = {
        logit: ppcl_trace.describe_tables(
            ppcl_trace.train_tables(world, TrainingConfig(logit=logit, dims=16, steps=300)), world
        )
        for logit in ("ppcl", "likelihood")
    }
    assert found["ppcl"]["trace"] < -0.5
    assert found["likelihood"]["trace"] > 0.5
    assert found["likelihood"]["excess"] < found["ppcl"]["excess"]


def test_false_pairs_cause_most_of_the_gap_between_levels(world):
    gaps = []
    for weight in (1.0, 0.0):
        config = TrainingConfig(logit="ppcl", dims=16, steps=300, false_weight=weight)
        gaps.append(ppcl_trace.describe_tables(ppcl_trace.train_tables(world, config), world)["gap"])
    assert gaps[0] < -2.0
    assert gaps[1] > 0.25 * gaps[0]


def test_main_writes_every_row(tmp_path, capsys):
    out = tmp_path / "trace.json"
    ppcl_trace.main(["--scenes", "12", "--captions", "12", "--steps", "2", "--out", str(out)])
    rows = read_json(out)["rows"]
    assert len(rows) == len(ppcl_trace.list_configs(TrainingConfig())) + 1
    assert "siglip, then bias" in capsys.readouterr().out
