"""Contrastive losses over all pairs of the global batch: PPCL, and the baselines SigLIP, PML, CLIP.

Each takes this rank's images, the texts of all ranks and the `offset` at which this rank's rows begin, and returns
this rank's part: the parts of all ranks add up to the loss of the global batch. Image i matches text offset + i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from prolip.gaussian import Gaussian, HasMeanAndTrace, compute_dtype
from prolip.tensor_checks import forbid_double_backward

CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}
"""Logits in memory at a time, by device type, if no chunk size is given."""
OTHER_CHUNK_ELEMENTS = 2**22
"""The same for other device types, whose memory is unknown."""

MAX_LOGIT_SCALE = math.log(100.0)
"""Upper limit of the logit scale, as in CLIP."""


class LogitScaleBias(nn.Module):
    """The learned scale a = exp(logit_scale) and bias b of a contrastive loss, its temperature.

    A module with two parameters: give `temperature.parameters()` to the optimizer, and call `clamp_` after each step.
    The defaults are PPCL's initial values (PML: 5, 5; CLIP: 1/0.07, 0).

    Args:
        scale: Initial scale of the logits; its logarithm is trained.
        bias: Initial bias of the logits.

    Attributes:
        logit_scale: Scalar, log a.
        logit_bias: Scalar, b.

    >>> [name for name, _ in LogitScaleBias(10.0, -10.0).named_parameters()]
    ['logit_scale', 'logit_bias']
    """

    logit_scale: Tensor
    logit_bias: Tensor

    def __init__(self, scale: float = 10.0, bias: float = -10.0) -> None:
        """Create the parameters; ValueError unless the scale is positive and both are finite."""
        super().__init__()
        if not 0.0 < scale < math.inf or not math.isfinite(bias):
            raise ValueError(
                f"scale must be positive and finite, and bias finite, not scale {scale} and bias {bias}"
            )
        self.logit_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.logit_bias = nn.Parameter(torch.tensor(float(bias)))

    @classmethod
    def from_tensors(cls, logit_scale: Tensor, logit_bias: Tensor) -> LogitScaleBias:
        """Make a temperature of tensors that exist, such as parameters of a model; they are shared, not copied.

        Args:
            logit_scale: Scalar, log a.
            logit_bias: Scalar, b.

        Returns:
            The temperature. `parameters()` lists those of the tensors that are `nn.Parameter`s.
        """
        temperature = cls.__new__(cls)
        nn.Module.__init__(temperature)
        temperature.logit_scale, temperature.logit_bias = logit_scale, logit_bias
        return temperature

    def extra_repr(self) -> str:
        """The values, for repr: "scale 10, bias -10"."""
        if self.logit_scale.is_meta:
            return ""
        return f"scale {self.scale.item():.4g}, bias {self.logit_bias.item():.4g}"

    @property
    def scale(self) -> Tensor:
        """exp(logit_scale)."""
        return self.logit_scale.exp()

    def clamp_(self) -> None:
        """Clamp logit_scale to [0, ln 100] in place, as after every step of training."""
        with torch.no_grad():
            self.logit_scale.clamp_(0.0, MAX_LOGIT_SCALE)


def ppcl(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LogitScaleBias,
    *,
    offset: int = 0,
    chunk: int | None = None,
) -> Tensor:
    """Probabilistic pairwise contrastive loss (Eq. 2): logit_ij = a (mu_i . mu_j - (tr_i + tr_j)/2) + b.

    -sum_ij log sigmoid(y_ij logit_ij) over this rank's images and all texts, divided by the number of texts, which is
    the number of images in the global batch.

    Args:
        images: (n, D), of this rank.
        texts: (m, D), of all ranks.
        temperature: Logit scale and bias.
        offset: Image i matches text offset + i.
        chunk: Texts at a time; None: as many as keep n x chunk logits small. The result doesn't depend on it.

    Returns:
        This rank's part of the loss, a scalar.
    """
    scale, bias = temperature.scale, temperature.logit_bias
    total = _sum_sigmoid_losses(images, texts, lambda z: -0.5 * z.uncertainty, scale, bias, offset, chunk)
    return total / texts.mean.shape[0]


def siglip(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LogitScaleBias,
    *,
    offset: int = 0,
    chunk: int | None = None,
) -> Tensor:
    """SigLIP's sigmoid loss: PPCL without variances.

    Args:
        images: As for `ppcl`.
        texts: As for `ppcl`.
        temperature: As for `ppcl`.
        offset: As for `ppcl`.
        chunk: As for `ppcl`.

    Returns:
        Scalar, as for `ppcl`.
    """
    scale, bias = temperature.scale, temperature.logit_bias
    total = _sum_sigmoid_losses(
        images, texts, lambda z: z.mean.new_zeros(z.mean.shape[0]), scale, bias, offset, chunk
    )
    return total / texts.mean.shape[0]


def pml(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LogitScaleBias,
    *,
    offset: int = 0,
    chunk: int | None = None,
) -> Tensor:
    """PCME++'s probabilistic matching loss: binary cross entropy on -a csd + b, twice the mean over all pairs.

    The same logit as PPCL's with scale 2a and another bias; the reduction and the initial values (a = b = 5) differ.

    Args:
        images: As for `ppcl`.
        texts: As for `ppcl`.
        temperature: a and b.
        offset: As for `ppcl`.
        chunk: As for `ppcl`.

    Returns:
        Scalar, as for `ppcl`.
    """

    def compute_shift(z: HasMeanAndTrace) -> Tensor:
        """-(|mean|^2 + trace)/2 of each row, (rows,): with 2a as the scale, the logit is -a csd + b."""
        mean, uncertainty = to_compute_dtype(z.mean, z.uncertainty)
        return -0.5 * (mean.square().sum(-1) + uncertainty)

    scale, bias = 2.0 * temperature.scale, temperature.logit_bias
    total = _sum_sigmoid_losses(images, texts, compute_shift, scale, bias, offset, chunk)
    return 2.0 * total / texts.mean.shape[0] ** 2


def clip(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    temperature: LogitScaleBias,
    *,
    offset: int = 0,
    rows: int | None = None,
) -> Tensor:
    """CLIP's softmax loss on the means: the mean of its two directions, image to text and text to image.

    Args:
        images: (m, D), of all ranks: a softmax over images needs all of them.
        texts: (m, D), of all ranks.
        temperature: The logit scale is read, the bias is not.
        offset: First row of this rank.
        rows: Rows of this rank; None: all from `offset` on.

    Returns:
        This rank's part of the loss, a scalar: the sum over its rows, divided by m.
    """
    _check_shapes(images, texts)
    num_texts = texts.mean.shape[0]
    own_rows = slice(offset, num_texts if rows is None else offset + rows)
    if images.mean.shape[0] != num_texts or not 0 <= own_rows.start <= own_rows.stop <= num_texts:
        raise ValueError(
            f"clip needs as many images as texts, of all ranks, and this rank's rows {own_rows.start} to "
            f"{own_rows.stop} among them: there are {images.mean.shape[0]} images and {num_texts} texts"
        )
    target = torch.arange(own_rows.start, own_rows.stop, device=texts.mean.device)  # row i matches column i
    with torch.autocast(texts.mean.device.type, enabled=False):
        image_means, text_means, scale = to_compute_dtype(images.mean, texts.mean, temperature.scale)
        image_means = image_means * scale
        to_text = cross_entropy(image_means[own_rows] @ text_means.mT, target, reduction="sum")
        to_image = cross_entropy(text_means[own_rows] @ image_means.mT, target, reduction="sum")
    return 0.5 * (to_text + to_image) / num_texts


def to_compute_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Convert tensors to one dtype: float64 if any of them has it, else float32."""
    return tuple(t.to(compute_dtype(*tensors)) for t in tensors)


def _check_shapes(images: HasMeanAndTrace, texts: HasMeanAndTrace) -> None:
    """Raise ValueError unless means are (rows, D) with the same D, uncertainties (rows,), and there is a text.

    Reads no data and computes nothing: even the uncertainty of a Gaussian is a sum over D.
    """
    for z, name in ((images, "images"), (texts, "texts")):
        trace_shape = z.check_shapes(name).shape[:-1] if isinstance(z, Gaussian) else z.uncertainty.shape
        if z.mean.ndim != 2 or trace_shape != z.mean.shape[:1]:
            shapes = f"mean {tuple(z.mean.shape)} and uncertainty {tuple(trace_shape)}"
            raise ValueError(f"{name}: {shapes} must be (rows, D) and (rows,)")
    if images.mean.shape[1] != texts.mean.shape[1]:
        raise ValueError(f"images have {images.mean.shape[1]} dimensions, texts {texts.mean.shape[1]}")
    if texts.mean.shape[0] == 0:
        raise ValueError("texts are empty: the loss of an empty batch is undefined")


def check_pair_shapes(
    images: HasMeanAndTrace, texts: HasMeanAndTrace, offset: int, chunk: int | None
) -> None:
    """Raise ValueError unless shapes fit, every image has its text from `offset` on, and the chunk is positive."""
    _check_shapes(images, texts)
    n, m = images.mean.shape[0], texts.mean.shape[0]
    if not 0 <= offset <= m - n:
        raise ValueError(
            f"{n} images from offset {offset} on need texts {offset} to {offset + n}, but there are {m}"
        )
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, not {chunk}")


def choose_chunk(device: torch.device, num_images: int) -> int:
    """Texts at a time, so that a chunk of logits stays small in the device's memory."""
    return max(1, CHUNK_ELEMENTS.get(device.type, OTHER_CHUNK_ELEMENTS) // max(1, num_images))


def _sum_sigmoid_losses(
    images: HasMeanAndTrace,
    texts: HasMeanAndTrace,
    compute_shift: Callable[[HasMeanAndTrace], Tensor],
    scale: Tensor,
    bias: Tensor,
    offset: int,
    chunk: int | None,
) -> Tensor:
    """-sum_ij log sigmoid(y_ij logit_ij), logit_ij = scale (mean_i . mean_j + shift_i + shift_j) + bias: a scalar.

    As `sum_sigmoid_losses`. `compute_shift` maps images or texts to their shifts (rows,); in PPCL a shift is minus half
    the uncertainty. Raises ValueError for wrong shapes, offset or chunk.
    """
    check_pair_shapes(images, texts, offset, chunk)
    with torch.autocast(images.mean.device.type, enabled=False):
        return sum_sigmoid_losses(
            images.mean, compute_shift(images), texts.mean, compute_shift(texts), scale, bias, offset, chunk
        )


def sum_sigmoid_losses(
    image_means: Tensor,
    image_shift: Tensor,
    text_means: Tensor,
    text_shift: Tensor,
    scale: Tensor,
    bias: Tensor,
    offset: int,
    chunk: int | None,
) -> Tensor:
    """-sum_ij log sigmoid(y_ij logit_ij), logit_ij = scale (mean_i . mean_j + shift_i + shift_j) + bias.

    y_ij is 1 for j = offset + i and -1 elsewhere. To be called without autocast.

    Args:
        image_means, image_shift: (n, D) and (n,).
        text_means, text_shift: (m, D) and (m,).
        scale, bias: Of the logits.
        offset: Image i matches text offset + i.
        chunk: Texts at a time; None: as many as keep n x chunk logits small.

    Returns:
        A scalar.
    """
    if chunk is None:
        chunk = choose_chunk(image_means.device, image_means.shape[0])
    scale, bias = scale.reshape(()), bias.reshape(())  # foreign checkpoints may hold them as (1,)
    tensors = to_compute_dtype(image_means, image_shift, text_means, text_shift, scale, bias)
    with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    total: Tensor = _SigmoidLossSum.apply(*tensors, PairOptions(offset, chunk, with_grad))
    return total


class PairOptions(NamedTuple):
    """What `_SigmoidLossSum` needs to know besides tensors.

    offset:    image i matches text offset + i.
    chunk:     texts at a time.
    with_grad: whether to compute the gradients in the same pass.
    """

    offset: int
    chunk: int
    with_grad: bool


class _SigmoidLossSum(torch.autograd.Function):
    """Sum of the sigmoid losses of all pairs, a chunk of texts at a time, with its gradient taken in the same pass.

    d loss/d logit = sigmoid(logit) - [matched] is known as soon as the logit is, so that no logit is stored or
    computed twice: three matrix products in all, and memory for one chunk.
    """

    @staticmethod
    def forward(
        ctx: Any, image_means: Tensor, image_shift: Tensor, text_means: Tensor, text_shift: Tensor,
        scale: Tensor, bias: Tensor, options: PairOptions,
    ) -> Tensor:  # fmt: skip
        """Sum the losses of all pairs of n images and m texts; returns a scalar.

        Args:
            ctx: Gets the gradients of the six tensors, if `options.with_grad`.
            image_means, image_shift: (n, D) and (n,).
            text_means, text_shift: (m, D) and (m,).
            scale, bias: Scalars of the logits.
            options: Which pairs match, how many texts at a time, and whether to take the gradients.
        """
        offset, chunk, with_grad = options
        total = scale.new_zeros(())
        # residual_ij = d loss/d logit_ij; its sums below, times the scale, are the gradients of means and shifts
        residual_images = torch.zeros_like(image_means)  # sum_j residual_ij mean_j
        residual_rows = torch.zeros_like(image_shift)  # sum_j residual_ij
        residual_texts = torch.empty_like(text_means)  # sum_i residual_ij mean_i
        residual_columns = torch.empty_like(text_shift)  # sum_i residual_ij
        for start in range(0, text_means.shape[0], chunk):
            part = slice(start, start + chunk)
            logits = torch.addmm(text_shift[part] + image_shift[:, None], image_means, text_means[part].mT)
            logits = logits.mul_(scale).add_(bias)
            matched = logits.diagonal(offset - start)  # the pairs (i, offset + i) in this chunk, as a view
            matched.neg_()  # -y logit: the sign differs on matched pairs only, so flip, sum, flip back
            # above 40, softplus(x) is x even in float64 (torch's default of 20 is enough for float32 only)
            total += softplus(logits, threshold=40).sum()
            matched.neg_()
            if with_grad:
                residual = logits.sigmoid_()
                matched.sub_(1.0)  # `matched` is a view of the residuals now
                residual_images.addmm_(residual, text_means[part])
                residual_rows += residual.sum(1)
                torch.mm(residual.mT, image_means, out=residual_texts[part])
                residual_columns[part] = residual.sum(0)
        if with_grad:
            grad_scale = (
                (residual_images * image_means).sum()
                + residual_rows @ image_shift
                + residual_columns @ text_shift
            )
            ctx.save_for_backward(
                residual_images.mul_(scale), residual_rows * scale,
                residual_texts.mul_(scale), residual_columns * scale,
                grad_scale, residual_rows.sum(),
            )  # fmt: skip
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients that `forward` saved by the scalar `grad`; None for the options."""
        forbid_double_backward("the pairwise losses have first derivatives only")
        return (*(saved * grad for saved in ctx.saved_tensors), None)
