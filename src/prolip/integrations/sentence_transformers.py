"""A module for SentenceTransformer: `encode` gives means, `output_value=None` also uncertainties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prolip.extras import import_extra
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImageSource
from prolip.weights.load import load, open_model
from prolip.weights.sentence_transformers_folder import write_sentence_transformers_folder

import_extra("sentence_transformers", "integrations")

from sentence_transformers.base.modality import infer_batch_modality  # noqa: E402
from sentence_transformers.base.modules import InputModule  # noqa: E402


class GaussianEncoder(InputModule):
    """A ProLIP model as the one module of a SentenceTransformer, for texts and images.

        SentenceTransformer(modules=[GaussianEncoder("scenes-tiny")]).encode(["a red circle"])

    `encode` gives the means, of unit length. `encode(..., output_value=None)` gives a dict for each input, with
    `sentence_embedding`, `log_var` and `uncertainty`; `embed` gives a `Gaussian`.

    Args:
        model: A model, or what `prolip.load` takes.
    """

    def __init__(self, model: ProLIP | str | Path) -> None:
        """Load the model if it isn't one; SentenceTransformer moves it to its device."""
        super().__init__()
        self.prolip = model if isinstance(model, ProLIP) else load(model, device="cpu")

    @property
    def modalities(self) -> list[Any]:
        """What a list of inputs may hold: texts, or images."""
        return ["text", "image"]

    @property
    def max_seq_length(self) -> int:
        """Largest number of tokens of a text."""
        return self.prolip.config.text.tokenizer.context_length

    def get_embedding_dimension(self) -> int:
        """D."""
        return self.prolip.config.embed_dim

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Turn a batch into what the model reads.

        Args:
            inputs: Texts; or images: PIL images, arrays, or paths that end as those of images do.
            prompt: Put before each text.
            **kwargs: Of sentence-transformers, such as `task`; the model has none.

        Returns:
            `input_ids` (B, T) or `pixel_values` (B, 3, S, S).

        Raises:
            ValueError: Texts and images are mixed, or an input can't be read.
        """
        if infer_batch_modality(inputs, supported_modalities=self.modalities) == "image":
            images = [one["image"] if isinstance(one, dict) else one for one in inputs]
            return {"pixel_values": torch.stack([self.prolip.preprocess(image) for image in images])}
        texts = [one["text"] if isinstance(one, dict) else one for one in inputs]
        return {"input_ids": self.prolip.tokenize(self._prepend_prompt(texts, prompt or ""))}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Encode a batch.

        Args:
            features: What `preprocess` returned.
            **kwargs: None are used.

        Returns:
            The same dict with `sentence_embedding` (B, D), `log_var` (B, D) and `uncertainty` (B,).
        """
        pixels: Tensor | None = features.get("pixel_values")
        z = (
            self.prolip.encode_text(features["input_ids"])
            if pixels is None
            else self.prolip.encode_image(pixels)
        )
        features |= {"sentence_embedding": z.mean, "log_var": z.log_var, "uncertainty": z.uncertainty}
        return features

    def embed(self, inputs: Sequence[str] | Sequence[ImageSource], *, batch_size: int = 64) -> Gaussian:
        """Embed texts or images as Gaussians.

        Args:
            inputs: Texts, or images.
            batch_size: Inputs per forward pass.

        Returns:
            Gaussian (N, D) on the CPU.
        """
        inputs = list(inputs)
        if inputs and infer_batch_modality(inputs, supported_modalities=self.modalities) == "image":
            return self.prolip.embed_images(inputs, batch_size=batch_size)
        return self.prolip.embed_texts([str(text) for text in inputs], batch_size=batch_size)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the model folder.

        Args:
            output_path: The folder.
            *args: None are used.
            safe_serialization: Must be true: prolip writes safetensors only.
            **kwargs: None are used.
        """
        if not safe_serialization:
            raise ValueError("prolip writes safetensors only: use safe_serialization=True")
        write_sentence_transformers_folder(self.prolip, output_path)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", revision: str | None = None, **kwargs: Any
    ) -> GaussianEncoder:
        """Open a folder or hub id, as SentenceTransformer does for what modules.json lists.

        Args:
            model_name_or_path: Folder or hub id.
            subfolder: Folder of the module within it.
            revision: Branch, tag or commit of a hub id.
            **kwargs: Of sentence-transformers; the hub's cache and token are those of huggingface_hub.

        Returns:
            The module.
        """
        path = Path(model_name_or_path, subfolder) if subfolder else model_name_or_path
        return cls(open_model(path, revision=revision).model)
