"""The sizes by name: the paper's and the release's, and small ones for two cores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from prolip.model.config import BlockConfig, ImageConfig, ModelConfig, Start, TextConfig
from prolip.preprocessing.images import PixelRules
from prolip.preprocessing.tokenizer import TokenRules


@dataclass(frozen=True, kw_only=True)
class Size:
    """The numbers that tell one model from another; everything else is as in the paper."""

    embed_dim: int
    image: BlockConfig
    patch_size: int
    text: BlockConfig
    image_size: int = 224
    context_length: int = 64
    mlp_stem: bool = False
    start: Start = field(default_factory=Start)


def _blocks(width: int, layers: int, heads: int, mlp_width: int | None = None) -> BlockConfig:
    return BlockConfig(width=width, layers=layers, heads=heads, mlp_width=mlp_width or 4 * width)


_BASE, _LARGE, _HUGE = _blocks(768, 12, 12), _blocks(1024, 24, 16), _blocks(1280, 32, 16)
_SO400M, _NARROW = _blocks(1152, 27, 16, 4304), _blocks(512, 12, 8)

SIZES: dict[str, Size] = {
    "ViT-B-32": Size(embed_dim=512, image=_BASE, patch_size=32, text=_NARROW),
    "ViT-B-16": Size(embed_dim=512, image=_BASE, patch_size=16, text=_NARROW),
    "ViT-B-16-768": Size(embed_dim=768, image=_BASE, patch_size=16, text=_BASE),
    "ViT-B-16-768-long": Size(embed_dim=768, image=_BASE, patch_size=16, text=_BASE, context_length=256),
    "ViT-L-16": Size(embed_dim=768, image=_LARGE, patch_size=16, text=_BASE),
    "ViT-L-14": Size(embed_dim=768, image=_LARGE, patch_size=14, text=_BASE),
    "ViT-L-16-1024": Size(embed_dim=1024, image=_LARGE, patch_size=16, text=_LARGE, image_size=256),
    "ViT-SO400M-14": Size(embed_dim=1152, image=_SO400M, patch_size=14, text=_SO400M),
    "ViT-H-14": Size(embed_dim=1024, image=_HUGE, patch_size=14, text=_blocks(1024, 24, 16), context_length=77),
    "small": Size(
        embed_dim=256, image=_blocks(256, 6, 4), patch_size=16, text=_blocks(256, 4, 4), image_size=112,
        context_length=32,
    ),
    "miniature": Size(
        embed_dim=64, image=_blocks(64, 3, 4, 128), patch_size=8, text=_blocks(64, 2, 4, 128), image_size=48,
        context_length=32, mlp_stem=True, start=Start(log_var=-7.5),
    ),
    "nano": Size(
        embed_dim=32, image=_blocks(32, 2, 2, 64), patch_size=8, text=_blocks(32, 2, 2, 64), image_size=32,
        context_length=16,
    ),
}  # fmt: skip
"""`ViT-B-16-768` is the paper's main model; `-long` its LongProLIP; `ViT-L-16-1024` the release's L/16, of 256 pixels.
`miniature` is known to learn in minutes on two cores; `nano` is for tests."""


def named(name: str, tokens: TokenRules) -> ModelConfig:
    """The model of this size, with the vocabulary of `tokens` and the size's own context length."""
    if name not in SIZES:
        raise ValueError(f"no size is called {name!r}; there are {', '.join(SIZES)}")
    size = SIZES[name]
    return ModelConfig(
        embed_dim=size.embed_dim,
        image=ImageConfig(
            pixels=PixelRules(size=size.image_size),
            patch_size=size.patch_size,
            blocks=size.image,
            stem="mlp" if size.mlp_stem else "linear",
            patch_bias=size.mlp_stem,
        ),
        text=TextConfig(
            tokens=replace(tokens, context_length=size.context_length, pad_to="longest"), blocks=size.text
        ),
        start=size.start,
    )
