"""Gaussians projected onto a plane by PCA of samples; the images nearest to one of them, with captions.

As in the paper's figure 1 and appendix A.2. The projection is linear, so that a Gaussian stays a Gaussian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.evaluation.captions import EmbeddedPairs
from prolip.gaussian import Gaussian, check_gaussian
from prolip.measures.public import csd_matrix

NUM_SAMPLES = 10
"""Samples of each Gaussian that the PCA is fitted to."""


@dataclass(frozen=True, kw_only=True)
class ProjectedGaussian:
    """A Gaussian in the plane."""

    mean: tuple[float, ...]
    """(x, y)."""
    covariance: tuple[float, ...]
    """(xx, xy, yy)."""


@dataclass(frozen=True, kw_only=True)
class ProjectedImage(ProjectedGaussian):
    """An image in the plane."""

    index: int
    """Index of the image in its source."""


@dataclass(frozen=True, kw_only=True)
class ProjectedCaption(ProjectedGaussian):
    """A caption in the plane."""

    caption: str
    """The caption."""
    image: int
    """Position of its image among the projected images."""


@dataclass(frozen=True, kw_only=True)
class ProjectedPairs:
    """Similar images and their captions in a plane, which is fitted to samples of all of them."""

    images: tuple[ProjectedImage, ...]
    """The first image of the data and those nearest to it, nearest first."""
    captions: tuple[ProjectedCaption, ...]
    """The first and the last caption of each image."""
    explained_variance_ratio: tuple[float, ...]
    """Fraction of the variance along each of the two directions."""

    def captions_of(self, position: int) -> tuple[str, ...]:
        """The captions of the image at a position."""
        return tuple(caption.caption for caption in self.captions if caption.image == position)


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane in embedding space.

    center:     (D,).
    directions: (2, D), orthonormal.
    explained_variance_ratio: (2,), the fraction of the variance along each direction.
    """

    center: Tensor
    directions: Tensor
    explained_variance_ratio: Tensor

    def project(self, vectors: Tensor) -> Tensor:
        """Coordinates (..., 2) of vectors (..., D) in the plane."""
        return (vectors.double() - self.center) @ self.directions.mT

    def project_covariances(self, z: Gaussian) -> Tensor:
        """Covariances P diag(sigma^2) P^T of Gaussians (N, D) in the plane: (N, 2, 2)."""
        first, second = self.directions
        products = torch.stack([first * first, first * second, first * second, second * second])
        return (z.var.double() @ products.mT).reshape(-1, 2, 2)

    def project_gaussians(self, z: Gaussian) -> list[ProjectedGaussian]:
        """Gaussians (N, D) in the plane, as plain numbers."""
        means = self.project(z.mean).tolist()
        covariances = self.project_covariances(z).flatten(1)[:, [0, 1, 3]].tolist()
        return [
            ProjectedGaussian(mean=tuple(mean), covariance=tuple(covariance))
            for mean, covariance in zip(means, covariances, strict=True)
        ]


def fit_plane(
    gaussians: Sequence[Gaussian], generator: torch.Generator, num_samples: int = NUM_SAMPLES
) -> Plane:
    """Fit a plane by PCA of samples from Gaussians.

    The sign of a direction makes its largest component positive. If the samples have fewer than two directions of
    variance, orthonormal directions complete the plane.

    Args:
        gaussians: Each (N, D), D at least 2.
        generator: Generator of the samples.
        num_samples: Samples of each Gaussian.

    Returns:
        The plane, in float64.

    Raises:
        ValueError: There is no Gaussian, or D is below 2.
    """
    if (
        not gaussians
        or sum(len(check_gaussian(z, "gaussians")) for z in gaussians) == 0
        or gaussians[0].dim < 2
    ):
        raise ValueError(
            "a plane needs at least one Gaussian with D >= 2 dimensions; these are empty or have D < 2"
        )
    samples = torch.cat([z.sample(generator, num_samples).double().reshape(-1, z.dim) for z in gaussians])
    center = samples.mean(0)
    centered = samples - center
    # with full matrices there are D directions, however few samples there are
    _, lengths, directions = torch.linalg.svd(centered, full_matrices=len(centered) < 2)
    directions = directions[:2]
    largest_components = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    total = centered.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    ratios = torch.zeros(2, dtype=torch.float64)
    ratios[: len(lengths[:2])] = lengths[:2].square() / total  # a single sample has one singular value
    return Plane(center, directions * largest_components.sign(), ratios)


def choose_similar_images(
    pairs: EmbeddedPairs, query_row: int = 0, num_images: int = 10
) -> tuple[Tensor, Tensor]:
    """Choose the images nearest to a query image, and two captions of each.

    Args:
        pairs: Embeddings of images and captions.
        query_row: Row of the query image in `pairs.images`.
        num_images: Number of images, the query included.

    Returns:
        Rows of the images in `pairs.images`, nearest first by CSD, int64 (num_images,); and rows in `pairs.texts` of
        the first and the last caption of each (of a chain: the most general and the most specific), int64. An image
        with a single caption has one row, without captions none.

    Raises:
        ValueError: There is no such image.
    """
    if not 0 <= query_row < len(pairs.images):
        raise ValueError(
            f"query_row must be from 0 to {len(pairs.images) - 1}, a row of the {len(pairs.images)} images, "
            f"not {query_row}"
        )
    distance = csd_matrix(pairs.images[query_row : query_row + 1], pairs.images)[0]
    distance[query_row] = -1.0  # the query itself comes first, also before an equal image
    images = distance.argsort(stable=True)[:num_images]
    captions: list[int] = []
    for image in images.tolist():
        own_captions = (pairs.captions.image_index == image).nonzero()[:, 0].tolist()
        captions += sorted({own_captions[0], own_captions[-1]}) if own_captions else []
    return images, torch.tensor(captions, dtype=torch.int64)


def project_similar_images(
    pairs: EmbeddedPairs, *, query_row: int = 0, num_images: int = 10, seed: int = 0
) -> ProjectedPairs:
    """Project the images nearest to a query image, and two captions of each, onto a plane.

    Args:
        pairs: Embeddings of images and captions.
        query_row: Row of the query image in `pairs.images`.
        num_images: Number of images, the query included.
        seed: Seed of the samples that the plane is fitted to.

    Returns:
        The images and captions in the plane.
    """
    image_rows, caption_rows = choose_similar_images(pairs, query_row, num_images)
    images, texts = pairs.images[image_rows], pairs.texts[caption_rows]
    plane = fit_plane([images, texts], torch.Generator().manual_seed(seed))
    # row of an image -> its position in the result
    positions = {row: position for position, row in enumerate(image_rows.tolist())}
    projected_images = tuple(
        ProjectedImage(index=int(pairs.indices[row]), mean=z.mean, covariance=z.covariance)
        for row, z in zip(image_rows, plane.project_gaussians(images), strict=True)
    )
    projected_captions = tuple(
        ProjectedCaption(
            caption=pairs.captions.texts[row],
            image=positions[int(pairs.captions.image_index[row])],
            mean=z.mean,
            covariance=z.covariance,
        )
        for row, z in zip(caption_rows.tolist(), plane.project_gaussians(texts), strict=True)
    )
    ratio = tuple(plane.explained_variance_ratio.tolist())
    return ProjectedPairs(
        images=projected_images, captions=projected_captions, explained_variance_ratio=ratio
    )
