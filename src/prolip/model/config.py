"""Configs of the model: frozen dataclasses that serialize to JSON and check their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from prolip.checks import require_positive, require_positive_int
from prolip.configs import build_dataclass, require_field_types
from prolip.losses.vmf_likelihood import GAMMA
from prolip.measures.vmf import find_concentration
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig

Activation = Literal["gelu", "quick_gelu", "gelu_tanh"]
"""Exact GELU, x sigmoid(1.702 x) (OpenAI's CLIP), or the tanh approximation (SigLIP in JAX)."""

Uncertainty = Literal["token", "none", "multihead", "mean"]
"""Where log-variances come from: the [UNC] token (the paper); nowhere, a deterministic tower; PCME++'s two further
blocks; or a linear map of the projected mean before its normalization (text tower of the public release)."""


ContrastiveLoss = Literal["sigmoid", "softmax", "likelihood"]
"""The loss that gave a model its logits: sigmoids on distances (ProLIP, SigLIP), a softmax over a batch (CLIP), or the
likelihood of von Mises-Fisher posteriors (ours, docs/likelihood.md)."""


_NO_TRANSFORMER = (
    "this model has the frozen encoder {} and heads on its features: it has no transformer of its own that could be "
    "converted, resized or trained this way (docs/adapt.md)"
)
INITIAL_TRACE = 0.26
"""Initial trace of a new model with one log-variance per sample, in any dimension: that of the miniature, in which the
likelihood was tried (a log-variance of -5.5 in 64 dimensions)."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A stack of pre-norm transformer blocks.

    Attributes:
        width: Width of the tokens.
        layers: Number of blocks.
        heads: Heads of attention.
        mlp_width: Hidden width of the MLP.
        activation: Activation of the MLP.
        norm_eps: Added to the variance in the layer norms.
    """

    width: int
    layers: int
    heads: int
    mlp_width: int
    activation: Activation = "gelu"
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid."""
        for name, maximum in (("width", 2**16), ("layers", 1000), ("heads", 1000), ("mlp_width", 2**18)):
            require_positive_int(getattr(self, name), name, maximum)
        require_field_types(self)
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if not 0.0 < self.norm_eps < 1.0:
            raise ValueError(f"norm_eps {self.norm_eps} must be between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """The image tower: [CLS] and [UNC] before the patches, transformer, heads."""

    preprocessing: ImagePreprocessing
    patch_size: int
    blocks: TransformerConfig
    uncertainty: Uncertainty = "token"
    isotropic: bool = False
    """One log-variance per image, the same in all dimensions (uncertainty "token" only)."""
    stem: Literal["linear", "mlp"] = "linear"
    """How a patch becomes a token: one linear map, or two with a GELU between (small models learn shapes earlier)."""
    patch_bias: bool = False
    """Whether the linear map of patches has a bias."""
    pre_norm: bool = True
    """A layer norm before the first block (CLIP has one, SigLIP has none)."""
    class_norm: Literal["once", "twice"] = "once"
    """How often the last norm is applied to [CLS]; the released weights were trained with "twice"."""
    pooling: Literal["class", "attention"] = "class"
    """Mean from the [CLS] token, or from SigLIP's attention pooling (no [CLS] token then)."""
    projection: bool = True
    """A linear map from the tower's width to the embedding (SigLIP has none)."""

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid and fit together."""
        require_positive_int(self.patch_size, "patch_size", maximum=4096)
        require_field_types(self)
        if self.preprocessing.size < self.patch_size:
            raise ValueError(
                f"the image size {self.preprocessing.size} is smaller than patch_size {self.patch_size}"
            )
        _require_token_if_isotropic(self)
        if self.uncertainty == "mean":
            raise ValueError('uncertainty "mean" is for text towers only')
        if self.pooling == "attention" and (self.uncertainty != "none" or self.class_norm != "once"):
            raise ValueError(
                'pooling "attention" has no [CLS], so uncertainty must be "none" and class_norm "once"'
            )
        if self.stem == "mlp" and not self.patch_bias:
            raise ValueError('stem "mlp" has biases: set patch_bias to true')

    @property
    def grid(self) -> int:
        """Patches along an edge. Pixels beyond the last whole patch, at the right and the bottom, are not seen."""
        return self.preprocessing.size // self.patch_size

    @property
    def num_patches(self) -> int:
        """Number of patches of an image."""
        return self.grid**2

    @property
    def num_added_tokens(self) -> int:
        """Number of tokens put before the patches, 0 to 2: [CLS], then [UNC]."""
        return int(self.pooling == "class") + int(self.uncertainty == "token")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """The text tower: tokens, then [UNC] and [CLS], transformer, heads."""

    tokenizer: TokenizerConfig
    blocks: TransformerConfig
    uncertainty: Uncertainty = "token"
    isotropic: bool = False
    """One log-variance per text, the same in all dimensions (uncertainty "token" only)."""
    pooling: Literal["class", "last", "end"] = "class"
    """Mean from an added [CLS]; from the last position (SigLIP); or from the first end token (CLIP)."""
    causal: bool = False
    """Whether a token attends to earlier ones only (CLIP)."""
    padding: Literal["masked", "attended"] = "masked"
    """masked: padding is not attended to, a batch may be cut to its longest text, and [UNC], [CLS] have positions of
    their own. attended (release, SigLIP): padding is read like words, and [UNC], [CLS] follow the last id."""
    projection: bool = True
    """A linear map from the tower's width to the embedding."""
    projection_bias: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid and fit together."""
        require_field_types(self)
        _require_token_if_isotropic(self)
        if self.pooling != "class" and self.uncertainty != "none":
            raise ValueError(
                f'uncertainty "{self.uncertainty}" needs the pooling "class", not "{self.pooling}"'
            )
        if self.pooling == "end" and self.tokenizer.end_id is None:
            raise ValueError('pooling "end" needs tokenizer.end_id')
        if self.padding == "attended" and self.tokenizer.pad_to != "context" and not self.causal:
            raise ValueError(
                'padding "attended" needs texts padded to the context length (tokenizer.pad_to "context")'
            )
        if self.pooling == "last" and self.padding == "masked":
            raise ValueError('pooling "last" reads the last position, so padding must be "attended"')

    @property
    def num_added_tokens(self) -> int:
        """Number of tokens appended to the text, 0 to 2: [UNC], then [CLS].

        uncertainty "mean" (the released text tower) counts an [UNC]: its weights contain one, though nothing reads it.
        """
        return int(self.pooling == "class") + int(self.uncertainty in ("token", "mean"))


def _require_token_if_isotropic(tower: ImageConfig | TextConfig) -> None:
    """Raise ValueError if a tower has one log-variance per sample, but not from the [UNC] token."""
    if tower.isotropic and tower.uncertainty != "token":
        raise ValueError(f'isotropic needs the uncertainty "token", not "{tower.uncertainty}"')


@dataclass(frozen=True, kw_only=True)
class InitConfig:
    """Initial values of a new model. Not read by the forward pass.

    Attributes:
        log_var: Mean of the initial log-variances.
        scale: Factor of the logits, exp(logit_scale); of a likelihood model, the concentration kappa of an input
            whose log-variances have their initial value.
        logit_bias: Logit bias of sigmoid models.
    """

    log_var: float = -10.0
    scale: float = 10.0
    logit_bias: float = -10.0

    def __post_init__(self) -> None:
        """Raise ValueError unless scale is positive and all values are finite."""
        if (
            not 0.0 < self.scale < math.inf
            or not math.isfinite(self.logit_bias)
            or not math.isfinite(self.log_var)
        ):
            raise ValueError(f"scale must be positive, logit_bias and log_var finite: {self}")

    def fit_to(self, dim: int, *, isotropic: bool, contrastive_loss: ContrastiveLoss) -> InitConfig:
        """A copy whose log-variance and scale fit the dimension, for one width per sample and for the likelihood.

        One width per sample: the trace D exp(log_var) starts at `INITIAL_TRACE`. It is the trace that adds to squared
        distances of means, so it must not grow with D.

        Likelihood: kappa starts where a perfect match, a pair with equal means, has the logit 0, as PPCL starts with
        scale 10 and bias -10. The logit is F(r) - 2 F(kappa) + b, and r is 2 kappa for equal means and sqrt(2) kappa
        for orthogonal ones. With F(kappa) = kappa^2 / (2 D) + ..., which holds for small kappa, the logits are
        kappa^2 / D + b and b: so kappa is about sqrt(-b D), and the logits of pairs at random are near b = -ln(batch
        size), their value if nothing is known. A fixed kappa would not do: kappa = 10, the scale of PPCL, gives a
        spread of 1.5 nats in 64 dimensions and of 0.13 in 768. The miniature's 20 in 64 dimensions, for batches of 128,
        is this value.

        Args:
            dim: D.
            isotropic: Whether the model has one log-variance per sample.
            contrastive_loss: The loss of the model.

        Returns:
            The copy; the logit bias is unchanged.

        Raises:
            ValueError: The loss is the likelihood, and the logit bias is not below 0.
        """
        log_var = math.log(INITIAL_TRACE / dim) if isotropic else self.log_var
        if contrastive_loss != "likelihood":
            return replace(self, log_var=log_var)
        if self.logit_bias >= 0:
            raise ValueError(
                f"the initial logit bias of a likelihood must be below 0, not {self.logit_bias}: -ln(batch size)"
            )
        return replace(self, log_var=log_var, scale=find_concentration(-self.logit_bias, dim))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Two towers into one embedding space.

    Attributes:
        embed_dim: Dimensions D of the space.
        image: The image tower; a frozen one for models that `prolip.adapt` makes.
        text: The text tower.
        contrastive_loss: "sigmoid": logit scale and bias give a probability per pair (ProLIP, SigLIP); "softmax": the
            model has no logit bias (CLIP); "likelihood": concentrations of von Mises-Fisher posteriors from widths give
            a probability per pair (docs/likelihood.md).
        gamma: For "likelihood": exponent of the trace in the concentration kappa = exp(logit_scale) tr^-gamma.
        init: Initial values of a new model.
    """

    embed_dim: int
    image: ImageConfig | FrozenImageConfig
    text: TextConfig | FrozenTextConfig
    contrastive_loss: ContrastiveLoss = "sigmoid"
    gamma: float = GAMMA
    init: InitConfig = field(default_factory=InitConfig)

    def __post_init__(self) -> None:
        """Raise ValueError unless all fields are valid and the two towers fit together."""
        require_positive_int(self.embed_dim, "embed_dim", maximum=2**16)
        require_field_types(self)
        require_positive(self.gamma, "gamma")
        if self.contrastive_loss == "likelihood" and "none" in (
            self.image.uncertainty,
            self.text.uncertainty,
        ):
            raise ValueError('contrastive_loss "likelihood" needs variances in both towers')
        if isinstance(self.image, FrozenImageConfig) != isinstance(self.text, FrozenTextConfig):
            raise ValueError("either both towers are frozen encoders, or none is")
        if self.contrastive_loss == "likelihood" and not self.match_reads_variances:
            raise ValueError(
                'contrastive_loss "likelihood" reads variances, so that the teacher of the heads can\'t be "pool"'
            )
        for tower, name in ((self.image, "image"), (self.text, "text")):
            if not isinstance(tower, ImageConfig | TextConfig):
                continue
            if not tower.projection and tower.blocks.width != self.embed_dim:
                raise ValueError(
                    f"the {name} tower has no projection, so its width {tower.blocks.width} "
                    f"must equal embed_dim {self.embed_dim}"
                )
        if "multihead" in (self.image.uncertainty, self.text.uncertainty):
            if self.image.uncertainty != self.text.uncertainty:
                raise ValueError(
                    'uncertainty "multihead" must be set for both towers: they share its last layer'
                )
            if not (self.image_transformer.projection and self.text_transformer.projection):
                raise ValueError('uncertainty "multihead" needs the projections of both towers')

    @property
    def is_frozen(self) -> bool:
        """Whether the towers are frozen encoders with trained heads (docs/adapt.md)."""
        return isinstance(self.image, FrozenImageConfig)

    @property
    def image_transformer(self) -> ImageConfig:
        """The image tower's config, for what needs a transformer; ValueError for a frozen encoder."""
        if not isinstance(self.image, ImageConfig):
            raise ValueError(_NO_TRANSFORMER.format(self.image.encoder.name))
        return self.image

    @property
    def text_transformer(self) -> TextConfig:
        """The text tower's config, for what needs a transformer; ValueError for a frozen encoder."""
        if not isinstance(self.text, TextConfig):
            raise ValueError(_NO_TRANSFORMER.format(self.text.encoder.name))
        return self.text

    @property
    def match_reads_variances(self) -> bool:
        """Whether the match logit depends on variances: not if they learned from a pool, after the means."""
        heads = [getattr(tower, "head", None) for tower in (self.image, self.text)]
        return all(head is None or head.teacher != "pool" for head in heads)

    @property
    def has_raw_features(self) -> bool:
        """Whether the "means" are features of frozen encoders without heads, which have any length."""
        return isinstance(self.image, FrozenImageConfig) and self.image.head is None

    @property
    def deterministic(self) -> bool:
        """Whether neither tower has a variance: CLIP, SigLIP."""
        return self.image.uncertainty == self.text.uncertainty == "none"

    def compute_logit_scale(self, scale: float) -> float:
        """The parameter logit_scale of a scale as `InitConfig` defines it: ln(scale), or tau of a likelihood model.

        tau is such that kappa = e^tau tr^-gamma is `scale` at the initial log-variances, tr = D exp(log_var).
        """
        if self.contrastive_loss != "likelihood":
            return math.log(scale)
        return math.log(scale) + self.gamma * (math.log(self.embed_dim) + self.init.log_var)

    def with_uncertainty(self, uncertainty: Uncertainty, *, isotropic: bool = False) -> ModelConfig:
        """A copy of the config with another source of log-variances, or another number of them, in both towers."""
        return replace(
            self,
            image=replace(self.image_transformer, uncertainty=uncertainty, isotropic=isotropic),
            text=replace(self.text_transformer, uncertainty=uncertainty, isotropic=isotropic),
        )

    def to_dict(self) -> dict[str, Any]:
        """The config as nested dicts of plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`; ValueError names what is missing, unknown or invalid."""
        return build_dataclass(cls, values, "config")  # type: ignore[no-any-return]
