"""Fit of the feature map: standardization, and PCA whose components are scaled halfway to equal variance."""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.model.frozen_tower import CLIP_FEATURES, FeatureMap

MIN_STD = 1e-3
"""Features that vary less than this fraction of the median standard deviation are not blown up."""


@torch.no_grad()
def fit_feature_map(features: Tensor, components: int) -> FeatureMap:
    """Fit a feature map to features.

    Features are standardized and clipped. Of their principal components the first K are kept, each divided by the
    fourth root of its variance: half of the way to whitening, which would raise noise to the level of the signal. At
    the end all are divided by one number, so that their mean square is 1.

    Args:
        features: (N, F), of whole images or captions.
        components: K, at most F.

    Returns:
        The map.

    Raises:
        ValueError: There are fewer than two rows, more components than features, a feature is not finite, or all rows
            are equal.
    """
    count, dim = features.shape
    if count < 2:
        raise ValueError(f"a feature map needs at least 2 rows, not {count}")
    if components > dim:
        raise ValueError(f"components {components} is more than the {dim} features of the encoder")
    if not bool(features.isfinite().all()):
        raise ValueError("features hold NaN or infinite values")
    result = FeatureMap(dim, components)
    x = features.double()
    std = x.std(0)
    if not bool(std.any()):
        raise ValueError(
            f"the features of all {count} inputs are equal: the encoder doesn't tell them apart, or the data are copies"
        )
    floor = MIN_STD * std.median().clamp_min(1e-12)
    result.shift.copy_(x.mean(0))
    result.scale.copy_(1 / std.clamp_min(floor.item()))
    x = ((x - result.shift.double()) * result.scale.double()).clamp(-CLIP_FEATURES, CLIP_FEATURES)
    variances, vectors = torch.linalg.eigh(x.mT @ x / count)
    variances, vectors = variances.flip(0)[:components], vectors.flip(1)[:, :components]
    scaled = vectors / variances.clamp_min(1e-6 * variances[0]).pow(0.25)
    scaled = scaled / (x @ scaled).square().mean().sqrt()
    result.components.copy_(scaled)
    return result
