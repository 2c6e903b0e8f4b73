"""The learning rate as a function of the step. It has no state, so a resumed run goes on exactly."""

from __future__ import annotations

import math

from prolip.training.config import OptimiserChoice


def rate(step: int, steps: int, choice: OptimiserChoice) -> float:
    """The learning rate of step number `step`, from 0, of a run of `steps`.

    It rises linearly to `choice.lr`, which it has in the last of the `warmup` steps; then it stays there, or falls
    along half a cosine towards `final` of it. A run that is shorter than its warm-up only rises.

    >>> [rate(step, 6, OptimiserChoice(lr=1.0, warmup=2)) for step in (0, 1, 2, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if not 0 <= step < steps:
        raise ValueError(f"step {step} is not part of a run of {steps} steps, which begins with step 0")
    if step < choice.warmup:
        return choice.lr * (step + 1) / choice.warmup
    if choice.schedule == "constant":
        return choice.lr
    progress = (step - choice.warmup) / (steps - choice.warmup)
    return choice.lr * (choice.final + (1 - choice.final) * 0.5 * (1 + math.cos(math.pi * progress)))
