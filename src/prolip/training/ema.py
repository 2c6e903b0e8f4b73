"""An exponential moving average of the weights, and a module that holds it for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class Average:
    """avg = decay * avg + (1 - decay) * weight, for each parameter that learns; it begins with the weights.

    Frozen parameters are their own average, so they aren't kept. Sharded parameters have sharded averages.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module = module
        self._decay = decay
        # These objects, not what the module holds later: after a forward pass FSDP may leave gathered weights in it.
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._averages = {name: p.detach().clone() for name, p in self._parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """The averages by the names of their parameters: the tensors themselves, so writing to them changes them."""
        return dict(self._averages)

    @torch.no_grad()
    def update(self, bad: Tensor | None = None) -> None:
        """Go one step on. bad: a scalar on the weights' device; 1: leave everything as it is, 0 or None: don't."""
        averages, parameters = _locals(self._averages.values()), _locals(self._parameters.values())
        if bad is None:
            torch._foreach_lerp_(averages, parameters, 1 - self._decay)
            return
        dtypes = {average.dtype for average in averages}
        shares = {dtype: (1 - bad.to(dtype)) * (1 - self._decay) for dtype in dtypes}
        torch._foreach_lerp_(averages, parameters, [shares[average.dtype] for average in averages])

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the module holds the averages; afterwards its own weights, whatever happens. Costs one more copy."""
        own = [parameter.clone() for parameter in _locals(self._parameters.values())]
        try:
            self._write(_locals(self._averages.values()))
            yield
        finally:
            self._write(own)

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        for part in self._module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # gathered weights that stayed behind would hide what is written
        torch._foreach_copy_(_locals(self._parameters.values()), values)


def _locals(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards, without gradient: the tensors' own memory."""
    detached = [tensor.detach() for tensor in tensors]
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in detached]
