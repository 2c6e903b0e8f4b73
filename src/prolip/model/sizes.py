"""Named model sizes: the paper's, the release's, and small ones for a CPU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from prolip.model.config import ImageConfig, InitConfig, ModelConfig, TextConfig, TransformerConfig
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """The values in which the named sizes differ; everything else is as in the paper.

    Attributes:
        embed_dim: Dimensions of the embedding.
        image: Blocks of the image tower.
        patch_size: Side of a patch in pixels.
        text: Blocks of the text tower.
        image_size: Side of an image in pixels.
        context_length: Largest number of tokens of a text.
        mlp_stem: Whether the patch embedding is an MLP (`ImageConfig.stem`), which the paper doesn't have.
        init: Initial values of a new model.
    """

    embed_dim: int
    image: TransformerConfig
    patch_size: int
    text: TransformerConfig
    image_size: int = 224
    context_length: int = 64
    mlp_stem: bool = False
    init: InitConfig = field(default_factory=InitConfig)


def _make_blocks(width: int, layers: int, heads: int, mlp_width: int | None = None) -> TransformerConfig:
    """The config of a stack of blocks. mlp_width: None: four times the width."""
    return TransformerConfig(width=width, layers=layers, heads=heads, mlp_width=mlp_width or 4 * width)


_BASE, _LARGE, _HUGE = _make_blocks(768, 12, 12), _make_blocks(1024, 24, 16), _make_blocks(1280, 32, 16)
_SO400M, _NARROW = _make_blocks(1152, 27, 16, 4304), _make_blocks(512, 12, 8)

SIZES: dict[str, ModelSize] = {
    "ViT-B-32": ModelSize(embed_dim=512, image=_BASE, patch_size=32, text=_NARROW),
    "ViT-B-16": ModelSize(embed_dim=512, image=_BASE, patch_size=16, text=_NARROW),
    "ViT-B-16-768": ModelSize(embed_dim=768, image=_BASE, patch_size=16, text=_BASE),
    "ViT-B-16-768-long": ModelSize(embed_dim=768, image=_BASE, patch_size=16, text=_BASE, context_length=256),
    "ViT-L-16": ModelSize(embed_dim=768, image=_LARGE, patch_size=16, text=_BASE),
    "ViT-L-14": ModelSize(embed_dim=768, image=_LARGE, patch_size=14, text=_BASE),
    "ViT-L-16-1024": ModelSize(embed_dim=1024, image=_LARGE, patch_size=16, text=_LARGE, image_size=256),
    "ViT-SO400M-14": ModelSize(embed_dim=1152, image=_SO400M, patch_size=14, text=_SO400M),
    "ViT-H-14": ModelSize(embed_dim=1024, image=_HUGE, patch_size=14, text=_LARGE, context_length=77),
    "small": ModelSize(
        embed_dim=256, image=_make_blocks(256, 6, 4), patch_size=16, text=_make_blocks(256, 4, 4), image_size=112,
        context_length=32,
    ),
    "miniature": ModelSize(
        embed_dim=64, image=_make_blocks(64, 3, 4, 128), patch_size=8, text=_make_blocks(64, 2, 4, 128), image_size=48,
        context_length=32, mlp_stem=True, init=InitConfig(log_var=-7.5),
    ),
    "nano": ModelSize(
        embed_dim=32, image=_make_blocks(32, 2, 2, 64), patch_size=8, text=_make_blocks(32, 2, 2, 64), image_size=32,
        context_length=16,
    ),
}  # fmt: skip
"""`ViT-B-16-768` is the paper's main model; `-long` its LongProLIP; `ViT-L-16-1024` the release's L/16, of 256 pixels.
`miniature` learns scenes in minutes on two cores; `nano` is for tests."""


def get_config(name: str, tokenizer: TokenizerConfig) -> ModelConfig:
    """The config of a named size.

    Args:
        name: A key of `SIZES`.
        tokenizer: Its vocabulary and special ids are taken; the context length is the size's.

    Returns:
        The config.

    Raises:
        ValueError: If the name is unknown.
    """
    if name not in SIZES:
        raise ValueError(f"the size {name!r} is unknown; the known ones are {', '.join(SIZES)}")
    size = SIZES[name]
    return ModelConfig(
        embed_dim=size.embed_dim,
        image=ImageConfig(
            preprocessing=ImagePreprocessing(size=size.image_size),
            patch_size=size.patch_size,
            blocks=size.image,
            stem="mlp" if size.mlp_stem else "linear",
            patch_bias=size.mlp_stem,
        ),
        text=TextConfig(
            tokenizer=replace(tokenizer, context_length=size.context_length, pad_to="longest"),
            blocks=size.text,
        ),
        init=size.init,
    )
