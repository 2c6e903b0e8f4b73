import math

import pytest
import torch

from reproduction import finite_world
from reproduction.finite_world import FiniteWorld


def two_scenes():
    """Caption 0 is true of both scenes, captions 1 and 2 of one each; a scene draws its two evenly."""
    joint = torch.tensor([[0.25, 0.25, 0.0], [0.25, 0.0, 0.25]], dtype=torch.float64)
    return FiniteWorld(joint, torch.tensor([0, 1, 1]))


@pytest.fixture(scope="module")
def world():
    return finite_world.draw_world(40, 40)


def test_pmi_of_true_captions_is_minus_log_ambiguity():
    world, ln2 = two_scenes(), math.log(2)
    assert world.log_ambiguity.tolist() == pytest.approx([0.0, -ln2, -ln2])
    assert world.pmi.flatten().tolist() == pytest.approx([0.0, ln2, -math.inf, 0.0, -math.inf, ln2])
    assert world.own_pmi.tolist() == pytest.approx([0.0, ln2, ln2])
    assert world.measure_gap(world.own_pmi) == pytest.approx(ln2)


def test_loss_is_least_at_pmi_minus_log_of_the_negatives():
    world = two_scenes()
    # by hand: caption 0 is right 1 time in 8, the others 2 times in 9
    entropies = 0.5 * (math.log(8) + 7 * math.log(8 / 7)) + 0.5 * math.log(9 / 2) + 7 / 4 * math.log(9 / 7)
    assert finite_world.compute_least_loss(world, 8) == pytest.approx(entropies)


@pytest.mark.parametrize("batch_size", [2, 128])
def test_optimal_logits_are_where_the_gradient_vanishes(world, batch_size):
    logits = finite_world.compute_optimal_logits(world, batch_size).requires_grad_()
    finite_world.compute_loss(logits, world, batch_size).backward()
    assert logits.grad.abs().max() < 1e-15
    true = logits.detach()[world.is_true]
    torch.testing.assert_close(true, world.pmi[world.is_true] - math.log(batch_size - 1))


def test_newton_on_free_logits_ends_at_the_optimum(world):
    """From 0, Newton's method on the logit of each true pair ends at PMI - ln(B - 1)."""
    own, others = world.joint[world.is_true], 15 * world.independent[world.is_true]
    logit = torch.zeros_like(own)
    for _ in range(50):
        p = logit.sigmoid()
        logit -= (others * p - own * (1 - p)) / ((own + others) * p * (1 - p))
    expected = finite_world.compute_optimal_logits(world, 16)[world.is_true]
    torch.testing.assert_close(logit, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("false_weight", [0.0, 1.0])
def test_calibrated_offsets_minimize_the_loss(world, generator, false_weight):
    similarities = 3 * torch.randn(world.joint.shape, generator=generator, dtype=torch.float64)
    offsets = finite_world.calibrate_offsets(similarities, world, 128, false_weight).requires_grad_()
    finite_world.compute_loss(similarities + offsets, world, 128, false_weight).backward()
    assert offsets.grad.abs().max() < 1e-12


def test_calibrated_offsets_balance_a_surplus(world):
    """If a caption's own logits are too high by any amount, and its false ones low, its offset is minus that."""
    surplus = torch.linspace(0, 5, world.joint.shape[1], dtype=torch.float64)
    logits = finite_world.compute_optimal_logits(world, 128)
    torch.testing.assert_close(finite_world.calibrate_offsets(logits + surplus, world, 128), -surplus)


def test_false_pairs_only_lower_offsets(world, generator):
    similarities = torch.randn(world.joint.shape, generator=generator, dtype=torch.float64)
    without, full = (
        finite_world.calibrate_offsets(similarities, world, 128, weight) for weight in (0.0, 1.0)
    )
    always_true = world.is_true.all(0)
    torch.testing.assert_close(full[always_true], without[always_true])
    assert (full < without)[~always_true].all()


def test_captions_of_a_tree_have_powers_of_two_as_ambiguities():
    world = finite_world.grow_tree(3)
    assert world.joint.shape == (8, 15)
    torch.testing.assert_close(world.log_ambiguity, -math.log(2) * world.levels.double())
    torch.testing.assert_close(world.own_pmi, -world.log_ambiguity)
    assert world.joint.sum().item() == pytest.approx(1)


def test_scattered_captions_are_as_ambiguous_as_compact_ones():
    world = finite_world.grow_tree(4, scattered=0.1)
    torch.testing.assert_close(
        world.log_ambiguity[world.scattered], world.log_ambiguity[~world.scattered], rtol=0, atol=0
    )
    torch.testing.assert_close(world.own_pmi, -world.log_ambiguity)
    assert world.joint[:, world.scattered].sum().item() == pytest.approx(0.1)
    halves = world.is_true[:, world.levels == 1]
    assert halves[:, 0].tolist() == [True] * 8 + [False] * 8
    assert halves[:, 2].tolist() != halves[:, 0].tolist()
