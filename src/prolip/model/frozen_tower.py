"""FrozenTower: a frozen encoder and the trained head on its features; features to mean and log-variance."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from prolip.model.frozen_config import EncoderConfig, FrozenImageConfig, FrozenTextConfig, HeadConfig
from prolip.model.transformer import Head

CLIP_FEATURES = 8.0
"""Standardized features are clipped here: a single outlier must not decide."""
MIN_MEAN = 1e-3
"""Size of the initial biases of means: too small to matter, but a direction where all else is zero."""


class FeatureEncoder(Protocol):
    """A frozen encoder, as a tower uses it."""

    @property
    def config(self) -> EncoderConfig:
        """Its name, digest and number of features."""

    def encode(self, inputs: Tensor) -> Tensor:
        """Encode a batch.

        Args:
            inputs: Normalized pixels (B, 3, S, S), or token ids (B, T).

        Returns:
            Features (B, F), float32, on the device of the inputs.
        """


class FeatureMap(nn.Module):
    """Standardization, clipping, PCA and scaling of features: a fixed map, fitted to training features, not trained.

    forward: (B, F) -> (B, K).
    """

    shift: Tensor  # (F,)
    scale: Tensor  # (F,), what standardized features are multiplied by
    components: Tensor  # (F, K)

    def __init__(self, dim: int, components: int) -> None:
        """Make buffers with undefined values: `fit_feature_map` computes them, or weights are loaded."""
        super().__init__()
        self.register_buffer("shift", torch.empty(dim))
        self.register_buffer("scale", torch.empty(dim))
        self.register_buffer("components", torch.empty(dim, components))

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, F) to components (B, K)."""
        dtype = torch.promote_types(self.shift.dtype, torch.float32)
        standardized = (features.to(dtype) - self.shift) * self.scale
        return standardized.clamp(-CLIP_FEATURES, CLIP_FEATURES) @ self.components.to(dtype)


class MeanHead(nn.Module):
    """Linear map plus MLP: components (B, K) -> mean (B, E), not yet of unit length."""

    def __init__(self, config: HeadConfig, embed_dim: int) -> None:
        super().__init__()
        self.linear = Head(config.components, embed_dim)
        self.dropout = nn.Dropout(config.dropout)
        if config.hidden:
            self.hidden = Head(config.components, config.hidden)
            self.hidden_dropout = nn.Dropout(min(config.dropout, 0.3))
            self.output = Head(config.hidden, embed_dim)
        self.has_hidden = bool(config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Project components (B, K) to (B, E)."""
        x = self.dropout(x)
        y: Tensor = self.linear(x)
        if self.has_hidden:
            y = y + self.output(self.hidden_dropout(functional.gelu(self.hidden(x))))
        return y


class WidthHead(nn.Module):
    """MLP or linear map: components (B, K), perhaps with the mean (B, E) -> one log-variance per sample (B, 1)."""

    def __init__(self, config: HeadConfig, embed_dim: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        inputs = config.components + (embed_dim if config.widths_read_means else 0)
        if config.width_hidden:
            self.hidden = Head(inputs, config.width_hidden)
        self.has_hidden = bool(config.width_hidden)
        self.output = Head(config.width_hidden or inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute log-variances (B, 1) of inputs (B, K) or (B, K + E)."""
        x = self.dropout(x)
        if self.has_hidden:
            x = functional.gelu(self.hidden(x))
        y: Tensor = self.output(x)
        return y


class FrozenTower(nn.Module):
    """A frozen encoder and, if the config has one, a trained head.

    The encoder is no submodule: its weights are neither trained nor saved with the model, which names it by its digest.

    forward: inputs of the encoder -> mean (B, E), not yet of unit length, and log_var (B, E), or None without a head.
    """

    def __init__(self, config: FrozenImageConfig | FrozenTextConfig, embed_dim: int) -> None:
        """Make the head with undefined values: `init_frozen_tower` draws them, or weights are loaded."""
        super().__init__()
        self.config = config
        self.embed_dim = embed_dim
        self._encoder: tuple[FeatureEncoder, ...] = ()  # a tuple hides a module from nn.Module
        head = config.head
        if head is not None:
            self.feature_map = FeatureMap(config.encoder.dim, head.components)
            self.log_var = WidthHead(head, embed_dim)
            if head.means == "learned":
                self.mean = MeanHead(head, embed_dim)

    def attach_encoder(self, encoder: FeatureEncoder) -> None:
        """Use this encoder.

        Args:
            encoder: The one that the config names.

        Raises:
            ValueError: It is another one: its digest differs.
        """
        expected = self.config.encoder
        if encoder.config.digest != expected.digest:
            raise ValueError(
                f"the model was trained on the features of {expected.name} (digest {expected.digest}), not of "
                f"{encoder.config.name} (digest {encoder.config.digest}). Embeddings on other features would be "
                "meaningless: use the encoder that it was trained with"
            )
        self._encoder = (encoder,)

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder is attached."""
        return bool(self._encoder)

    @property
    def encoder(self) -> FeatureEncoder:
        """The encoder; ValueError if none is attached."""
        if not self._encoder:
            raise ValueError(
                f"this model has no encoder: {self.config.encoder.name} is not open. Load the model with prolip.load, "
                "or pass the encoder with model.set_encoders"
            )
        return self._encoder[0]

    @torch.no_grad()
    def compute_features(self, inputs: Tensor) -> Tensor:
        """Features (B, F) of pixels (B, 3, S, S) or ids (B, T), by the frozen encoder; without gradients."""
        return self.encoder.encode(inputs)

    def forward(self, inputs: Tensor, patch_indices: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode images or texts.

        Args:
            inputs: Pixels (B, 3, S, S) or ids (B, T).
            patch_indices: Not supported: a frozen encoder sees whole images.

        Returns:
            mean (B, E) and log_var (B, E) or None, see the class.
        """
        if patch_indices is not None:
            raise ValueError("a frozen encoder sees whole images: masked views of patches are not supported")
        return self.encode_features(self.compute_features(inputs))

    def encode_features(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Encode features of the encoder.

        Args:
            features: (B, F).

        Returns:
            mean (B, E) and log_var (B, E) or None, see the class.
        """
        head = self.config.head
        if head is None:
            return features, None
        components = self.feature_map(features)
        mean = features if head.means == "encoder" else self.mean(components)
        return mean, self._compute_log_var(components, mean)

    def encode_components(self, components: Tensor) -> tuple[Tensor, Tensor]:
        """Encode what training reads from a file: the output of `feature_map`, or its input if that is the mean.

        Args:
            components: (B, K), floats, for learned means; features (B, F) where the features are the means.

        Returns:
            mean (B, E), not yet of unit length, and log_var (B, E).
        """
        if self.config.head is not None and self.config.head.means == "encoder":
            return components, self._compute_log_var(self.feature_map(components), components)
        mean = self.mean(components)
        return mean, self._compute_log_var(components, mean)

    def _compute_log_var(self, components: Tensor, mean: Tensor) -> Tensor:
        """One log-variance per sample, for all dimensions: (B, E)."""
        head = self.config.head
        assert head is not None
        if head.widths_read_means:
            # sqrt(E) gives the mean the components' mean square of 1
            unit_mean = functional.normalize(mean, dim=-1) * self.embed_dim**0.5
            components = torch.cat([components, unit_mean], dim=-1)
        log_var: Tensor = self.log_var(components)
        return log_var.expand(-1, self.embed_dim)


@torch.no_grad()
def make_untrained_head(tower: FrozenTower, original: FrozenTower, generator: torch.Generator) -> None:
    """Make a new tower an untrained control of another: the same features and feature map, random widths.

    The widths of a new tower are constant, which would be no control of an order.

    Args:
        tower: Initialized; changed in place.
        original: The trained tower.
        generator: Source of all random numbers.
    """
    if original.has_encoder:
        tower.attach_encoder(original.encoder)
    if tower.config.head is None:
        return
    tower.feature_map.load_state_dict(original.feature_map.state_dict())
    bound = tower.log_var.output.in_features**-0.5
    tower.log_var.output.weight.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def init_frozen_tower(tower: FrozenTower, log_var: float, generator: torch.Generator) -> None:
    """Initialize the head: linear layers uniform as torch's; log-variances are `log_var` for every input.

    The feature map becomes the identity of the first features, until a fitted one is loaded.

    Args:
        tower: Changed in place.
        log_var: Initial log-variance.
        generator: Source of all random numbers.
    """
    if tower.config.head is None:
        return
    tower.feature_map.shift.zero_()
    tower.feature_map.scale.fill_(1.0)
    torch.nn.init.eye_(tower.feature_map.components)
    for layer in (module for module in tower.modules() if isinstance(module, nn.Linear)):
        bound = layer.in_features**-0.5
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.zero_()
    if tower.config.head.means == "learned":
        # dropout may drop all components: the mean of nothing needs a direction, too
        tower.mean.linear.bias.uniform_(-MIN_MEAN, MIN_MEAN, generator=generator)
    tower.log_var.output.weight.zero_()
    tower.log_var.output.bias.fill_(log_var)
