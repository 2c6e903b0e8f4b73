"""Fresh weights: every parameter drawn from one generator, as the public release draws them (RELEASE: open_clip's)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prolip.model.image_tower import ImageTower
from prolip.model.text_tower import TextTower
from prolip.model.transformer import Transformer


@torch.no_grad()
def start_image(tower: ImageTower, log_var: float, generator: torch.Generator) -> None:
    """Tokens, positions and projection N(0, 1/W); block maps uniform, as torch's and MultiheadAttention's default."""
    width = tower.config.blocks.width
    _plain(tower)
    for name in ("class_token", "uncertainty_token", "positions"):
        if hasattr(tower, name):
            _normal(getattr(tower, name), width**-0.5, generator)
    for layer in (m for m in tower.modules() if isinstance(m, nn.Linear)):
        _uniform(layer.weight, layer.in_features**-0.5, generator)
    for stack in _stacks(tower):
        for block in stack:
            _uniform(block.attention.qkv.weight, math.sqrt(6.0 / (4 * width)), generator)
    if tower.pool is not None:
        _normal(tower.pool.probe, width**-0.5, generator)
    _start_heads(tower, log_var, generator)


@torch.no_grad()
def start_text(tower: TextTower, log_var: float, generator: torch.Generator) -> None:
    """Token embeddings N(0, 0.02²), positions and added tokens N(0, 0.01²), maps scaled by width and depth."""
    width, layers = tower.config.blocks.width, tower.config.blocks.layers
    _plain(tower)
    _normal(tower.tokens.weight, 0.02, generator)
    for name in ("class_token", "uncertainty_token", "positions"):
        if hasattr(tower, name):
            _normal(getattr(tower, name), 0.01, generator)
    for stack in _stacks(tower):
        for block in stack:
            _normal(block.attention.qkv.weight, width**-0.5, generator)
            _normal(block.attention.out.weight, (2 * layers * width) ** -0.5, generator)
            _normal(block.mlp.up.weight, (2 * width) ** -0.5, generator)
            _normal(block.mlp.down.weight, (2 * layers * width) ** -0.5, generator)
    _start_heads(tower, log_var, generator)


@torch.no_grad()
def start_log_var(head: nn.Linear, log_var: float, generator: torch.Generator) -> None:
    """log_var starts near N(log_var, 1) in each dimension, so that variances start small."""
    _normal(head.weight, head.in_features**-0.5, generator)
    nn.init.constant_(head.bias, log_var)


def _start_heads(tower: ImageTower | TextTower, log_var: float, generator: torch.Generator) -> None:
    if isinstance(tower.mean, nn.Linear):
        _normal(tower.mean.weight, tower.mean.in_features**-0.5, generator)
    if tower.config.uncertainty in ("token", "mean"):
        start_log_var(tower.log_var, log_var, generator)


def _plain(tower: nn.Module) -> None:
    """Norms are the identity, biases zero."""
    for module in tower.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        bias = getattr(module, "bias", None)
        if isinstance(bias, Tensor):
            nn.init.zeros_(bias)


def _stacks(tower: nn.Module) -> list[Transformer]:
    return [m for m in tower.modules() if isinstance(m, Transformer)]


def _normal(values: Tensor, std: float, generator: torch.Generator) -> None:
    values.normal_(0.0, std, generator=generator)


def _uniform(values: Tensor, bound: float, generator: torch.Generator) -> None:
    values.uniform_(-bound, bound, generator=generator)
