"""Pre-norm transformer blocks on scaled_dot_product_attention, and the float32 output head.

Module names are stable: `blocks.{i}.attention.qkv`, `.attention.out`, `.mlp.up`, `.mlp.down` are plain `nn.Linear`
modules that are always called as modules, so that a LoRA wrapper or a parametrization in their place takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from prolip.model.config import Activation, TransformerConfig


def quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x), of OpenAI's CLIP.

    Args:
        x: Tensor of any shape.

    Returns:
        Tensor of the same shape.
    """
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh approximation, of SigLIP.

    Args:
        x: Tensor of any shape.

    Returns:
        Tensor of the same shape.
    """
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "quick_gelu": quick_gelu,
    "gelu_tanh": gelu_tanh,
}


class Attention(nn.Module):
    """Multi-head self-attention; q, k and v are stacked in one linear layer, in this order."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: slice | None = None) -> Tensor:
        """Attend from the positions `rows` to all positions.

        Args:
            x: (B, T, W).
            mask: Broadcast to (B, heads, T, T), True where row t attends to column u. None: everywhere.
            rows: The R positions that are computed; None: all.

        Returns:
            (B, R, W).
        """
        batch, length, width = x.shape
        # (3, B, heads, T, W / heads)
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if rows is not None:
            q = q[:, :, rows]
            mask = mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class MLP(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.activation = ACTIVATIONS[activation]
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config.width, config.heads)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = MLP(config.width, config.mlp_width, config.activation)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: slice | None = None) -> Tensor:
        """Attention and MLP, each with its norm and residual connection.

        Args:
            x: (B, T, W).
            mask: As for `Attention`.
            rows: Positions that are computed; None: all.

        Returns:
            (B, T, W), or (B, R, W) for the R positions of `rows`.
        """
        attended = self.attention(self.norm1(x), mask, rows)
        x = (x if rows is None else x[:, rows]) + attended
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Transformer(nn.ModuleList):
    """A stack of blocks. With `checkpointing`, each block is recomputed in the backward pass instead of stored."""

    def __init__(self, config: TransformerConfig, layers: int | None = None) -> None:
        super().__init__(Block(config) for _ in range(config.layers if layers is None else layers))
        self.checkpointing = False

    def __iter__(self) -> Iterator[Block]:
        return super().__iter__()  # type: ignore[return-value]

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: slice | None = None) -> Tensor:
        """All blocks in order.

        Args:
            x: (B, T, W).
            mask: As for `Block`.
            rows: Positions that the last block computes; None: all.

        Returns:
            (B, T, W), or (B, R, W) for the R positions of `rows`.
        """
        last = len(self) - 1
        for i, block in enumerate(self):
            block_rows = rows if i == last else None
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, mask, block_rows, use_reentrant=False)
            else:
                x = block(x, mask, block_rows)
        return x


class Head(nn.Linear):
    """A linear layer whose input and output are at least float32, also under autocast or in a half-precision model.

    exp() of a log-variance, and a logit of a hundred, magnify what bfloat16's eight bits lose.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer in float32 or float64: (..., in) -> (..., out)."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.to(dtype)
            return functional.linear(x.to(dtype), self.weight.to(dtype), bias)
