"""The image tower, a ViT: pixels to mean and log-variance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prolip.model.config import ImageConfig
from prolip.model.transformer import MLP, Head, Transformer


class Stem(nn.Sequential):
    """Patch embedding: 3 p p values per patch to a token, by one linear layer or by two with a GELU between."""

    def __init__(self, config: ImageConfig) -> None:
        patch_values, width = 3 * config.patch_size**2, config.blocks.width
        if config.stem == "linear":
            super().__init__(nn.Linear(patch_values, width, bias=config.patch_bias))
        else:
            super().__init__(nn.Linear(patch_values, 3 * width), nn.GELU(), nn.Linear(3 * width, width))


class AttentionPool(nn.Module):
    """SigLIP's attention pooling: one learned probe attends to all tokens, then a residual MLP. (B, T, W) -> (B, W)."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        blocks = config.blocks
        self.heads = blocks.heads
        self.probe = nn.Parameter(torch.empty(blocks.width))
        self.q = nn.Linear(blocks.width, blocks.width)
        self.kv = nn.Linear(blocks.width, 2 * blocks.width)
        self.out = nn.Linear(blocks.width, blocks.width)
        self.norm = nn.LayerNorm(blocks.width, eps=blocks.norm_eps)
        self.mlp = MLP(blocks.width, blocks.mlp_width, blocks.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Pool tokens (B, T, W) to one vector per image, (B, W)."""
        batch, length, width = x.shape
        q = self.q(self.probe).view(1, self.heads, 1, -1).expand(batch, -1, -1, -1)
        k, v = self.kv(x).view(batch, length, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = self.out(nn.functional.scaled_dot_product_attention(q, k, v).flatten(1))
        return y + self.mlp(self.norm(y))  # type: ignore[no-any-return]


class ImageTower(nn.Module):
    """A ViT over [CLS], [UNC] and patches (section 3.1 of the paper).

    forward: pixels (B, 3, S, S), normalized -> mean (B, E), not yet of unit length, and log_var (B, E), or None for a
    deterministic tower (for "multihead", the input of the model's shared head of log_var).
    """

    def __init__(self, config: ImageConfig, embed_dim: int) -> None:
        """Make the layers with undefined values: `init.init_image_tower` draws them, or weights are loaded."""
        super().__init__()
        self.config = config
        blocks = config.blocks
        self.stem = Stem(config)
        if config.pooling == "class":
            self.class_token = nn.Parameter(torch.empty(blocks.width))
        if config.uncertainty == "token":
            self.uncertainty_token = nn.Parameter(torch.empty(blocks.width))
        self.positions = nn.Parameter(torch.empty(config.num_added_tokens + config.num_patches, blocks.width))
        self.norm_pre = nn.LayerNorm(blocks.width, eps=blocks.norm_eps) if config.pre_norm else nn.Identity()
        self.blocks = Transformer(blocks)
        self.norm_post = nn.LayerNorm(blocks.width, eps=blocks.norm_eps)
        self.pool = AttentionPool(config) if config.pooling == "attention" else None
        self.mean = Head(blocks.width, embed_dim, bias=False) if config.projection else nn.Identity()
        if config.uncertainty == "token":
            self.log_var = Head(blocks.width, 1 if config.isotropic else embed_dim)
        elif config.uncertainty == "multihead":
            self.multihead = Transformer(blocks, layers=2)

    def forward(self, pixels: Tensor, patch_indices: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode images.

        Args:
            pixels: (B, 3, S, S), normalized floats.
            patch_indices: (B, K), int64: the patches that are seen; the others are not computed. None: all.

        Returns:
            mean (B, E) and log_var (B, E) or None, see the class.
        """
        x = self.norm_pre(self._embed_patches(pixels, patch_indices))
        if self.pool is not None:
            return self.mean(self.pool(self.norm_post(self.blocks(x)))), None
        # after the last block only the added tokens are read, unless PCME++'s further blocks follow
        rows = None if self.config.uncertainty == "multihead" else slice(0, self.config.num_added_tokens)
        x = self.blocks(x, rows=rows)
        pooled = self.norm_post(x[:, 0])  # [CLS]
        mean = self.mean(self.norm_post(pooled) if self.config.class_norm == "twice" else pooled)
        return mean, self._compute_log_var(x)

    def _compute_log_var(self, x: Tensor) -> Tensor | None:
        """Log-variances (B, E) from the tokens (B, R, W) after the last block; None for a deterministic tower.

        For "multihead", the input (B, E) of the model's shared head instead: [CLS] after the two further blocks,
        through the norm and the projection of the mean.
        """
        match self.config.uncertainty:
            case "token":
                # row 1 is [UNC]
                return self.log_var(self.norm_post(x[:, 1]))  # type: ignore[no-any-return]
            case "multihead":
                return self.mean(self.norm_post(self.multihead(x, rows=slice(0, 1))[:, 0]))  # type: ignore[no-any-return]
        return None

    def _embed_patches(self, pixels: Tensor, patch_indices: Tensor | None) -> Tensor:
        """The tokens of the first block, [CLS], [UNC], patches, with their positions: (B, T, W).

        `patch_indices` (B, K): only these patches are embedded; None: all. T is 0 to 2 added tokens plus patches.
        """
        num_added = self.config.num_added_tokens
        patches, positions = self._split_patches(pixels), self.positions[num_added:]
        if patch_indices is None:
            x: Tensor = self.stem(patches) + positions
        else:
            _check_patch_indices(patch_indices, pixels.shape[0], self.config.num_patches)
            x = self.stem(_gather_patches(patches, patch_indices)) + positions[patch_indices]
        if not num_added:
            return x
        names = ("class_token", "uncertainty_token")[:num_added]
        prefix = torch.stack([getattr(self, name) for name in names]) + self.positions[:num_added]
        return torch.cat([prefix.to(x.dtype).expand(x.shape[0], -1, -1), x], dim=1)

    def _split_patches(self, pixels: Tensor) -> Tensor:
        """Cut images into patches: (B, 3, S, S) -> (B, P, 3 p p), row by row, each patch channel by channel.

        Raises ValueError or TypeError for another shape, or for pixels that are not floats.
        """
        p, grid = self.config.patch_size, self.config.grid
        size = self.config.preprocessing.size
        if pixels.ndim != 4 or pixels.shape[1:] != (3, size, size):
            raise ValueError(f"pixels must have the shape (B, 3, {size}, {size}), not {tuple(pixels.shape)}")
        if not pixels.is_floating_point():
            raise TypeError(
                f"pixels must be normalized floats, not {pixels.dtype}; "
                "prolip.preprocessing.images.normalize converts torch.uint8"
            )
        x = pixels[:, :, : grid * p, : grid * p].to(self.positions.dtype)
        x = x.reshape(x.shape[0], 3, grid, p, grid, p)  # image, channel, patch row, y, patch column, x
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def _gather_patches(patches: Tensor, patch_indices: Tensor) -> Tensor:
    """Select K patches of each image: patches (B, P, V), patch_indices (B, K) -> (B, K, V)."""
    return patches.gather(1, patch_indices[..., None].expand(-1, -1, patches.shape[-1]))


def _check_patch_indices(patch_indices: Tensor, num_images: int, num_patches: int) -> None:
    """Raise ValueError unless indices are int64 (num_images, K), K from 1 to `num_patches`. Values are not read."""
    if (
        patch_indices.dtype != torch.int64
        or patch_indices.ndim != 2
        or patch_indices.shape[0] != num_images
        or not 1 <= patch_indices.shape[1] <= num_patches
    ):
        raise ValueError(
            f"patch_indices must be int64 of shape ({num_images}, K), K from 1 to {num_patches}, "
            f"not {patch_indices.dtype} {tuple(patch_indices.shape)}"
        )
