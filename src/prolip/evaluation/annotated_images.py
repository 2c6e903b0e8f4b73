"""Embedded images of known ambiguity, with what is known of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from prolip.data.image_annotations import parse_image_annotation
from prolip.data.source import AnnotatedImages, ImageAnnotation, Source
from prolip.embeddings.base_embedder import BaseEmbedder, EncodedImages
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.gaussian import Gaussian


@dataclass(frozen=True, eq=False, kw_only=True)
class AnnotatedEmbeddings:
    """N embedded images of known ambiguity.

    Attributes:
        encoded: All embedded images of the source.
        rows: int64 (N,): rows of those whose ambiguity is known.
        annotations: What is known of each.
    """

    encoded: EncodedImages
    rows: Tensor
    annotations: tuple[ImageAnnotation, ...]

    @cached_property
    def images(self) -> Gaussian:
        """The embeddings, (N, D)."""
        return self.encoded.images[self.rows]

    @property
    def uncertainty(self) -> Tensor:
        """The uncertainties, float64 (N,)."""
        return self.images.uncertainty.double()

    @property
    def metadata(self) -> list[SampleMetadata]:
        """The metadata of each image."""
        return [self.encoded.metadata[row] for row in self.rows.tolist()]

    @cached_property
    def chosen(self) -> Tensor:
        """The images of the correlations, bool (N,): those in no sequence; all if all are in one."""
        free = torch.tensor([one.step is None for one in self.annotations])
        return free if bool(free.any()) else ~free

    @cached_property
    def truth(self) -> Tensor:
        """The true log-ambiguities, float64 (N,)."""
        return torch.tensor([one.log_ambiguity for one in self.annotations], dtype=torch.float64)


def embed_annotated(embedder: BaseEmbedder, source: Source) -> AnnotatedEmbeddings:
    """Embed the images of a source whose ambiguity is known.

    Args:
        embedder: The model, and how to embed with it.
        source: The images; annotations come from an `AnnotatedImages`, or from the json or the columns of a sample
            (`parse_image_annotation`).

    Returns:
        The images that have an annotation.

    Raises:
        ValueError: No image has one.
    """
    encoded = embedder.embed_images(source)
    found = [
        source.image_annotation(index)
        if isinstance(source, AnnotatedImages)
        else parse_image_annotation(sample.extra)
        for index, sample in zip(encoded.indices.tolist(), encoded.metadata, strict=True)
    ]
    rows = [row for row, annotation in enumerate(found) if annotation is not None]
    if not rows:
        raise ValueError(
            f"{source.name}: the ambiguity of no image is known. Each sample needs a .json file with the field "
            "image_log_ambiguity, or a column of this name"
        )
    return AnnotatedEmbeddings(
        encoded=encoded,
        rows=torch.tensor(rows),
        annotations=tuple(annotation for annotation in found if annotation is not None),
    )
