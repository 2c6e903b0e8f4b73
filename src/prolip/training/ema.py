"""Exponential moving average of the weights, which can temporarily replace them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class ModelEma:
    """ema = decay * ema + (1 - decay) * weight for each trained parameter, initialized with the weights.

    Frozen parameters equal their average, so they aren't stored. Sharded parameters have sharded averages.

    Args:
        module: After `parallelize`.
        decay: Between 0 and 1.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module = module
        self._decay = decay
        # Keep these parameter objects: after a forward pass FSDP may leave gathered weights in the module instead.
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._averages = {name: p.detach().clone() for name, p in self._parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The averages by parameter name. They are not copies: a checkpoint is loaded by writing to them."""
        return dict(self._averages)

    @torch.no_grad()
    def update(self, nonfinite: Tensor | None = None) -> None:
        """Update the averages after an optimizer step.

        Args:
            nonfinite: Scalar on the weights' device; 1 if the step was skipped: then the averages stay the same. It is
                multiplied in rather than tested, so that nothing waits for the GPU.
        """
        averages, parameters = _to_local(self._averages.values()), _to_local(self._parameters.values())
        if nonfinite is None:
            torch._foreach_lerp_(averages, parameters, 1 - self._decay)
            return
        dtypes = {average.dtype for average in averages}
        weights = {dtype: (1 - nonfinite.to(dtype)) * (1 - self._decay) for dtype in dtypes}
        torch._foreach_lerp_(averages, parameters, [weights[average.dtype] for average in averages])

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Let the module hold the averages inside a `with` block; its own weights are restored at the end.

        Needs memory for one more copy of the weights. With FSDP all ranks must enter it.
        """
        trained_weights = [parameter.clone() for parameter in _to_local(self._parameters.values())]
        try:
            self._write_parameters(_to_local(self._averages.values()))
            yield
        finally:
            self._write_parameters(trained_weights)

    @torch.no_grad()
    def _write_parameters(self, values: list[Tensor]) -> None:
        """Copy values, this rank's shards in the order of the parameters, into the module's parameters."""
        for submodule in self._module.modules():
            if isinstance(submodule, FSDPModule):
                submodule.reshard()  # gathered weights that are still in use would hide what is written to the shards
        torch._foreach_copy_(_to_local(self._parameters.values()), values)


def _to_local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards of the tensors, or the tensors themselves; detached, but with the same memory."""
    detached = [tensor.detach() for tensor in tensors]
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in detached]
