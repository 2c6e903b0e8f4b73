"""The rate: open_clip's warm-up, then half a cosine."""

import math
from itertools import pairwise

import pytest

from prolip.training.config import OptimiserChoice
from prolip.training.schedule import rate


def rates(steps, **choice):
    choice = OptimiserChoice(lr=0.2, **choice)
    return [rate(step, steps, choice) for step in range(steps)]


def open_clip(step, steps, lr, warmup):
    """Its cosine_lr, as published."""
    if step < warmup:
        return lr * (step + 1) / warmup
    e, es = step - warmup, steps - warmup
    return 0.5 * (1 + math.cos(math.pi * e / es)) * lr


@pytest.mark.parametrize(("steps", "warmup"), [(50, 7), (50, 0), (50, 49), (3, 10), (10, 10)])
def test_is_that_of_open_clip(steps, warmup):
    wanted = [open_clip(step, steps, 0.2, warmup) for step in range(steps)]
    assert rates(steps, warmup=warmup) == pytest.approx(wanted, rel=1e-12)


def test_rises_without_a_jump_and_falls_to_its_share():
    long = rates(20_000, warmup=100, final=0.25)
    warm = long[:101]
    assert warm[99] == warm[100] == 0.2
    assert all(a < b for a, b in pairwise(warm[:100]))
    assert all(a > b for a, b in pairwise(long[100:]))
    assert long[-1] == pytest.approx(0.05, rel=1e-6)
    assert long[100 + 19_900 // 2] == pytest.approx((0.2 + 0.05) / 2)


def test_constant_after_the_warm_up():
    assert rates(6, warmup=2, schedule="constant") == [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]


def test_a_run_shorter_than_its_warm_up_only_rises():
    assert rates(3, warmup=10) == pytest.approx([0.02, 0.04, 0.06])


@pytest.mark.parametrize("step", [-1, 5])
def test_a_step_outside_the_run_is_an_error(step):
    with pytest.raises(ValueError, match=f"step {step} is not part of a run of 5 steps"):
        rate(step, 5, OptimiserChoice())
