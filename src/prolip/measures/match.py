"""Logits of a match between an image and a text, by the loss that the model was trained with."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prolip.choices import RankBy, SimilarityMetric
from prolip.gaussian import HasMeanAndTrace, compute_dtype
from prolip.measures import vmf


class LogitParameters(NamedTuple):
    """What turns a pair into the logit of a match.

    Attributes:
        scale: a of a (1 - CSD/2) + b (PPCL); of a likelihood model e^tau, the concentration of an input of trace 1.
        bias: b; None for a softmax model, which has no match probability.
        gamma: Exponent of the trace in the concentrations of a likelihood model; None: PPCL's logit.
        reads_variances: Whether the logit depends on variances. False: it is a cos + b, because the widths were added
            to a finished model whose matches must stay as they are (docs/frozen-means.md).
    """

    scale: float
    bias: float | None
    gamma: float | None = None
    reads_variances: bool = True

    @property
    def default_rank_by(self) -> RankBy:
        """The order that a model was trained for.

        match for a likelihood model, else CSD, as in the paper; cosine where the logit reads no variances.
        """
        return self.similarity_metric or "match"

    @property
    def similarity_metric(self) -> SimilarityMetric | None:
        """The similarity of which the logit is an affine function; None for a likelihood model."""
        if self.gamma is not None:
            return None
        return "csd" if self.reads_variances else "cosine"

    @property
    def nearest_metric(self) -> SimilarityMetric:
        """How the item nearest to a point is found, which needn't be an embedding: cosine or CSD.

        Cosine where the logit reads no variances, else CSD, also for a likelihood model.
        """
        return self.similarity_metric or "csd"

    def logits(self, images: HasMeanAndTrace, texts: HasMeanAndTrace) -> Tensor:
        """Logits of image i and text i.

        Args:
            images: (N, D).
            texts: (N, D).

        Returns:
            (N,). A softmax model has none of its own: b counts as 0.
        """
        dtype = compute_dtype(images.mean, texts.mean)
        cosine = (images.mean.to(dtype) * texts.mean).sum(-1)
        return self.combine(
            cosine, images.uncertainty.to(dtype), texts.uncertainty.to(dtype), images.mean.shape[-1]
        )

    def logits_matrix(self, images: HasMeanAndTrace, texts: HasMeanAndTrace) -> Tensor:
        """Logits of all pairs.

        Args:
            images: (N, D).
            texts: (M, D).

        Returns:
            (N, M).
        """
        dtype = compute_dtype(images.mean, texts.mean)
        cosine = images.mean.to(dtype) @ texts.mean.to(dtype).mT
        traces = images.uncertainty.to(dtype)[:, None], texts.uncertainty.to(dtype)
        return self.combine(cosine, *traces, images.mean.shape[-1])

    def combine(self, cosine: Tensor, image_trace: Tensor, text_trace: Tensor, dim: int) -> Tensor:
        """Logits from what they depend on. The logit is symmetric: images and texts may change places.

        Args:
            cosine: Products of means of unit length, of any shape.
            image_trace, text_trace: Uncertainties that broadcast with them.
            dim: D.

        Returns:
            Logits, of the broadcast shape.
        """
        bias = self.bias or 0.0
        if self.similarity_metric == "cosine":
            return self.scale * cosine + bias
        if self.gamma is None:
            # of means of unit length, product - traces / 2 is 1 - CSD / 2
            return self.scale * (cosine - 0.5 * (image_trace + text_trace)) + bias
        log_scale = torch.tensor(math.log(self.scale), dtype=cosine.dtype, device=cosine.device)
        image_kappa, text_kappa = (
            vmf.concentration(trace, log_scale, self.gamma) for trace in (image_trace, text_trace)
        )
        return vmf.pmi(cosine, image_kappa, text_kappa, dim) + bias
