"""Parameter groups, learning rate schedule, gradient clipping, steps that skip non-finite gradients."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from prolip.losses.objective import ONE_SIDED
from prolip.training.adamp import AdamP, init_state
from prolip.training.config import OptimizerConfig

BLOCK = re.compile(r"model\.(?P<tower>image|text)\.blocks\.(?P<number>\d+)\.")
BELOW_BLOCKS = re.compile(
    r"model\.(?P<tower>image|text)\.(stem|tokens|positions|class_token|uncertainty_token|norm_pre)(\.|$)"
)
"""Parameters before the first block of a tower. All that match neither pattern are above the last block."""


class _Group(NamedTuple):
    """What the parameters of one of the optimizer's param_groups have in common."""

    lr_multiplier: float  # learning rate as a multiple of the run's
    weight_decay: float
    is_temperature: bool  # a logit scale or bias
    is_sharded: bool  # a fused step takes plain tensors or DTensors, not both


def compute_learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Learning rate of a step: linear warm-up to `lr`, then constant or half a cosine.

    It is a function of the step alone, so a resumed run goes on exactly. A run that is shorter than its warm-up only
    rises.

    Args:
        step: From 0.
        steps: Steps of the whole run.
        config: `lr`, which the last warm-up step has, `warmup_steps`, `schedule` and `final_lr_fraction`.

    Returns:
        The learning rate, before the multipliers of parameter groups.

    Raises:
        ValueError: The step is not in the run.

    >>> config = OptimizerConfig(lr=1.0, warmup_steps=2)
    >>> [compute_learning_rate(step, 6, config) for step in (0, 1, 2, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if not 0 <= step < steps:
        raise ValueError(f"step {step} is not in a run of {steps} steps, counted from 0")
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = (step - config.warmup_steps) / (steps - config.warmup_steps)
    final = config.final_lr_fraction
    return config.lr * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def freeze_parameters(module: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Exclude parameters from training: their requires_grad becomes False.

    Args:
        module: A `TrainModule`.
        prefixes: Names of parameters or of modules, without the leading "model.", such as "image.blocks.0".

    Raises:
        ValueError: A prefix matches nothing, or nothing is left to train.
    """
    parameters = {name.removeprefix("model."): p for name, p in module.named_parameters()}
    frozen: set[str] = set()
    for prefix in prefixes:
        matches = {name for name in parameters if name == prefix or name.startswith(prefix + ".")}
        if not matches:
            raise ValueError(
                f"optimizer.frozen: no parameter has the prefix {prefix!r}; {_suggest_prefixes(prefix, parameters)}"
            )
        frozen |= matches
    if not any(p.requires_grad for name, p in parameters.items() if name not in frozen):
        raise ValueError(f"optimizer.frozen: {', '.join(prefixes)} leaves no parameter to train; freeze less")
    for name in frozen:
        parameters[name].requires_grad_(False)


def make_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Make AdamW or AdamP over the trained parameters.

    Args:
        module: A `TrainModule`, after `freeze_parameters` and `parallelize`.
        config: Optimizer and its hyperparameters.

    Returns:
        The optimizer, at the learning rate `config.lr`. Its param_groups also have "names", those of their parameters,
        and "lr_multiplier", which `set_learning_rate` applies.
    """
    groups: dict[_Group, dict[str, nn.Parameter]] = {}
    depths = _compute_depths(module)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(_get_group(name, parameter, depths[name], config), {})[name] = parameter
    param_groups: list[dict[str, Any]] = [
        {
            "params": list(members.values()),
            "names": list(members),
            "lr_multiplier": group.lr_multiplier,
            "weight_decay": group.weight_decay,
        }
        for group, members in groups.items()
    ]
    betas = (float(config.betas[0]), float(config.betas[1]))
    optimizer: torch.optim.Optimizer
    if config.name == "adamp":
        optimizer = AdamP(param_groups, config.lr, betas=betas, eps=config.eps)
    else:
        optimizer = torch.optim.AdamW(param_groups, config.lr, betas=betas, eps=config.eps, fused=True)
    set_learning_rate(optimizer, config.lr)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the run's learning rate; each group gets it times its multiplier.

    Args:
        optimizer: Optimizer of `make_optimizer`.
        lr: The learning rate that `compute_learning_rate` returned.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_multiplier"]


def init_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state that the optimizer would create in its first step: a checkpoint is loaded into these tensors.

    Args:
        optimizer: Optimizer of `make_optimizer`; state that exists is left as it is.
    """
    for _, parameter in _iter_parameters(optimizer):
        if not optimizer.state[parameter]:
            optimizer.state[parameter].update(init_state(parameter))


def get_optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of the optimizer's state themselves, not copies: writing to them changes it.

    Args:
        optimizer: With its state initialized.

    Returns:
        Tensors by parameter name and state key: {"model.logit_bias.exp_avg": ..., ...}.
    """
    return {
        f"{name}.{key}": value
        for name, parameter in _iter_parameters(optimizer)
        for key, value in optimizer.state[parameter].items()
    }


@torch.no_grad()
def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Compute the 2-norm of all gradients, and scale them, in place, to at most `max_norm`.

    Like torch.nn.utils.clip_grad_norm_, but for a mixture of plain and sharded parameters. If some are sharded, all
    ranks must call it. Doesn't wait for the device.

    Args:
        parameters: Those without gradient are ignored.
        max_norm: None: don't scale.

    Returns:
        float32 (), the norm before scaling; 0 if there are no gradients.
    """
    all_parameters = list(parameters)
    with_grad = [p for p in all_parameters if p.grad is not None]
    # torch's functions take plain tensors or DTensors, not both. A DTensor's norm is already that of all its shards,
    # and plain parameters are equal on all ranks, so the two norms add up in squares.
    groups = [[p for p in with_grad if isinstance(p, DTensor) == sharded] for sharded in (False, True)]
    norms = [_compute_grad_norm(group) for group in groups if group]
    if not norms:
        return torch.zeros((), device=all_parameters[0].device if all_parameters else None)
    norm = norms[0] if len(norms) == 1 else torch.hypot(*norms)
    if max_norm is not None:
        # Scaling by a norm that isn't finite would make all gradients 0 or NaN, and hide which were not finite. With a
        # norm of 0 nothing is scaled.
        finite_norm = norm.nan_to_num(0.0, 0.0, 0.0)
        for group in groups:
            clip_grads_with_norm_(group, max_norm, finite_norm)
    return norm.float()


def step_unless_nonfinite(optimizer: torch.optim.Optimizer, nonfinite: Tensor) -> None:
    """Take a step, or leave weights and optimizer state unchanged to the bit, whatever the gradients are.

    Args:
        optimizer: AdamW doesn't wait for the device. AdamP, which reads the data anyway, does.
        nonfinite: float32 () on the parameters' device, the same on all ranks: 1 to skip the step, 0 to take it.
    """
    if isinstance(optimizer, AdamP):
        if not bool(nonfinite):
            optimizer.step()
        return
    # Fused AdamW reads this attribute, made for GradScaler, on the device: the host needn't know whether to skip.
    optimizer.found_inf = nonfinite  # type: ignore[attr-defined]
    optimizer.step()
    del optimizer.found_inf  # type: ignore[attr-defined]


def _get_group(name: str, parameter: nn.Parameter, depth: int, config: OptimizerConfig) -> _Group:
    """The group of a parameter, by its name, number of axes, depth (of `_compute_depths`) and sharding."""
    is_sharded = isinstance(parameter, DTensor)
    if parameter.ndim == 0:  # a logit scale or bias; nothing else is a scalar
        multiplier = config.temperature_lr_multiplier
        is_auxiliary = not name.startswith(("model.", *ONE_SIDED))  # ONE_SIDED's go with the model's widths
        if is_auxiliary and config.auxiliary_lr_multiplier is not None:
            multiplier = config.auxiliary_lr_multiplier
        return _Group(multiplier, 0.0, is_temperature=True, is_sharded=is_sharded)
    decay = config.weight_decay if parameter.ndim >= 2 else 0.0
    return _Group(config.layer_decay**depth, decay, is_temperature=False, is_sharded=is_sharded)


def _compute_depths(module: nn.Module) -> dict[str, int]:
    """Compute how many layers each parameter, by name, is below the heads of its tower, for `layer_decay`.

    Heads have depth 0, the last block 1, the first block the number of blocks, and the embeddings before it one more.
    """
    names = [name for name, _ in module.named_parameters()]
    num_blocks = {"image": 0, "text": 0}
    for match in filter(None, map(BLOCK.match, names)):
        num_blocks[match["tower"]] = max(num_blocks[match["tower"]], int(match["number"]) + 1)
    depths = dict.fromkeys(names, 0)
    for name in names:
        if block := BLOCK.match(name):
            depths[name] = num_blocks[block["tower"]] - int(block["number"])
        elif below := BELOW_BLOCKS.match(name):
            depths[name] = num_blocks[below["tower"]] + 1
    return depths


def _iter_parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """Name and parameter of everything that the optimizer updates, group by group."""
    for group in optimizer.param_groups:
        yield from zip(group["names"], group["params"], strict=True)


def _compute_grad_norm(parameters: list[nn.Parameter]) -> Tensor:
    """2-norm of all gradients of parameters that are all plain or all sharded: a plain tensor ()."""
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _suggest_prefixes(prefix: str, names: Iterable[str]) -> str:
    """Advice for an error message: prefixes of parameter names spelled like `prefix`, or else all first parts."""
    split_names = [name.split(".") for name in names]
    prefixes = dict.fromkeys(".".join(parts[:n]) for parts in split_names for n in range(1, len(parts) + 1))
    close = difflib.get_close_matches(prefix, prefixes, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"names begin with {', '.join(sorted({parts[0] for parts in split_names}))}"
