"""Gaussian: a batch of Gaussians with diagonal covariance, the embedding of an image or a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree

from prolip.tensor_checks import describe_type, require_finite, require_float_tensor, require_in_range

MAX_LOG_VAR = {torch.float32: 80.0, torch.float64: 600.0}
"""Largest log_var of each dtype: sums and a few products of variances must not overflow."""


class HasMeanAndTrace(Protocol):
    """What CSD and match probabilities need: `Gaussian` and `MeanTrace` have it."""

    @property
    def mean(self) -> Tensor: ...  # (N, D)

    @property
    def uncertainty(self) -> Tensor: ...  # (N,)


class GaussianArrays(NamedTuple):
    """The mean and the log-variance of Gaussians as arrays of NumPy, what `Gaussian.numpy` returns."""

    mean: NDArray[np.floating[Any]]  # (..., D)
    log_var: NDArray[np.floating[Any]]  # (..., D)


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian:
    """A batch of Gaussians N(mean, diag(exp(log_var))) in D dimensions.

    The constructor checks nothing, so that a Gaussian survives `tree_map` and full-graph compilation. `check` does;
    measures and `mixture` call it. Losses, which run in the hot loop, don't: it synchronizes a GPU.

    Attributes:
        mean: (..., D), of unit length if a model made it.
        log_var: (..., D), log sigma^2 (never sigma), float32 or float64. A point (zero variance, from a
            deterministic model) has log_var = -inf.

    >>> z = Gaussian(torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, -2.0]]))
    >>> round(z.uncertainty.item(), 4)
    0.5032
    """

    mean: Tensor
    log_var: Tensor

    @classmethod
    def point(cls, mean: Tensor) -> Gaussian:
        """Make Gaussians of zero variance at the means (..., D), as the embeddings of CLIP and SigLIP are."""
        dtype = torch.promote_types(mean.dtype, torch.float32)
        return cls(mean, torch.full_like(mean, -torch.inf, dtype=dtype))

    @classmethod
    def cat(cls, gaussians: Sequence[Gaussian]) -> Gaussian:
        """Concatenate along the first axis: (n1, ..., D), (n2, ..., D) -> (n1 + n2, ..., D)."""
        if any(z.mean.ndim < 2 for z in gaussians):
            raise ValueError("Gaussian.cat concatenates batches; use Gaussian.stack for single Gaussians")
        return cls(*(torch.cat(leaves) for leaves in _collect_leaves(gaussians, "cat")))

    @classmethod
    def stack(cls, gaussians: Sequence[Gaussian]) -> Gaussian:
        """Stack along a new first axis: n of (..., D) -> (n, ..., D)."""
        return cls(*(torch.stack(leaves) for leaves in _collect_leaves(gaussians, "stack")))

    @property
    def var(self) -> Tensor:
        """sigma^2, (..., D)."""
        return self.log_var.exp()

    @property
    def std(self) -> Tensor:
        """sigma, (..., D)."""
        return (0.5 * self.log_var).exp()

    @property
    def uncertainty(self) -> Tensor:
        """Trace of the covariance, sum of sigma^2: (...,)."""
        return self.var.sum(-1)

    @property
    def shape(self) -> torch.Size:
        """(..., D)."""
        return self.mean.shape

    @property
    def dim(self) -> int:
        """D, the number of dimensions of the space."""
        return self.mean.shape[-1]

    @property
    def device(self) -> torch.device:
        """Device of the mean."""
        return self.mean.device

    def __len__(self) -> int:
        if self.mean.ndim < 2:
            raise TypeError(
                "a single Gaussian has no length, and is no tensor: z[None] makes a batch of one; its tensors are "
                "z.mean and z.log_var"
            )
        return self.mean.shape[0]

    def __iter__(self) -> Iterator[Gaussian]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Gaussian:
        """Index the batch axes as a tensor is indexed: z[0], z[mask], z[..., 0]. The last axis, D, is never indexed."""
        index = index if isinstance(index, tuple) else (index,)
        if not any(part is Ellipsis for part in index):
            index = (*index, Ellipsis)
        index = (*index, slice(None))
        return Gaussian(self.mean[index], self.log_var[index])

    def to(self, *args: Any, **kwargs: Any) -> Gaussian:
        """Convert as `Tensor.to`. A dtype below float32 is applied to the mean only: exp() magnifies rounding errors.

        Raises TypeError for a dtype that is not floating-point.
        """
        mean, log_var = self.mean.to(*args, **kwargs), self.log_var.to(*args, **kwargs)
        if not mean.is_floating_point():
            raise TypeError(
                f"a Gaussian can't be converted to {mean.dtype}: pass a floating-point dtype, such as torch.float32"
            )
        if log_var.dtype.itemsize < 4:
            log_var = self.log_var.to(device=mean.device)
        return Gaussian(mean, log_var)

    def detach(self) -> Gaussian:
        """As `Tensor.detach`."""
        return Gaussian(self.mean.detach(), self.log_var.detach())

    def numpy(self) -> GaussianArrays:
        """Convert to arrays of NumPy: detached, on the CPU, sharing memory with the tensors where they are there.

        Returns:
            (mean, log_var), each (..., D). A mean below float32 becomes float32, since NumPy has no bfloat16.
        """
        mean = self.mean.detach().cpu()
        if mean.dtype.itemsize < 4:
            mean = mean.float()
        return GaussianArrays(mean.numpy(), self.log_var.detach().cpu().numpy())

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
        """Refuse np.asarray(z), which would otherwise make an array of objects."""
        raise TypeError(
            "a Gaussian is a mean and a log-variance, not one array: z.mean.numpy() is the array of the means, "
            "z.numpy() the pair (mean, log_var)"
        )

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> NoReturn:
        """Refuse functions of torch, such as torch.stack([z, z]), with advice."""
        name = getattr(func, "__name__", str(func))
        advice = f"use Gaussian.{name}" if name in ("cat", "stack") else "pass z.mean or z.log_var"
        raise TypeError(f"{name} of torch takes tensors, but a Gaussian is a pair of tensors: {advice}")

    def sample(self, generator: torch.Generator | None, count: int | None = None) -> Tensor:
        """Draw by the reparameterization trick: gradients flow to mean and log_var.

        Args:
            generator: On the Gaussian's device; None: torch's global one.
            count: Draws of each Gaussian; None: one, without the axis.

        Returns:
            (..., D), or (count, ..., D).
        """
        shape = self.mean.shape if count is None else (count, *self.mean.shape)
        noise = torch.randn(shape, generator=generator, dtype=self.log_var.dtype, device=self.mean.device)
        return self.mean + self.std * noise

    def mean_trace(self) -> MeanTrace:
        """Mean and trace, all that CSD needs: D + 1 numbers per Gaussian."""
        return MeanTrace(self.mean, self.uncertainty)

    def check_shapes(self, name: str = "the Gaussian") -> Gaussian:
        """Check types, shapes and devices. Reads no data, so that it can run in the hot loop.

        Args:
            name: Name of the Gaussian, for messages.

        Returns:
            The Gaussian itself.

        Raises:
            TypeError, ValueError: The message has the name, and what is wrong.
        """
        for tensor, attribute in ((self.mean, "mean"), (self.log_var, "log_var")):
            require_float_tensor(tensor, f"{name}: {attribute}")
        if self.mean.ndim == 0 or self.mean.shape != self.log_var.shape or self.mean.shape[-1] == 0:
            raise ValueError(
                f"{name}: mean {tuple(self.mean.shape)} and log_var {tuple(self.log_var.shape)} "
                "must both have the shape (..., D), D at least 1"
            )
        if self.mean.device != self.log_var.device:
            raise ValueError(f"{name}: mean is on {self.mean.device}, log_var on {self.log_var.device}")
        if self.log_var.dtype not in MAX_LOG_VAR:
            raise TypeError(f"{name}: log_var is {self.log_var.dtype}; it must be float32 or float64")
        return self

    def check(self, name: str = "the Gaussian") -> Gaussian:
        """Run `check_shapes`, and check that means are finite and log-variances at most `MAX_LOG_VAR`.

        Reads the data (synchronizes a GPU), except while torch.compile traces.

        Args:
            name: Name of the Gaussian, for messages.

        Returns:
            The Gaussian itself.

        Raises:
            TypeError, ValueError: The message has the name, and what is wrong.
        """
        self.check_shapes(name)
        if torch.compiler.is_compiling():
            return self
        limit = MAX_LOG_VAR[self.log_var.dtype]
        require_finite(self.mean, f"{name}: mean")
        require_in_range(
            self.log_var, -torch.inf, limit, f"{name}: log_var", f"at most {limit:g} (-inf is a point)"
        )
        return self

    def __repr__(self) -> str:
        if not isinstance(self.mean, Tensor) or not isinstance(self.log_var, Tensor):
            return f"Gaussian({self.mean!r}, {self.log_var!r})"
        dimensions = " x ".join(str(n) for n in self.mean.shape)
        device = "" if self.mean.device.type == "cpu" else f", {self.mean.device}"
        dtype = str(self.mean.dtype).removeprefix("torch.")
        return f"Gaussian({dimensions}, {dtype}{device}{_format_uncertainty_range(self)})"


@dataclass(frozen=True, eq=False)
class MeanTrace:
    """The part of a Gaussian that CSD needs.

    PPCL needs no more than this of a text, so that D + 1 numbers are sent between ranks instead of 2 D. It has the
    attributes of `Gaussian` that the contrastive losses read: they take either.

    Attributes:
        mean: (..., D).
        uncertainty: (...,), the trace of the covariance.
    """

    mean: Tensor
    uncertainty: Tensor


def _collect_leaves(gaussians: Sequence[Gaussian], method: str) -> tuple[list[Tensor], list[Tensor]]:
    """Lists of all means and of all log-variances, in order; raises ValueError if there are none or if D differs.

    `method` is the name of the calling class method, for messages.
    """
    if not gaussians:
        raise ValueError(f"Gaussian.{method} needs at least one Gaussian")
    if len({z.dim for z in gaussians}) > 1:
        raise ValueError(
            f"Gaussian.{method}: the last dimensions differ, shapes are {[tuple(z.shape) for z in gaussians]}"
        )
    return [z.mean for z in gaussians], [z.log_var for z in gaussians]


def check_gaussian(z: Gaussian, name: str) -> Gaussian:
    """Raise unless z is a Gaussian that `Gaussian.check` accepts.

    Args:
        z: The value to check.
        name: Name of the Gaussian, for messages.

    Returns:
        z.

    Raises:
        TypeError, ValueError: It is no Gaussian, or one that `Gaussian.check` refuses.
    """
    if not isinstance(z, Gaussian):
        raise TypeError(f"{name} must be a Gaussian, not {describe_type(z)}")
    return z.check(name)


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype to compute in: float64 if any input is, else float32 (bfloat16 has too few bits for a logit)."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def _format_uncertainty_range(z: Gaussian) -> str:
    """The last part of a repr, such as ', uncertainty 0.0145 to 0.0599'; '' if the tensors hold no values."""
    if z.log_var.is_meta or z.log_var.numel() == 0 or torch.compiler.is_compiling():
        return ""
    try:
        low, high = (v.item() for v in z.uncertainty.detach().aminmax())
    except RuntimeError:  # fake or functional tensors hold no values
        return ""
    return f", uncertainty {low:.4g}" if low == high else f", uncertainty {low:.4g} to {high:.4g}"


def _register_pytree(cls: type, first: str, second: str) -> None:
    """Make a class of two tensors a pytree node, so that DDP, FSDP and torch.compile see its tensors.

    `first` and `second` are the attributes that hold the tensors, in the order of the constructor's arguments.
    """
    keys = (_pytree.GetAttrKey(first), _pytree.GetAttrKey(second))

    def get_tensors(value: Any) -> tuple[Any, Any]:
        return getattr(value, first), getattr(value, second)

    _pytree.register_pytree_node(
        cls,
        lambda value: (list(get_tensors(value)), None),
        lambda tensors, _: cls(*tensors),
        serialized_type_name=f"prolip.{cls.__name__}",
        flatten_with_keys_fn=lambda value: (list(zip(keys, get_tensors(value), strict=True)), None),
    )


_register_pytree(Gaussian, "mean", "log_var")
_register_pytree(MeanTrace, "mean", "uncertainty")
