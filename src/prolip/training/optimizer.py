"""Which parameters learn, how fast and with how much decay; one step, with clipping and without bad ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from prolip.training.adamp import AdamP, fresh_state
from prolip.training.config import OptimiserChoice

BLOCK = re.compile(r"model\.(?P<tower>image|text)\.blocks\.(?P<number>\d+)\.")
BELOW = re.compile(
    r"model\.(?P<tower>image|text)\.(stem|tokens|positions|class_token|uncertainty_token|norm_pre)(\.|$)"
)
"""What comes before the first block of a tower. All that is neither here nor in a block is above the last one."""


class _Kind(NamedTuple):
    """What the parameters of a group have in common."""

    rate: float  # multiple of the run's learning rate
    weight_decay: float
    temperature: bool
    sharded: bool  # a fused step takes plain tensors or DTensors, not both


def freeze(module: nn.Module, frozen: tuple[str, ...]) -> None:
    """Parameters whose names are `frozen` or lie below it learn no more. Names are without the leading "model."."""
    parameters = {name.removeprefix("model."): p for name, p in module.named_parameters()}
    stopped: set[str] = set()
    for beginning in frozen:
        found = {name for name in parameters if name == beginning or name.startswith(beginning + ".")}
        if not found:
            raise ValueError(
                f"frozen: no parameter is or lies below {beginning!r}{_close(beginning, parameters)}"
            )
        stopped |= found
    if not any(p.requires_grad for name, p in parameters.items() if name not in stopped):
        raise ValueError(f"frozen: {', '.join(frozen)} leaves no parameter that learns; freeze less")
    for name in stopped:
        parameters[name].requires_grad_(False)


def make_optimiser(module: nn.Module, choice: OptimiserChoice) -> torch.optim.Optimizer:
    """AdamW or AdamP over the parameters that learn, in groups, at the rate `choice.lr`.

    module: a ProLIP named "model", and other temperatures.
    A group has, besides what torch wants of it, its "rate" (a multiple of the run's) and the "names" of its parameters.
    """
    kinds: dict[_Kind, dict[str, nn.Parameter]] = {}
    depths = _depths(module)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            kind = _kind(parameter, depths[name], choice)
            kinds.setdefault(kind, {})[name] = parameter
    groups: list[dict[str, Any]] = [
        {
            "params": list(members.values()),
            "names": list(members),
            "rate": kind.rate,
            "weight_decay": kind.weight_decay,
        }
        for kind, members in kinds.items()
    ]
    betas = (float(choice.betas[0]), float(choice.betas[1]))
    optimiser: torch.optim.Optimizer
    if choice.kind == "adamp":
        optimiser = AdamP(groups, choice.lr, betas=betas, eps=choice.eps)
    else:
        optimiser = torch.optim.AdamW(groups, choice.lr, betas=betas, eps=choice.eps, fused=True)
    set_rate(optimiser, choice.lr)
    return optimiser


def set_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Each group's rate for the run's rate `lr`."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["rate"]


def begin_state(optimiser: torch.optim.Optimizer) -> None:
    """Make now the state that the optimiser would make in its first step, so that there is something to load into."""
    for _, parameter in _members(optimiser):
        if not optimiser.state[parameter]:
            optimiser.state[parameter].update(fresh_state(parameter))


def state_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """{"model.bias.exp_avg": ..., ...}: the tensors of the state themselves, so writing to them changes it."""
    return {
        f"{name}.{key}": value
        for name, parameter in _members(optimiser)
        for key, value in optimiser.state[parameter].items()
    }


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """The 2-norm of all gradients together, which are then scaled, in place, to at most `limit` if there is one.

    Returns a float32 scalar, the norm before scaling; 0 if there are no gradients. Doesn't wait for the device.
    Parameters may be plain, sharded or some of each; if some are sharded, all ranks must call this.
    """
    given = list(parameters)
    learning = [p for p in given if p.grad is not None]
    kinds = [[p for p in learning if isinstance(p, DTensor) == sharded] for sharded in (False, True)]
    norms = [_norm(kind) for kind in kinds if kind]
    if not norms:
        return torch.zeros((), device=given[0].device if given else None)
    norm = norms[0] if len(norms) == 1 else torch.hypot(*norms)
    if limit is not None:
        length = norm.nan_to_num(
            0.0, 0.0, 0.0
        )  # an infinite one would wipe out the others' values: which were bad?
        for kind in kinds:
            clip_grads_with_norm_(kind, limit, length)
    return norm.float()


def take_step(optimiser: torch.optim.Optimizer, bad: Tensor) -> None:
    """One step, unless it is bad: then weights and state stay as they are, to the bit, whatever the gradients.

    bad: float32 scalar on the parameters' device, the same on all ranks: 1 if the step is bad, 0 if not.
    AdamW doesn't wait for the device; AdamP, which reads the data anyway, does.
    """
    if isinstance(optimiser, AdamP):
        if not bool(bad):
            optimiser.step()
        return
    optimiser.found_inf = bad  # type: ignore[attr-defined]  # the door that fused AdamW has for GradScaler
    optimiser.step()
    del optimiser.found_inf  # type: ignore[attr-defined]


def _kind(parameter: nn.Parameter, depth: int, choice: OptimiserChoice) -> _Kind:
    sharded = isinstance(parameter, DTensor)
    if parameter.ndim == 0:  # scales and biases of the contrast; nothing else is a scalar
        return _Kind(choice.temperature_rate, 0.0, temperature=True, sharded=sharded)
    decay = choice.weight_decay if parameter.ndim >= 2 else 0.0
    return _Kind(choice.layer_decay**depth, decay, temperature=False, sharded=sharded)


def _depths(module: nn.Module) -> dict[str, int]:
    """How far each parameter lies below its tower's heads: they 0, the last block 1, ..., embeddings blocks + 1."""
    names = [name for name, _ in module.named_parameters()]
    blocks = {"image": 0, "text": 0}
    for found in filter(None, map(BLOCK.match, names)):
        blocks[found["tower"]] = max(blocks[found["tower"]], int(found["number"]) + 1)
    depths = dict.fromkeys(names, 0)
    for name in names:
        if block := BLOCK.match(name):
            depths[name] = blocks[block["tower"]] - int(block["number"])
        elif below := BELOW.match(name):
            depths[name] = blocks[below["tower"]] + 1
    return depths


def _members(optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    for group in optimiser.param_groups:
        yield from zip(group["names"], group["params"], strict=True)


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _close(beginning: str, names: Iterable[str]) -> str:
    """The end of a sentence: what else may have been meant."""
    parts = [name.split(".") for name in names]
    beginnings = dict.fromkeys(".".join(part[:n]) for part in parts for n in range(1, len(part) + 1))
    close = difflib.get_close_matches(beginning, beginnings, n=3)
    return (
        f"; close are {', '.join(close)}"
        if close
        else f"; names begin with {', '.join(sorted({p[0] for p in parts}))}"
    )
