"""NaN and infinite losses and gradients: detected without a GPU sync, reported with their samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prolip import distributed
from prolip.checks import join_names
from prolip.gaussian import Gaussian
from prolip.training.config import NonFinitePolicy
from prolip.training.parallel import full_tensor


@dataclass(frozen=True, eq=False)
class StepRecord:
    """Tensors of a step that are read later, so that the step itself doesn't wait for the GPU.

    Attributes:
        step: Steps done, this one included.
        term_names: Names of the loss terms.
        terms: (k,), unweighted loss terms of all ranks, in the order of `term_names`.
        grad_norm: (), gradient norm before clipping.
        nonfinite: () float32, 1 if a term or the norm is not finite: then the weights were left unchanged.
        finite_rows: (n,) bool: this rank's samples whose embeddings are finite.
        keys: n keys: this rank's samples, as their source names them.
    """

    step: int
    term_names: tuple[str, ...]
    terms: Tensor
    grad_norm: Tensor
    nonfinite: Tensor
    finite_rows: Tensor
    keys: tuple[str, ...]


def flag_nonfinite(terms: Tensor, grad_norm: Tensor) -> Tensor:
    """Whether a loss term or the gradient norm is not finite: float32 (), 1 or 0. Doesn't wait for the GPU.

    Args:
        terms: Loss terms, (k,).
        grad_norm: ().

    Returns:
        The flag, on the device of `terms`.
    """
    return (~(torch.isfinite(terms).all() & torch.isfinite(grad_norm))).float()


def find_finite_rows(*batches: Gaussian) -> Tensor:
    """Rows that are finite in all batches. A log-variance of -inf counts as finite: it is a point.

    Args:
        batches: Embeddings (n, D) of the same n samples, for example images and texts.

    Returns:
        bool (n,), on the device of the embeddings.
    """
    finite = [torch.isfinite(z.mean).all(-1) & (z.log_var < torch.inf).all(-1) for z in batches]
    return torch.stack(finite).all(0)


class NonFiniteMonitor:
    """Collects step records and applies the policy when they are checked.

    A check reads tensors, which waits for a GPU. So on a GPU the records of several steps are checked together.

    Args:
        policy: Stop, or skip up to a number of steps.
        skipped_steps: Steps that were skipped before this process started.

    Attributes:
        skipped_steps: Steps of the run that were skipped so far.
    """

    def __init__(self, policy: NonFinitePolicy, skipped_steps: int = 0) -> None:
        self._policy = policy
        self._unchecked: list[StepRecord] = []
        self.skipped_steps = skipped_steps

    def add(self, record: StepRecord) -> None:
        """Add the record of a step. Doesn't wait for the GPU."""
        self._unchecked.append(record)

    def check(self, module: nn.Module) -> list[str]:
        """Check all records since the last check, forget them, and add the skipped steps to `skipped_steps`.

        All ranks call it, because the message of a step gathers the samples of all ranks.

        Args:
            module: Its gradients are those of the last step. If that step was skipped, its message names the
                parameters whose gradients are not finite.

        Returns:
            A message for each step that was skipped.

        Raises:
            FloatingPointError: The policy is to stop, or too many steps were skipped.
        """
        unchecked, self._unchecked = self._unchecked, []
        if not unchecked or not bool(torch.stack([record.nonfinite for record in unchecked]).any()):
            return []
        nonfinite_records = [record for record in unchecked if bool(record.nonfinite)]
        self.skipped_steps += len(nonfinite_records)
        # the gradients in the parameters are those of the last step
        messages = [
            _describe_step(record, module if record is unchecked[-1] else None)
            for record in nonfinite_records
        ]
        if self._policy.action == "stop":
            raise FloatingPointError(
                f"{messages[0]}. The weights were not changed. Lower --optimizer.lr, set --optimizer.grad-clip-norm, "
                "or skip such steps with --nonfinite.action skip"
            )
        if self.skipped_steps > self._policy.max_skipped_steps:
            raise FloatingPointError(
                f"{messages[-1]}. {self.skipped_steps} steps were skipped, more than nonfinite.max_skipped_steps = "
                f"{self._policy.max_skipped_steps}. Lower --optimizer.lr, set --optimizer.grad-clip-norm, or raise "
                "this limit"
            )
        return [f"{message}: step skipped" for message in messages]


def _describe_step(record: StepRecord, module: nn.Module | None) -> str:
    """Describe in one line what was not finite in a step, and in which samples. All ranks call it.

    Args:
        record: A step with a non-finite value.
        module: For its gradients; None if they are no longer those of the step.
    """
    terms = dict(zip(record.term_names, record.terms.tolist(), strict=True))
    problems = [f"{name} is {value}" for name, value in terms.items() if not math.isfinite(value)]
    if not problems:
        problems = [f"the gradient norm is {float(record.grad_norm)}", *_describe_gradients(module)]
    keys = [key for key, finite in zip(record.keys, record.finite_rows.tolist(), strict=True) if not finite]
    return f"step {record.step}: {join_names(problems)}; {_describe_samples(_gather_keys(keys))}"


def _describe_gradients(module: nn.Module | None) -> list[str]:
    """A clause for each parameter whose gradient is not finite; [] without a module. All ranks call it."""
    if module is None:
        return []
    grads = ((name, p.grad) for name, p in module.named_parameters() if p.grad is not None)
    return [
        f"the gradient of {name} is not finite"
        for name, grad in grads
        if not bool(torch.isfinite(full_tensor(grad)).all())
    ]


def _describe_samples(keys: Sequence[str]) -> str:
    """A clause that lists the keys of samples with non-finite embeddings, eight at most."""
    if not keys:
        return "the embeddings of all samples are finite"
    return f"samples whose embeddings are not finite: {join_names(keys, 8)}"


def _gather_keys(keys: list[str]) -> list[str]:
    """The keys of all ranks, in the order of ranks. All ranks call it."""
    if distributed.world_size() == 1:
        return keys
    keys_by_rank: list[list[str]] = [[]] * distributed.world_size()
    dist.all_gather_object(keys_by_rank, keys)
    return [key for rank_keys in keys_by_rank for key in rank_keys]
