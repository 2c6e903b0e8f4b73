"""Losses and gradients that are no finite numbers: found without waiting for a GPU, then named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prolip import distributed
from prolip.checks import some
from prolip.gaussian import Gaussian
from prolip.training.config import Care
from prolip.training.parallel import whole


@dataclass(frozen=True, eq=False)
class StepNumbers:
    """What is kept of a step until it is looked at.

    terms: (k,) unweighted, of all ranks, in the order of `names`; norm: (), of the gradient before clipping.
    bad:   () float32, 1 if any of them is not finite: the weights were left as they were.
    rows:  (n,) bool: this rank's samples whose embeddings are finite. keys: their names.
    """

    step: int
    names: tuple[str, ...]
    terms: Tensor
    norm: Tensor
    bad: Tensor
    rows: Tensor
    keys: tuple[str, ...]


def is_bad(terms: Tensor, norm: Tensor) -> Tensor:
    """1 if a term or the gradient's norm is not finite, else 0: float32, (). Reads nothing."""
    return (~(torch.isfinite(terms).all() & torch.isfinite(norm))).float()


def finite_rows(*batches: Gaussian) -> Tensor:
    """Which rows are finite in all of them: bool (n,). (A log-variance of -inf is a point.)"""
    good = [torch.isfinite(z.mean).all(-1) & (z.log_var < torch.inf).all(-1) for z in batches]
    return torch.stack(good).all(0)


class Guard:
    """Steps since it was last asked; on the CPU it is asked at every step, for that costs nothing there."""

    def __init__(self, care: Care, skipped: int = 0) -> None:
        self._care = care
        self._unread: list[StepNumbers] = []
        self.skipped = skipped

    def add(self, numbers: StepNumbers) -> None:
        self._unread.append(numbers)

    def read(self, learner: nn.Module) -> list[str]:
        """A sentence for each step that was left out; FloatingPointError if that may not be. Waits for a GPU."""
        unread, self._unread = self._unread, []
        if not unread or not bool(torch.stack([numbers.bad for numbers in unread]).any()):
            return []
        bad = [numbers for numbers in unread if bool(numbers.bad)]
        self.skipped += len(bad)
        stories = [_story(numbers, learner if numbers is unread[-1] else None) for numbers in bad]
        if self._care.on_nonfinite == "stop":
            raise FloatingPointError(
                f"{stories[0]}. It did not reach the weights. Lower optimiser.lr, set optimiser.clip_norm, or let "
                "care.on_nonfinite=skip leave such steps out"
            )
        if self.skipped > self._care.most_skips:
            raise FloatingPointError(
                f"{stories[-1]}. That makes {self.skipped} such steps, more than care.most_skips = "
                f"{self._care.most_skips}"
            )
        return [f"{story}: left out" for story in stories]


def _story(numbers: StepNumbers, learner: nn.Module | None) -> str:
    """learner: if its gradients are still those of the step."""
    terms = dict(zip(numbers.names, numbers.terms.tolist(), strict=True))
    wrong = [f"{name} is {value}" for name, value in terms.items() if not math.isfinite(value)]
    if not wrong:
        wrong = [f"the gradient's norm is {float(numbers.norm)}", *_wrong_gradients(learner)]
    keys = [key for key, good in zip(numbers.keys, numbers.rows.tolist(), strict=True) if not good]
    return f"step {numbers.step}: {some(wrong)}; {_samples(_of_all_ranks(keys))}"


def _wrong_gradients(learner: nn.Module | None) -> list[str]:
    if learner is None:
        return []
    grads = ((name, p.grad) for name, p in learner.named_parameters() if p.grad is not None)
    return [
        f"that of {name} is not finite" for name, grad in grads if not bool(torch.isfinite(whole(grad)).all())
    ]


def _samples(keys: Sequence[str]) -> str:
    if not keys:
        return "the embeddings of all samples are finite"
    return f"samples whose embeddings are not finite: {some(keys, 8)}"


def _of_all_ranks(keys: list[str]) -> list[str]:
    if distributed.world_size() == 1:
        return keys
    found: list[list[str]] = [[]] * distributed.world_size()
    dist.all_gather_object(found, keys)
    return [key for part in found for key in part]
