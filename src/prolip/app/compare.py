"""The tab Compare: uncertainties of images and captions, all pairs by every measure, and the plane that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.app.inputs import MAX_IMAGES, MAX_TEXTS, InputError, NamedImage, check_texts
from prolip.app.workspace import ModelWorkspace
from prolip.evaluation.plane import ProjectedGaussian, fit_plane
from prolip.gaussian import Gaussian
from prolip.measures.public import containment_matrix, csd_matrix, inclusion_matrix, log_containment_matrix

Matrix = tuple[tuple[float, ...], ...]
"""(N, M): a row per image, a column per caption."""


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """Images and captions, compared."""

    images: tuple[str, ...]
    """Names of the N images."""
    captions: tuple[str, ...]
    """The M captions."""
    image_uncertainty: tuple[float, ...]
    """Trace of the covariance of each image."""
    text_uncertainty: tuple[float, ...]
    """Trace of the covariance of each caption."""
    match: Matrix | None
    """Match probability; None: the model has none, or there is no pair."""
    csd: Matrix | None
    """Expected squared distance; None if there is no pair."""
    inclusion: Matrix | None
    """H(image in caption); None for a model without uncertainty."""
    containment: Matrix | None
    """Containment of the image in the caption; None for a model without uncertainty."""
    log_containment: Matrix | None
    """Its logarithm, which doesn't vanish."""
    images_in_plane: tuple[ProjectedGaussian, ...]
    """The images in a plane, PCA of samples."""
    captions_in_plane: tuple[ProjectedGaussian, ...]
    """The captions in the same plane."""
    explained_variance_ratio: tuple[float, ...]
    """Fraction of the variance along each direction of the plane."""
    unknown_words: tuple[str, ...]
    """Words of the captions that the model never met in training."""


def compare(
    workspace: ModelWorkspace, images: Sequence[NamedImage], captions: Sequence[str]
) -> CompareResult:
    """Compare images with captions.

    Args:
        workspace: The model.
        images: At most MAX_IMAGES.
        captions: At most MAX_TEXTS.

    Returns:
        All numbers that the tab shows.

    Raises:
        InputError: There is nothing to compare, or too much.
    """
    captions = check_texts(captions, "caption", MAX_TEXTS)
    if len(images) > MAX_IMAGES:
        raise InputError(f"There are {len(images)} images. At most {MAX_IMAGES} are possible.")
    if not images and not captions:
        raise InputError("Drop in an image, or type a caption.")
    z_images = workspace.embed_images([one.image for one in images]) if images else None
    z_texts = workspace.embed_texts(captions) if captions else None
    present = [z for z in (z_images, z_texts) if z is not None]
    plane = fit_plane(present, torch.Generator().manual_seed(0))
    return CompareResult(
        images=tuple(one.name for one in images),
        captions=tuple(captions),
        image_uncertainty=() if z_images is None else tuple(z_images.uncertainty.tolist()),
        text_uncertainty=() if z_texts is None else tuple(z_texts.uncertainty.tolist()),
        **_compare_pairs(workspace, z_images, z_texts),
        images_in_plane=() if z_images is None else tuple(plane.project_gaussians(z_images)),
        captions_in_plane=() if z_texts is None else tuple(plane.project_gaussians(z_texts)),
        explained_variance_ratio=tuple(plane.explained_variance_ratio.tolist()),
        unknown_words=tuple(workspace.find_unknown_words(captions)),
    )


def _compare_pairs(
    workspace: ModelWorkspace, images: Gaussian | None, texts: Gaussian | None
) -> dict[str, Matrix | None]:
    """Each measure of all pairs, by the name of its field; None where there is none."""
    measures: dict[str, Tensor | None] = dict.fromkeys(
        ("match", "csd", "inclusion", "containment", "log_containment")
    )
    if images is not None and texts is not None:
        measures["csd"] = csd_matrix(images, texts)
        if workspace.model.logit_bias is not None:
            measures["match"] = workspace.model.match_probability_matrix(images, texts)
        if bool(images.uncertainty.any() and texts.uncertainty.any()):
            measures["inclusion"] = inclusion_matrix(images, texts)
            measures["containment"] = containment_matrix(images, texts)
            measures["log_containment"] = log_containment_matrix(images, texts)
    return {name: _to_matrix(values) for name, values in measures.items()}


def _to_matrix(values: Tensor | None) -> Matrix | None:
    """A tensor (N, M) as tuples."""
    return None if values is None else tuple(tuple(row) for row in values.tolist())
