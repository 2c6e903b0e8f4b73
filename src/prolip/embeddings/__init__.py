"""Embedding of data sets into Gaussians, and their storage."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.embeddings.base_embedder import BaseEmbedder as BaseEmbedder
    from prolip.embeddings.base_embedder import EncodedImages as EncodedImages
    from prolip.embeddings.base_embedder import ImageTransform as ImageTransform
    from prolip.embeddings.base_embedder import LogitParameters as LogitParameters
    from prolip.embeddings.cache import EmbeddingCache as EmbeddingCache
    from prolip.embeddings.config import EmbedConfig as EmbedConfig
    from prolip.embeddings.dataset import EmbeddingDataset as EmbeddingDataset
    from prolip.embeddings.embedder import Embedder as Embedder
    from prolip.embeddings.embedder import encode_images as encode_images
    from prolip.embeddings.embedder import encode_texts as encode_texts
    from prolip.embeddings.embedder_config import EmbedderConfig as EmbedderConfig
    from prolip.embeddings.precomputed_embedder import PrecomputedEmbedder as PrecomputedEmbedder
    from prolip.embeddings.precomputed_embedder import open_embedder as open_embedder
    from prolip.embeddings.schema import read_gaussians as read_gaussians
    from prolip.embeddings.schema import read_mean_traces as read_mean_traces
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "base_embedder": ["BaseEmbedder", "EncodedImages", "ImageTransform", "LogitParameters"],
            "cache": ["EmbeddingCache"],
            "config": ["EmbedConfig"],
            "dataset": ["EmbeddingDataset"],
            "embedder": ["Embedder", "encode_images", "encode_texts"],
            "embedder_config": ["EmbedderConfig"],
            "precomputed_embedder": ["PrecomputedEmbedder", "open_embedder"],
            "schema": ["read_gaussians", "read_mean_traces"],
        },
    )
