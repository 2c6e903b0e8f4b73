"""Model folders for AutoModel, AutoConfig and AutoProcessor of transformers.

The classes wrap prolip's own: weights are read and written by prolip, in its one format, and images and texts are
preprocessed exactly as `model.embed_images` and `model.embed_texts` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.extras import import_extra
from prolip.gaussian import Gaussian
from prolip.model.config import ModelConfig
from prolip.model.folder import MODEL_TYPE, WEIGHT_DTYPES
from prolip.model.inference import as_image_list
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImageSource
from prolip.weights.load import open_model

import_extra("transformers", "integrations")

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoProcessor,
    BatchFeature,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils.generic import ModelOutput  # noqa: E402

IGNORED = frozenset(
    ("_from_auto", "_commit_hash", "trust_remote_code", "adapter_kwargs", "code_revision", "use_safetensors")
)
"""Keywords of `from_pretrained` that change nothing here: AutoModel passes some of them by itself."""


def register_with_transformers() -> None:
    """Let AutoConfig, AutoModel and AutoProcessor open folders of `save_pretrained`. Calling it again does no harm."""
    AutoConfig.register(MODEL_TYPE, ProLIPConfig, exist_ok=True)
    AutoModel.register(ProLIPConfig, ProLIPModel, exist_ok=True)
    AutoProcessor.register(ProLIPConfig, ProLIPProcessor, exist_ok=True)


class ProLIPConfig(PreTrainedConfig):
    """The config.json of a model folder, as transformers sees it.

    Args:
        model: The fields of `prolip.model.ModelConfig`, as config.json has them.
        **kwargs: Other fields of a config of transformers.
    """

    model_type = MODEL_TYPE

    def __init__(self, model: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Store the fields."""
        super().__init__(**kwargs)
        self.model = model or {}

    def make_model_config(self) -> ModelConfig:
        """The config of prolip; ValueError names what is missing, unknown or invalid."""
        return ModelConfig.from_dict(self.model)


@dataclass
class ProLIPOutput(ModelOutput):
    """Embeddings of a batch; what was not given is None.

    Attributes:
        image_embeds, text_embeds: Means (N, D) and (M, D), of unit length.
        image_log_var, text_log_var: Log-variances (N, D) and (M, D).
        image_uncertainty, text_uncertainty: Traces (N,) and (M,).
        logits_per_image: (N, M), the logits of a match of the loss that the model was trained with.
        logits_per_text: (M, N).
    """

    image_embeds: Tensor | None = None
    text_embeds: Tensor | None = None
    image_log_var: Tensor | None = None
    text_log_var: Tensor | None = None
    image_uncertainty: Tensor | None = None
    text_uncertainty: Tensor | None = None
    logits_per_image: Tensor | None = None
    logits_per_text: Tensor | None = None


class ProLIPModel(PreTrainedModel):
    """A ProLIP model behind the interface of transformers; `model.prolip` is the model itself.

    Args:
        config: The config; a model of a config alone has new weights, drawn from torch's default generator.
        prolip: The model to wrap.
    """

    config_class = ProLIPConfig
    base_model_prefix = "prolip"
    main_input_name = "pixel_values"

    def __init__(self, config: ProLIPConfig, prolip: ProLIP | None = None) -> None:
        """Wrap a model, or make a new one."""
        super().__init__(config)
        if prolip is None:
            prolip = ProLIP(config.make_model_config()).init_weights(torch.default_generator)
        self.prolip = prolip

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        pretrained_model_name_or_path: str | Path,
        *args: Any,
        config: ProLIPConfig | None = None,
        revision: str | None = None,
        dtype: torch.dtype | str | None = None,
        **kwargs: Any,
    ) -> ProLIPModel:
        """Open a model on the CPU, in eval mode.

        Args:
            pretrained_model_name_or_path: What `prolip.load` takes.
            *args: None are used.
            config: None: that of the model.
            revision: Branch, tag or commit of a hub id.
            dtype: A dtype or its name; None or "auto": as saved.
            **kwargs: Those that AutoModel passes by itself; no others.

        Returns:
            The model.

        Raises:
            ValueError: There is no such dtype, or another keyword is given, such as device_map or
                quantization_config, which prolip doesn't know.
        """
        unknown = sorted(k for k, v in kwargs.items() if v not in (None, False, {}) and k not in IGNORED)
        if unknown:
            raise ValueError(
                f"from_pretrained of a ProLIP model has no {', '.join(unknown)}: prolip reads the weights itself. "
                "Move the model with .to(device)"
            )
        model = open_model(pretrained_model_name_or_path, revision=revision).model
        own = ProLIPConfig(model=model.config.to_dict()) if config is None else config
        opened = cls(own, model.to(dtype=_parse_dtype(dtype)))
        opened.eval()
        return opened

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:  # type: ignore[override]
        """Write the model folder of prolip, which AutoModel and `prolip.load` read.

        Args:
            save_directory: The folder.
            **kwargs: None: prolip writes one file of weights.

        Raises:
            ValueError: A keyword is given.
        """
        if kwargs:
            raise ValueError(f"save_pretrained of a ProLIP model has no {', '.join(sorted(kwargs))}")
        self.prolip.save_pretrained(save_directory)

    def forward(self, pixel_values: Tensor | None = None, input_ids: Tensor | None = None) -> ProLIPOutput:
        """Embed images, texts, or both. Padding is found by its id: there is no attention mask.

        Args:
            pixel_values: (N, 3, S, S), see `ProLIPProcessor`.
            input_ids: (M, T).

        Returns:
            Embeddings, and logits if both are given.

        Raises:
            ValueError: Neither is given.
        """
        if pixel_values is None and input_ids is None:
            raise ValueError("give pixel_values, input_ids, or both")
        images, texts = self.prolip(pixel_values, input_ids)
        logits = None
        if images is not None and texts is not None:
            logits = self.prolip.logit_parameters.logits_matrix(images, texts)
        return ProLIPOutput(
            **_name_fields("image", images), **_name_fields("text", texts), logits_per_image=logits,
            logits_per_text=None if logits is None else logits.mT,
        )  # fmt: skip


class ProLIPProcessor:
    """Images to pixels and texts to ids, for `ProLIPModel`, as prolip does both.

    Args:
        model: The model whose preprocessing and tokenizer are used; its weights aren't.
    """

    def __init__(self, model: ProLIP) -> None:
        """Keep config and tokenizer."""
        self._model = ProLIP(model.config, model.tokenizer)  # without memory for weights
        self._model.tokenizer_error = model.tokenizer_error

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, revision: str | None = None, **kwargs: Any
    ) -> ProLIPProcessor:
        """Read the preprocessing of a model.

        Args:
            pretrained_model_name_or_path: What `prolip.load` takes.
            revision: Branch, tag or commit of a hub id.
            **kwargs: Those that AutoProcessor passes by itself; they change nothing.

        Returns:
            The processor.
        """
        return cls(open_model(pretrained_model_name_or_path, revision=revision, with_encoders=False).model)

    def __call__(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        text: str | Sequence[str] | None = None,
        return_tensors: str = "pt",
    ) -> BatchFeature:
        """Preprocess images, texts, or both.

        Args:
            images: What `prolip.preprocessing.read_image` reads, or a list of it.
            text: A text, or several.
            return_tensors: "pt" or "np".

        Returns:
            `pixel_values` (N, 3, S, S), float32; `input_ids` (M, T), int64, padded to the longest text.

        Raises:
            ValueError: Neither is given, or the model has no tokenizer.
        """
        if images is None and text is None:
            raise ValueError("give images, text, or both")
        values: dict[str, Any] = {}
        if images is not None:
            pixels = [self._model.preprocess(image) for image in as_image_list(images)]
            values["pixel_values"] = torch.stack(pixels)
        if text is not None:
            values["input_ids"] = self._model.tokenize(text)
        if return_tensors == "np":
            values = {name: value.numpy() for name, value in values.items()}
        return BatchFeature(values, tensor_type=return_tensors)

    def batch_decode(self, input_ids: Tensor) -> list[str]:
        """Ids (M, T) back to texts, without padding, start and end."""
        if self._model.tokenizer is None:
            self._model.tokenize("")  # raises, and says why there is none
        assert self._model.tokenizer is not None
        return self._model.tokenizer.decode(input_ids)


def _parse_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """A dtype of weights by its name; None for None and "auto"."""
    if dtype in (None, "auto"):
        return None
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in WEIGHT_DTYPES:
        raise ValueError(f"dtype {dtype} is not one of {', '.join(map(str, WEIGHT_DTYPES))}")
    return found


def _name_fields(modality: str, z: Gaussian | None) -> dict[str, Tensor]:
    """The fields of the output of one modality."""
    if z is None:
        return {}
    return {
        f"{modality}_embeds": z.mean,
        f"{modality}_log_var": z.log_var,
        f"{modality}_uncertainty": z.uncertainty,
    }
