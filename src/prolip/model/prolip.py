"""The model: two towers, the learned scale and bias, what turns pictures and words into their inputs; and its face."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from prolip.checks import some
from prolip.gaussian import Gaussian, checked, work_dtype
from prolip.losses.contrastive import Temperature
from prolip.model import inference, store
from prolip.model import init as fresh
from prolip.model.config import ModelConfig
from prolip.model.image_tower import ImageTower
from prolip.model.text_tower import TextTower
from prolip.model.transformer import Head, Transformer
from prolip.preprocessing import images as pixels_of
from prolip.preprocessing.images import ImageSource
from prolip.preprocessing.tokenizer import Tokenizer


class ProLIP(nn.Module):
    """A CLIP-like model that maps an image or a text to a Gaussian.

    `ProLIP(config)` has no weights and no memory behind them yet (its parameters are on the device "meta"):
    `start(generator)` draws fresh ones; `prolip.load` and `prolip.create` return models that are ready. Names of
    parameters are stable and documented in docs/models.md: freeze a tower by `model.image.requires_grad_(False)`, wrap
    `image.blocks.3.attention.qkv` and the like for LoRA.
    """

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer: Tokenizer | None = None
        self.origin: dict[str, Any] = {}
        """Where the weights came from, if from elsewhere: kept in config.json, for people and for the way back."""
        self.no_tokenizer = ""
        """Why there is no tokenizer, where one was looked for."""
        with torch.device("meta"):
            self.image = ImageTower(config.image, config.embed_dim)
            self.text = TextTower(config.text, config.embed_dim)
            self.log_scale = nn.Parameter(torch.empty(()))
            self.bias = nn.Parameter(torch.empty(())) if config.contrast == "sigmoid" else None
            if config.image.uncertainty == "multihead":
                self.log_var = Head(config.embed_dim, config.embed_dim)
        if tokenizer is not None:
            self.use_tokenizer(tokenizer)

    def use_tokenizer(self, tokenizer: Tokenizer) -> ProLIP:
        """Take this tokenizer, and its ids of padding, mask and end, for the text tower's own."""
        old, new = self.config.text.tokens, tokenizer.rules
        if any(
            getattr(old, part) != getattr(new, part) for part in ("vocab_size", "context_length", "pad_to")
        ):
            raise ValueError(
                f"the tokenizer has {new.vocab_size} ids, a context of {new.context_length} and pads to the "
                f"{new.pad_to}; the text tower wants {old.vocab_size}, {old.context_length} and {old.pad_to}"
            )
        self.tokenizer = tokenizer
        self.text.config = replace(self.config.text, tokens=new)
        self.config = replace(self.config, text=self.text.config)
        self.no_tokenizer = ""
        return self

    def start(self, generator: torch.Generator) -> ProLIP:
        """Fresh weights on the CPU, all of them drawn from `generator`."""
        self.to_empty(device="cpu")
        begin = self.config.start
        fresh.start_image(self.image, begin.log_var, generator)
        fresh.start_text(self.text, begin.log_var, generator)
        if self.config.image.uncertainty == "multihead":
            fresh.start_log_var(self.log_var, begin.log_var, generator)
        with torch.no_grad():
            self.log_scale.fill_(begin.scale).log_()
            if self.bias is not None:
                self.bias.fill_(begin.bias)
        return self

    # -- towers ------------------------------------------------------------------------------------------------------

    def encode_image(self, pixels: Tensor, keep: Tensor | None = None) -> Gaussian:
        """Normalised pixels (B, 3, S, S) -> Gaussian (B, D) with means of unit length.

        keep: (B, K) indices of the patches that are seen, for masked images; the others are not computed.
        """
        return self._gaussian(*self.image(pixels, keep))

    def encode_text(self, ids: Tensor) -> Gaussian:
        """Token ids (B, T) -> Gaussian (B, D) with means of unit length."""
        return self._gaussian(*self.text(ids))

    def forward(
        self, pixels: Tensor | None = None, ids: Tensor | None = None, keep: Tensor | None = None
    ) -> tuple[Gaussian | None, Gaussian | None]:
        """Both at once, for wrappers such as DDP that intercept `forward`. keep: as in `encode_image`."""
        images = None if pixels is None else self.encode_image(pixels, keep)
        texts = None if ids is None else self.encode_text(ids)
        return images, texts

    def _gaussian(self, mean: Tensor, spread: Tensor | None) -> Gaussian:
        mean = normalize(mean.to(work_dtype(mean)), dim=-1)
        if spread is None:
            return Gaussian.point(mean)
        if self.config.image.uncertainty == "multihead":
            spread = self.log_var(spread)
        return Gaussian(mean, spread.to(mean.dtype))

    # -- people ------------------------------------------------------------------------------------------------------

    def embed_images(
        self,
        images: ImageSource | Sequence[ImageSource],
        *,
        batch_size: int = 64,
        progress: bool | None = None,
    ) -> Gaussian:
        """Files, PIL images or arrays -> Gaussian (N, D), on the CPU. A single one gives (1, D).

        progress: a bar on stderr; None: if it is a terminal and there is more than one batch. A picture that can't be
        read is an error that says which.
        """
        return inference.embed_images(self, inference.several(images), batch_size, progress)

    def embed_texts(
        self, texts: str | Sequence[str], *, batch_size: int = 256, progress: bool | None = None
    ) -> Gaussian:
        """Texts -> Gaussian (N, D), on the CPU. A single string gives (1, D)."""
        return inference.embed_texts(
            self, [texts] if isinstance(texts, str) else list(texts), batch_size, progress
        )

    def preprocess(self, image: ImageSource) -> Tensor:
        """A file, PIL image or array -> normalised pixels (3, S, S), on the CPU."""
        return pixels_of.preprocess(image, self.config.image.pixels)

    def tokenize(self, texts: str | Sequence[str]) -> Tensor:
        """Texts -> ids (B, T), int64, on the CPU."""
        if self.tokenizer is None:
            raise ValueError(self._no_tokenizer())
        return self.tokenizer(texts)

    def match_probability(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """Probability that image i and text i belong together, by the learned scale and bias (Eq. 2): (N,)."""
        images, texts = checked(images, "images"), checked(texts, "texts")
        if images.shape != texts.shape:
            raise ValueError(
                f"rows are paired: {tuple(images.shape)} and {tuple(texts.shape)} differ (for all pairs: "
                "match_probability_matrix)"
            )
        product = (images.mean.to(work_dtype(images.mean)) * texts.mean).sum(-1)
        return self._probability(product - 0.5 * (images.uncertainty + texts.uncertainty))

    def match_probability_matrix(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """The same for every image (rows) and every text (columns): (N, M)."""
        images, texts = checked(images, "images"), checked(texts, "texts")
        if images.mean.ndim != 2 or texts.mean.ndim != 2 or images.dim != texts.dim:
            raise ValueError(
                f"images (N, D) and texts (M, D), not {tuple(images.shape)} and {tuple(texts.shape)}"
            )
        dtype = work_dtype(images.mean, texts.mean)
        product = images.mean.to(dtype) @ texts.mean.to(dtype).mT
        return self._probability(product - 0.5 * (images.uncertainty[:, None] + texts.uncertainty))

    def _probability(self, closeness: Tensor) -> Tensor:
        """sigmoid(a x + b), where x = 1 - CSD / 2."""
        if self.bias is None:
            raise ValueError(
                "this model was trained with a softmax over the batch: it has no probability for a pair by itself. "
                "Rank by prolip.csd_matrix instead"
            )
        scale, bias = (v.detach().to(closeness) for v in (self.temperature.scale, self.bias))
        return torch.sigmoid(scale * closeness + bias)

    # -- what training needs -----------------------------------------------------------------------------------------

    @property
    def temperature(self) -> Temperature:
        """The learned scale and bias, as the losses take them (a softmax model has the bias zero)."""
        return Temperature(
            self.log_scale, torch.zeros_like(self.log_scale) if self.bias is None else self.bias
        )

    def gradient_checkpointing(self, on: bool = True) -> ProLIP:
        """Recompute the inside of each block in the backward pass: less memory, about a third more time."""
        for module in self.modules():
            if isinstance(module, Transformer):
                module.checkpointing = on
        return self

    @property
    def device(self) -> torch.device:
        return self.log_scale.device

    @property
    def dtype(self) -> torch.dtype:
        return self.image.positions.dtype

    def save(self, folder: str | Path) -> Path:
        """Write config.json, model.safetensors and tokenizer.json, each whole or not at all. Returns the folder."""
        described = ProLIP(self.config).state_dict().keys()
        unknown = sorted(self.state_dict().keys() - described)
        if unknown:
            raise ValueError(
                f"the config doesn't describe {some(unknown)}, so they couldn't be loaded again: merge what was added "
                '(torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")), or keep it apart'
            )
        return store.write(Path(folder), self.config, self.state_dict(), self.tokenizer, self.origin)

    def __repr__(self) -> str:
        config = self.config
        count = sum(p.numel() for p in self.parameters())
        sources = sorted({config.image.uncertainty, config.text.uncertainty})
        return (
            f"ProLIP({count / 1e6:.4g}M parameters, {config.embed_dim} dimensions, "
            f"images of {config.image.pixels.size}, texts of {config.text.tokens.context_length}, "
            f"uncertainty {' and '.join(sources)}, "
            f"{str(self.dtype).removeprefix('torch.')} on {self.device})"
        )

    def _no_tokenizer(self) -> str:
        reason = f" ({self.no_tokenizer})" if self.no_tokenizer else ""
        return (
            f"this model has no tokenizer{reason}: put tokenizer.json into its folder, or "
            "give prolip.load(..., tokenizer=) a folder or hub id that has one"
            + (f", such as {self.origin['tokenizer']}" if "tokenizer" in self.origin else "")
        )
