"""What a model is made of: frozen configs that serialise to JSON. An unknown or impossible value is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from prolip.checks import require_choice, require_count
from prolip.configs import build, require_literals
from prolip.preprocessing.images import PixelRules
from prolip.preprocessing.tokenizer import TokenRules

Activation = Literal["gelu", "quick_gelu", "gelu_tanh"]
"""Exact GELU, x sigmoid(1.702 x) (OpenAI's CLIP), or the tanh approximation (SigLIP in JAX)."""

Uncertainty = Literal["token", "none", "multihead", "mean"]
"""Where log-variances come from: the [UNC] token (the paper); nowhere, a deterministic tower; PCME++'s two further
blocks; or a linear map of the projected, un-normalised mean (text tower of the public release)."""


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """A stack of pre-norm transformer blocks."""

    width: int
    layers: int
    heads: int
    mlp_width: int
    activation: Activation = "gelu"
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name, most in (("width", 2**16), ("layers", 1000), ("heads", 1000), ("mlp_width", 2**18)):
            require_count(getattr(self, name), name, most)
        require_choice(self.activation, get_args(Activation), "activation")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if not 0.0 < self.norm_eps < 1.0:
            raise ValueError(f"norm_eps {self.norm_eps} must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """The image tower: patches, [CLS] and [UNC] in front of them, blocks, heads."""

    pixels: PixelRules
    patch_size: int
    blocks: BlockConfig
    uncertainty: Uncertainty = "token"
    stem: Literal["linear", "mlp"] = "linear"
    """How a patch becomes a token: one linear map, or two with a GELU between (small models learn shapes sooner)."""
    patch_bias: bool = False
    pre_norm: bool = True
    """A layer norm before the first block (CLIP has one, SigLIP has none)."""
    class_norm: Literal["once", "twice"] = "once"
    """How often the last norm is applied to [CLS]; "twice" is what the released weights were trained with."""
    pooling: Literal["class", "attention"] = "class"
    """Mean from the [CLS] token, or from SigLIP's attention pooling (no [CLS] token then)."""
    projection: bool = True
    """A linear map from the tower's width to the embedding (SigLIP has none)."""

    def __post_init__(self) -> None:
        require_count(self.patch_size, "patch_size", most=4096)
        require_literals(self)
        if self.pixels.size < self.patch_size:
            raise ValueError(f"an image of {self.pixels.size} pixels holds no patch of {self.patch_size}")
        if self.uncertainty == "mean":
            raise ValueError('uncertainty "mean" is for text towers: the release has it there only')
        if self.pooling == "attention" and (self.uncertainty != "none" or self.class_norm != "once"):
            raise ValueError(
                'attention pooling has no [CLS], so uncertainty must be "none", class_norm "once"'
            )
        if self.stem == "mlp" and not self.patch_bias:
            raise ValueError('the "mlp" stem has biases: set patch_bias')

    @property
    def grid(self) -> int:
        """Patches along an edge; what is left over at the right and at the bottom is not seen."""
        return self.pixels.size // self.patch_size

    @property
    def patches(self) -> int:
        return self.grid**2

    @property
    def added_tokens(self) -> int:
        """[CLS], and [UNC] where there is one."""
        return int(self.pooling == "class") + int(self.uncertainty == "token")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """The text tower: tokens, [UNC] and [CLS] behind them, blocks, heads."""

    tokens: TokenRules
    blocks: BlockConfig
    uncertainty: Uncertainty = "token"
    pooling: Literal["class", "last", "end"] = "class"
    """Mean from an added [CLS]; from the last position (SigLIP); or from the first end token (CLIP)."""
    causal: bool = False
    padding: Literal["masked", "attended"] = "masked"
    """Masked: texts may be cut to the longest of a batch, and [UNC], [CLS] have positions of their own. Attended: the
    release's and SigLIP's way: padding is read like words, and [UNC], [CLS] take the positions after the last id."""
    projection: bool = True
    projection_bias: bool = True

    def __post_init__(self) -> None:
        require_literals(self)
        if self.pooling != "class" and self.uncertainty != "none":
            raise ValueError(
                f'uncertainty "{self.uncertainty}" needs the pooling "class", not "{self.pooling}"'
            )
        if self.pooling == "end" and self.tokens.end_id is None:
            raise ValueError('pooling "end" needs the end_id of the tokens')
        if self.padding == "attended" and self.tokens.pad_to != "context" and not self.causal:
            raise ValueError('padding "attended" needs tokens padded to the whole context (pad_to "context")')
        if self.pooling == "last" and self.padding == "masked":
            raise ValueError('pooling "last" reads the last position, so padding must be "attended"')

    @property
    def added_tokens(self) -> int:
        """[CLS] and [UNC]; the release has an [UNC] in its text tower too, but never reads it."""
        return int(self.pooling == "class") + int(self.uncertainty in ("token", "mean"))


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a fresh model starts from. Not part of the forward pass."""

    log_var: float = -10.0
    scale: float = 10.0
    bias: float = -10.0

    def __post_init__(self) -> None:
        if not 0.0 < self.scale < math.inf or not math.isfinite(self.bias) or not math.isfinite(self.log_var):
            raise ValueError(f"scale must be positive, bias and log_var finite: {self}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Two towers into one space of `embed_dim` dimensions.

    contrast: "sigmoid", a learned scale and bias give a probability a pair (ProLIP, SigLIP); "softmax": no bias (CLIP).
    """

    embed_dim: int
    image: ImageConfig
    text: TextConfig
    contrast: Literal["sigmoid", "softmax"] = "sigmoid"
    start: Start = field(default_factory=Start)

    def __post_init__(self) -> None:
        require_count(self.embed_dim, "embed_dim", most=2**16)
        require_literals(self)
        for tower, name in ((self.image, "image"), (self.text, "text")):
            if not tower.projection and tower.blocks.width != self.embed_dim:
                raise ValueError(
                    f"the {name} tower has no projection, so its width {tower.blocks.width} "
                    f"must equal embed_dim {self.embed_dim}"
                )
        if "multihead" in (self.image.uncertainty, self.text.uncertainty):
            if self.image.uncertainty != self.text.uncertainty:
                raise ValueError(
                    'uncertainty "multihead" is for both towers or none: they share its last map'
                )
            if not (self.image.projection and self.text.projection):
                raise ValueError('uncertainty "multihead" needs the projections of both towers')

    @property
    def deterministic(self) -> bool:
        """Neither tower has a variance: CLIP, SigLIP."""
        return self.image.uncertainty == self.text.uncertainty == "none"

    def with_uncertainty(self, uncertainty: Uncertainty) -> ModelConfig:
        """The same model with another source of log-variances in both towers."""
        image, text = (
            replace(self.image, uncertainty=uncertainty),
            replace(self.text, uncertainty=uncertainty),
        )
        return replace(self, image=image, text=text)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`; a sentence for what is missing, unknown or impossible."""
        return build(cls, values, "config")  # type: ignore[no-any-return]
