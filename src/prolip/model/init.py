"""Initialization of new weights, from one generator, with the distributions of the release (open_clip)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prolip.model.image_tower import ImageTower
from prolip.model.text_tower import TextTower
from prolip.model.transformer import Transformer


@torch.no_grad()
def init_image_tower(tower: ImageTower, log_var: float, generator: torch.Generator) -> None:
    """Initialize the image tower.

    Tokens, positions and projection N(0, 1/W); linear layers uniform, as torch's and MultiheadAttention's default.

    Args:
        tower: Changed in place.
        log_var: Mean of the initial log-variances.
        generator: Source of all random numbers.
    """
    width = tower.config.blocks.width
    _init_norms_and_biases(tower)
    for name in ("class_token", "uncertainty_token", "positions"):
        if hasattr(tower, name):
            _fill_normal(getattr(tower, name), width**-0.5, generator)
    for layer in (m for m in tower.modules() if isinstance(m, nn.Linear)):
        _fill_uniform(layer.weight, layer.in_features**-0.5, generator)
    for stack in _find_transformers(tower):
        for block in stack:
            # Xavier's bound sqrt(6 / (fan_in + fan_out)) of the stacked (3 W, W) matrix, as in MultiheadAttention
            _fill_uniform(block.attention.qkv.weight, math.sqrt(6.0 / (width + 3 * width)), generator)
    if tower.pool is not None:
        _fill_normal(tower.pool.probe, width**-0.5, generator)
    _init_heads(tower, log_var, generator)


@torch.no_grad()
def init_text_tower(tower: TextTower, log_var: float, generator: torch.Generator) -> None:
    """Initialize the text tower.

    Token embeddings N(0, 0.02²), positions and added tokens N(0, 0.01²), linear layers scaled by width and depth.

    Args:
        tower: Changed in place.
        log_var: Mean of the initial log-variances.
        generator: Source of all random numbers.
    """
    width, layers = tower.config.blocks.width, tower.config.blocks.layers
    _init_norms_and_biases(tower)
    _fill_normal(tower.tokens.weight, 0.02, generator)
    for name in ("class_token", "uncertainty_token", "positions"):
        if hasattr(tower, name):
            _fill_normal(getattr(tower, name), 0.01, generator)
    for stack in _find_transformers(tower):
        for block in stack:
            _fill_normal(block.attention.qkv.weight, width**-0.5, generator)
            _fill_normal(block.attention.out.weight, (2 * layers * width) ** -0.5, generator)
            _fill_normal(block.mlp.up.weight, (2 * width) ** -0.5, generator)
            _fill_normal(block.mlp.down.weight, (2 * layers * width) ** -0.5, generator)
    _init_heads(tower, log_var, generator)


@torch.no_grad()
def init_log_var_head(head: nn.Linear, log_var: float, generator: torch.Generator) -> None:
    """Initialize the head of log-variances: near N(log_var, 1) in each dimension, so that variances start small.

    A head of one number per sample starts at exactly `log_var`: the likelihood raises its width to a high power.

    Args:
        head: Changed in place.
        log_var: Initial bias.
        generator: Source of all random numbers.
    """
    if head.out_features == 1:
        nn.init.zeros_(head.weight)
    else:
        _fill_normal(head.weight, head.in_features**-0.5, generator)
    nn.init.constant_(head.bias, log_var)


def _init_heads(tower: ImageTower | TextTower, log_var: float, generator: torch.Generator) -> None:
    """Draw the projection of the mean and the head of log-variances, in place, where the tower has them."""
    if isinstance(tower.mean, nn.Linear):
        _fill_normal(tower.mean.weight, tower.mean.in_features**-0.5, generator)
    if tower.config.uncertainty in ("token", "mean"):
        init_log_var_head(tower.log_var, log_var, generator)


def _init_norms_and_biases(tower: nn.Module) -> None:
    """Set the weights of layer norms to one and all biases to zero, in place."""
    for module in tower.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        bias = getattr(module, "bias", None)
        if isinstance(bias, Tensor):
            nn.init.zeros_(bias)


def _find_transformers(tower: nn.Module) -> list[Transformer]:
    """The stacks of blocks in a tower: one, or two with "multihead"."""
    return [m for m in tower.modules() if isinstance(m, Transformer)]


def _fill_normal(values: Tensor, std: float, generator: torch.Generator) -> None:
    """Draw N(0, std²), in place."""
    values.normal_(0.0, std, generator=generator)


def _fill_uniform(values: Tensor, bound: float, generator: torch.Generator) -> None:
    """Draw uniformly from [-bound, bound), in place."""
    values.uniform_(-bound, bound, generator=generator)
