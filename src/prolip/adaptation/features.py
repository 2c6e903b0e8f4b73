"""Features of frozen encoders as embedding data sets: one for the images, one for the captions, one for each view.

OUT/features/encoders/image, text    the encoders, as model folders
OUT/features/image, image-view-1 ..  features of images and of their views
OUT/features/text, text-crop-1 ..    features of captions and of their crops
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from prolip.adaptation.config import AdaptConfig
from prolip.choices import Modality
from prolip.data.source import Source
from prolip.data.views import ViewOf, ViewSource, format_view
from prolip.embeddings.config import EmbedConfig
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.embeddings.schema import column_to_tensor
from prolip.files import atomic_write_folder
from prolip.model.config import ModelConfig
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig
from prolip.model.prolip import ProLIP
from prolip.weights.encoders.base import ImageEncoder, TextEncoder
from prolip.weights.encoders.python_object import PythonEncoder, make_image_encoder, make_text_encoder

MAX_VIEWS = 1000
"""More than the views of a seed, so that no two seeds share a view."""
log = logging.getLogger("prolip.adaptation")


@dataclass(frozen=True)
class Encoders:
    """The two encoders of a model."""

    image: ImageEncoder
    text: TextEncoder

    @classmethod
    def from_objects(cls, image: PythonEncoder, text: PythonEncoder) -> Encoders:
        """Encoders that are Python objects, see `PythonEncoder`."""
        return cls(make_image_encoder(image), make_text_encoder(text))

    def get(self, modality: Modality) -> ImageEncoder | TextEncoder:
        """The encoder of a modality."""
        return self.image if modality == "image" else self.text


@dataclass(frozen=True, kw_only=True)
class FeatureDatasets:
    """Features of images and captions; the first data set of each is that of the whole inputs.

    Attributes:
        images: Images, then their views.
        texts: Captions, then their crops.
    """

    images: tuple[EmbeddingDataset, ...]
    texts: tuple[EmbeddingDataset, ...]


def compute_features(
    encoders: Encoders, data: str | Source, out: Path, config: AdaptConfig
) -> FeatureDatasets:
    """Compute the features of images, captions and views, or those that a stopped run didn't compute.

    Args:
        encoders: The frozen encoders.
        data: A path or a source.
        out: Folder of the data sets.
        config: Views, seed, columns.

    Returns:
        The complete data sets.

    Raises:
        ValueError: As `embed`: the folder holds features of other data or encoders.
    """
    return FeatureDatasets(
        images=tuple(_embed_views(encoders, "image", config.image_views, data, out, config)),
        texts=tuple(_embed_views(encoders, "text", config.text_crops, data, out, config)),
    )


def _embed_views(
    encoders: Encoders, modality: Modality, num_views: int, data: str | Source, out: Path, config: AdaptConfig
) -> Iterator[EmbeddingDataset]:
    """Embed the whole inputs of a modality, then each of their views."""
    model = _save_feature_model(encoders, modality, out / "encoders" / modality)
    name = "view" if modality == "image" else "crop"
    embed_config = EmbedConfig(
        captions=config.captions, image=config.image, modality=modality, variances="trace", precision="float16",
        max_bad_fraction=config.max_bad_fraction, device=config.device, engine=config.engine,
        progress=config.progress,
    )  # fmt: skip
    for view in range(num_views + 1):
        folder = out / (modality if view == 0 else f"{modality}-{name}-{view}")
        # an encoder that is a Python object can't be opened by a worker on another machine
        embedder = out / "encoders" / modality if config.engine == "ray" else model
        yield embed(embedder, _make_view(data, modality, view, config.seed), folder, embed_config)


def _make_view(data: str | Source, modality: Modality, view: int, seed: int) -> str | Source:
    """Address or source of a view of the data; 0: the data itself."""
    if view == 0:
        return data
    kind: ViewOf = "part" if modality == "image" else "crops"
    view_seed = MAX_VIEWS * seed + view
    return format_view(kind, view_seed, data) if isinstance(data, str) else ViewSource(data, kind, view_seed)


def _save_feature_model(encoders: Encoders, modality: Modality, folder: Path) -> ProLIP:
    """A model whose "means" are the features of a modality, saved so that workers can open it."""
    model = make_feature_model(encoders, modality)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_folder(folder, model.save_pretrained)
    return model


def make_feature_model(encoders: Encoders, modality: Modality) -> ProLIP:
    """Make a model whose "means" are the features of a modality as they are, without heads.

    Args:
        encoders: The frozen encoders.
        modality: Whose number of features is the dimension.

    Returns:
        The model.
    """
    config = ModelConfig(
        embed_dim=encoders.get(modality).config.dim,
        image=FrozenImageConfig(preprocessing=encoders.image.preprocessing, encoder=encoders.image.config),
        text=FrozenTextConfig(tokenizer=encoders.text.tokenizer.config, encoder=encoders.text.config),
        contrastive_loss="softmax",
    )
    model = ProLIP(config, encoders.text.tokenizer).init_weights(torch.Generator().manual_seed(0))
    return model.set_encoders(encoders.image, encoders.text).eval()


def iter_features(dataset: EmbeddingDataset) -> Iterator[tuple[np.ndarray, torch.Tensor, list[str | None]]]:
    """Iterate over the parts of a data set of features.

    Args:
        dataset: Complete.

    Yields:
        Indices of samples int64 (n,), features float32 (n, F), captions of the n rows.
    """
    for _, table in dataset.iter_parts(columns=["index", "mean", "caption"]):
        yield table["index"].to_numpy(), column_to_tensor(table["mean"]), table["caption"].to_pylist()
