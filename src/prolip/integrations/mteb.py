"""An encoder for mteb 2, whose embeddings are the means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.embeddings.identity import model_identity
from prolip.extras import MissingExtraError
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.weights.load import load


class MtebEncoder:
    """A model for `mteb.evaluate`: mteb's EncoderProtocol, for texts, images, and images with texts.

    The embedding is the mean: mteb's tasks compare vectors by their cosine, and know of no uncertainty. An image with
    a text is embedded as the sum of both means, made of unit length, as mteb does for CLIP.

    Args:
        model_name: What `prolip.load` takes, or a model.
        revision: Branch, tag or commit of a hub id.
        device: None: CUDA if available, else the CPU.
    """

    def __init__(
        self, model_name: str | ProLIP, revision: str | None = None, *, device: str | None = None
    ) -> None:
        """Load the model; ValueError or OSError if it can't be loaded."""
        self.name = "model" if isinstance(model_name, ProLIP) else model_name
        self.model: ProLIP = (
            model_name
            if isinstance(model_name, ProLIP)
            else load(model_name, revision=revision, device=device)
        )
        self.revision = revision

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        batch_size: int = 64,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """Embed what mteb hands over, batch by batch.

        Args:
            inputs: Batches: dicts with a list of texts at "text", of images at "image", or both.
            task_metadata, hf_split, hf_subset, prompt_type: Of mteb. A model of images and captions has no prompts
                for tasks.
            batch_size: Inputs that are encoded at a time, at most those of a batch.
            show_progress_bar: Accepted and ignored: mteb shows progress itself.

        Returns:
            Means, float32 (N, D).

        Raises:
            ValueError: A batch has neither texts nor images.
        """
        blocks = [self._encode_batch(batch, batch_size) for batch in inputs]
        empty = torch.empty(0, self.model.config.embed_dim)
        return torch.cat([empty, *blocks]).numpy()

    def _encode_batch(self, batch: Mapping[str, Any], batch_size: int) -> Tensor:
        """Means (n, D) of a batch, float32."""
        found: list[Gaussian] = []
        if batch.get("image") is not None:
            found.append(self.model.embed_images(batch["image"], batch_size=batch_size, progress=False))
        if batch.get("text") is not None:
            found.append(self.model.embed_texts(batch["text"], batch_size=batch_size, progress=False))
        if not found:
            raise ValueError(f"mteb's batch has neither texts nor images, only {', '.join(sorted(batch))}")
        means = torch.stack([z.mean.float() for z in found]).sum(0)
        return torch.nn.functional.normalize(means, dim=1) if len(found) > 1 else means

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of all pairs.

        Args:
            embeddings1: (N, D) or (D,), an array or a tensor.
            embeddings2: (M, D) or (D,).

        Returns:
            (N, M).
        """
        return _make_unit_rows(embeddings1) @ _make_unit_rows(embeddings2).mT

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of embedding i and embedding i.

        Args:
            embeddings1: (N, D) or (D,), an array or a tensor.
            embeddings2: (N, D) or (D,).

        Returns:
            (N,).
        """
        return (_make_unit_rows(embeddings1) * _make_unit_rows(embeddings2)).sum(-1)

    @property
    def mteb_model_meta(self) -> Any:
        """mteb's description of the model; MissingExtraError if mteb is not installed."""
        try:
            models = import_module("mteb.models")
        except ModuleNotFoundError as error:
            raise MissingExtraError("this feature needs mteb. Install it: pip install 'mteb>=2'") from error
        parts = [part for part in re.split(r"[^\w.-]+", self.name) if part.strip(".")]
        return models.ModelMeta(
            loader=MtebEncoder, name="/".join(["prolip", *parts][-2:]),
            revision=self.revision or model_identity(self.model),
            n_parameters=sum(p.numel() for p in self.model.parameters()),
            max_tokens=self.model.config.text.tokenizer.context_length, embed_dim=self.model.config.embed_dim,
            similarity_fn_name="cosine", modalities=["image", "text"], framework=["PyTorch"], release_date=None,
            languages=None, memory_usage_mb=None, license=None, open_weights=None, public_training_code=None,
            public_training_data=None, use_instructions=False, training_datasets=None,
        )  # fmt: skip


def _make_unit_rows(values: Any) -> Tensor:
    """Embeddings (N, D) or (D,) as a float32 tensor (N, D) with rows of unit length."""
    rows = torch.atleast_2d(torch.as_tensor(values).float())
    return torch.nn.functional.normalize(rows, dim=-1)
