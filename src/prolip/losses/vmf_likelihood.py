"""Likelihoods that teach uncertainty from pairs alone (ours): vMF pairs, one-sided vMF pairs, the NLL of own pairs.

A wide density can't be high anywhere: so the width that a likelihood learns is the ambiguity of the input, without
masked texts and without a lexicon (docs/likelihood.md). The conventions are those of `contrastive`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from prolip.choices import Modality
from prolip.gaussian import HasMeanAndTrace, compute_dtype
from prolip.losses.contrastive import (
    LogitScaleBias,
    PairOptions,
    check_pair_shapes,
    choose_chunk,
    sum_sigmoid_losses,
    to_compute_dtype,
)
from prolip.measures.vmf import compute_log_partition, compute_resultant, concentration, log_partition
from prolip.tensor_checks import forbid_double_backward

GAMMA = 4.0
"""Exponent of the trace in kappa = e^tau tr^-gamma: with 4, a model can tell ambiguities apart by small changes of its
log-variances (docs/likelihood.md)."""
ONE_SIDED_GAMMA = 2.0
"""The same for the one-sided likelihood, whose widths then vary about as much as those of the two-sided one."""
CHUNK_DIVISOR = 16
"""How much smaller chunks are than PPCL's: a chunk has about ten intermediate results, which should stay in cache."""


class LikelihoodTemperature(LogitScaleBias):
    """tau = logit_scale and the bias b of the likelihood: kappa = e^tau tr^-gamma, logit = PMI + b.

    Args:
        scale: e^tau, the concentration of an input of trace 1.
        bias: b; -ln(batch size) for pairs in a batch.
        gamma: Exponent of the trace, a constant.
    """

    gamma: float

    def __init__(self, scale: float = 1.0, bias: float = -10.0, gamma: float = GAMMA) -> None:
        super().__init__(scale, bias)
        self.gamma = gamma

    @classmethod
    def from_model(cls, logit_scale: Tensor, logit_bias: Tensor, gamma: float) -> LikelihoodTemperature:
        """Make a temperature of tensors that exist; they are shared, not copied."""
        temperature = cls.from_tensors(logit_scale, logit_bias)
        assert isinstance(temperature, LikelihoodTemperature)
        temperature.gamma = gamma
        return temperature

    def clamp_(self) -> None:
        """Do nothing: kappa itself is limited (`measures.vmf.MAX_KAPPA`)."""

    def concentration(self, z: HasMeanAndTrace) -> Tensor:
        """kappa of each row, (rows,)."""
        return concentration(z.uncertainty, self.logit_scale, self.gamma)


def likelihood(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LikelihoodTemperature,
    *,
    offset: int = 0,
    chunk: int | None = None,
) -> Tensor:
    """Pairwise sigmoid loss on the PMI of two von Mises-Fisher posteriors: logit = F(r) - F(k_i) - F(k_j) + b.

    k = e^tau tr^-gamma is the concentration of an input and r_ij = |k_i mu_i + k_j mu_j| (`measures.vmf`). Needs of
    each text only its mean and trace, D + 1 numbers, and one matrix product as PPCL does.

    Args:
        images: (n, D), of this rank.
        texts: (m, D), of all ranks.
        temperature: tau, b and gamma.
        offset: Image i matches text offset + i.
        chunk: Texts at a time; None: as many as keep n x chunk logits small. The result doesn't depend on it.

    Returns:
        This rank's part of the loss, a scalar.
    """
    check_pair_shapes(images, texts, offset, chunk)
    num_images, num_texts, dim = images.mean.shape[0], texts.mean.shape[0], images.mean.shape[1]
    if chunk is None:
        chunk = max(1, choose_chunk(images.mean.device, num_images) // CHUNK_DIVISOR)
    with torch.autocast(images.mean.device.type, enabled=False):
        image_means, text_means, image_kappa, text_kappa, bias = to_compute_dtype(
            images.mean,
            texts.mean,
            temperature.concentration(images),
            temperature.concentration(texts),
            temperature.logit_bias.reshape(()),
        )
        tensors = (
            image_means, image_kappa, -log_partition(image_kappa, dim),
            text_means, text_kappa, -log_partition(text_kappa, dim) + bias,
        )  # fmt: skip
        with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        total: Tensor = _PmiLossSum.apply(*tensors, PairOptions(offset, chunk, with_grad))
    return total / num_texts


def one_sided(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LikelihoodTemperature,
    *,
    densities: Modality,
    offset: int = 0,
    chunk: int | None = None,
) -> Tensor:
    """Pairwise sigmoid loss on the log-density of the means of one modality under the posteriors of the other.

    logit_ij = kappa_j mu_i . mu_j - F(kappa_j) + b with the densities of texts, and with kappa_i with those of images:
    the limit of `likelihood` where one side knows its concept exactly. It is linear in the mean of the other side, so
    that it costs what PPCL does.

    Args:
        images: (n, D), of this rank.
        texts: (m, D), of all ranks.
        temperature: tau, b and gamma of this direction.
        densities: Whose widths are read; the other modality's means are points.
        offset: Image i matches text offset + i.
        chunk: Texts at a time; None: as many as keep n x chunk logits small. The result doesn't depend on it.

    Returns:
        This rank's part of the loss, a scalar.
    """
    check_pair_shapes(images, texts, offset, chunk)
    dim = images.mean.shape[1]
    with torch.autocast(images.mean.device.type, enabled=False):
        image_means, text_means, kappa, bias = to_compute_dtype(
            images.mean,
            texts.mean,
            temperature.concentration(texts if densities == "text" else images),
            temperature.logit_bias,
        )
        none, shift = image_means.new_zeros(()), -log_partition(kappa, dim)
        if densities == "text":
            image_shift, text_shift = none.expand(len(image_means)), shift
            text_means = kappa[:, None] * text_means
        else:
            image_shift, text_shift = shift, none.expand(len(text_means))
            image_means = kappa[:, None] * image_means
        total = sum_sigmoid_losses(
            image_means, image_shift, text_means, text_shift, torch.ones_like(bias), bias, offset, chunk
        )
    return total / texts.mean.shape[0]


def nll(
    points: HasMeanAndTrace,
    densities: HasMeanAndTrace,
    temperature: LogitScaleBias,
    *,
    count: int | None = None,
) -> Tensor:
    """Negative log-likelihood of a mean under the isotropic Gaussian of its own partner, per dimension, means detached.

    (1/2) (|mu_p - mu_d|^2 / (e^tau tr_d) + ln(e^tau tr_d / D)): the variance per dimension is e^tau tr / D. It moves
    only widths, so that it can accompany any contrastive loss.

    Args:
        points: (n, D), whose means are the points.
        densities: (n, D), paired row by row with the points.
        temperature: logit_scale is tau; the bias is not read.
        count: Pairs in the global batch; None: n.

    Returns:
        This rank's part of the loss, a scalar.
    """
    if points.mean.shape != densities.mean.shape:
        raise ValueError(
            f"points {tuple(points.mean.shape)} and densities {tuple(densities.mean.shape)} must pair row by row"
        )
    dtype = compute_dtype(points.mean, densities.mean)
    squared = (points.mean.detach().to(dtype) - densities.mean.detach().to(dtype)).square().sum(-1)
    log_trace = densities.uncertainty.to(dtype).log() + temperature.logit_scale
    terms = 0.5 * (squared * torch.exp(-log_trace) + log_trace - torch.tensor(points.mean.shape[1]).log())
    return terms.sum() / max(1, len(terms) if count is None else count)


class _PmiLossSum(torch.autograd.Function):
    """Sum of sigmoid losses of all pairs on F(r_ij) + shift_i + shift_j, a chunk of texts at a time, with gradients.

    As `contrastive._SigmoidLossSum`, one matrix product for the logits and two for the gradients; F and its derivative
    are computed in one pass over a chunk.
    """

    @staticmethod
    def forward(
        ctx: Any, image_means: Tensor, image_kappa: Tensor, image_shift: Tensor,
        text_means: Tensor, text_kappa: Tensor, text_shift: Tensor, options: PairOptions,
    ) -> Tensor:  # fmt: skip
        """Sum the losses of n images and m texts: a scalar.

        Args:
            ctx: Gets the gradients of the six tensors, if `options.with_grad`.
            image_means, image_kappa, image_shift: (n, D), (n,), (n,); the shift is -F(kappa).
            text_means, text_kappa, text_shift: (m, D), (m,), (m,); the shift is -F(kappa) + b.
            options: Which pairs match, how many texts at a time, whether to take gradients.
        """
        offset, chunk, with_grad = options
        dim = image_means.shape[1]
        total = image_means.new_zeros(())
        gradients = [
            torch.zeros_like(t)
            for t in (image_means, image_kappa, image_shift, text_means, text_kappa, text_shift)
        ]
        grad_images, grad_image_kappa, residual_rows, grad_texts, grad_text_kappa, residual_columns = (
            gradients
        )
        for start in range(0, text_means.shape[0], chunk):
            part = slice(start, start + chunk)
            cosine = image_means @ text_means[part].mT
            resultant = compute_resultant(cosine, image_kappa[:, None], text_kappa[part])
            value, slope = compute_log_partition(resultant, dim)
            logits = value.add_(image_shift[:, None]).add_(text_shift[part])
            matched = logits.diagonal(offset - start)
            matched.neg_()  # flipped and flipped back, as in PPCL
            total += softplus(logits, threshold=40).sum()
            matched.neg_()
            if not with_grad:
                continue
            residual = logits.sigmoid_()
            matched.sub_(1.0)
            residual_rows += residual.sum(1)
            residual_columns[part] = residual.sum(0)
            # dr/dcosine = k_i k_j / r, dr/dk_i = (k_i + k_j cosine) / r
            weight = residual.mul_(slope).div_(resultant)
            grad_image_kappa += weight.sum(1) * image_kappa
            grad_text_kappa[part] = weight.sum(0) * text_kappa[part]
            by_cosine = cosine.mul_(weight)
            grad_image_kappa += by_cosine @ text_kappa[part]
            grad_text_kappa[part] += by_cosine.mT @ image_kappa
            weight = weight.mul_(image_kappa[:, None]).mul_(text_kappa[part])
            grad_images.addmm_(weight, text_means[part])
            grad_texts[part] = weight.mT @ image_means
        if with_grad:
            ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients that `forward` saved by the scalar `grad`; None for the options."""
        forbid_double_backward("the pairwise losses have first derivatives only")
        return (*(saved * grad for saved in ctx.saved_tensors), None)
