"""How a run is laid out on processes: the process group, the device, DDP or FSDP around the towers."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from prolip import distributed
from prolip.data.order import mixed
from prolip.model.prolip import ProLIP
from prolip.model.transformer import Block
from prolip.training.config import ParallelChoice
from prolip.training.step import Embedded, Learner, Part, Towers

PATIENCE = timedelta(hours=2)
"""How long ranks wait for one another: while one indexes many shards, say. (Not for one that has died.)"""
AUTOCAST = {"float32": None, "float64": None, "bfloat16": torch.bfloat16}


@contextmanager
def processes(choice: ParallelChoice) -> Iterator[torch.device]:
    """The device of this process, with torchrun's other processes at hand, if it was torchrun that started us."""
    device = _device(choice.device)
    ours = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_distributed()
    if ours:
        _join(device)
    yield device
    # After an error the group is left as it is: others may talk in it still, and what failed holds DDP, which holds it.
    if distributed.world_size() > 1:
        gc.collect()  # DDP lies in cycles: left of it after the group, it would wait for itself in vain
        dist.barrier()  # nobody leaves while another still talks
    if ours:
        dist.destroy_process_group()


def is_first_of_machine() -> bool:
    """This is the first of torchrun's processes on its machine."""
    return int(os.environ.get("LOCAL_RANK", distributed.rank())) == 0


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """torch's own generators begin with this seed, on each rank with another, and are the caller's again afterwards.

    Nothing of ours draws from them; a module of a user's may.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(mixed(seed, "torch", distributed.rank()))
        yield


def _join(device: torch.device) -> None:
    """Find the other processes, and make the group of all."""
    store, rank, world_size = next(rendezvous("env://"))
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        # Processes that torchrun starts again find the same store, in which the dead ones' addresses still stand. (On
        # several machines the counts may differ.)
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    # gloo beside NCCL: a few flags a step go between hosts without waiting for a GPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=world_size)


def _device(name: str | None) -> torch.device:
    """cpu, or a GPU: the one that is named, else that of torchrun's process number on this machine."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name is None and not count):
        return torch.device("cpu")
    parts = re.fullmatch(r"cuda(:([0-9]{1,4}))?", "cuda" if name is None else name)
    if parts is None:
        raise ValueError(
            f"parallel.device: {name!r} is none of cpu, cuda and cuda:N, where N counts GPUs from 0"
        )
    if not count:
        raise ValueError(f"parallel.device: {name}, but PyTorch finds no GPU here; set parallel.device=cpu")
    number = int(parts[2] or os.environ.get("LOCAL_RANK", "0"))
    if number >= count:
        raise ValueError(
            f"parallel.device: there is no GPU {number}, as this machine has {count}; name another, or start at most "
            f"{count} processes here"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def lay_out(learner: Learner, choice: ParallelChoice, device: torch.device) -> Callable[[Part], Embedded]:
    """Move what is learned to the device, shard or copy it as chosen, and return what embeds a part of a batch.

    The model itself stays usable: `model.encode_image` works under either strategy, if all ranks call it.
    """
    model = learner.model
    learner.to(device=device, dtype=dtype_of(choice))
    model.gradient_checkpointing(choice.activation_checkpointing)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if choice.compile:
        for block in blocks:
            block.compile()
    if choice.strategy == "fsdp":
        _shard(model, blocks, device)
    towers = Towers(model)
    if choice.strategy == "fsdp" or distributed.world_size() == 1:
        return towers
    if not any(p.requires_grad for p in towers.parameters()):
        return towers  # only scale and bias learn
    return DistributedDataParallel(towers, gradient_as_bucket_view=True)


def _shard(model: ProLIP, blocks: list[Block], device: torch.device) -> None:
    """Each block, then what is left of each tower. The scale and the bias stay whole: they can't be cut."""
    if not distributed.is_distributed():
        raise ValueError("strategy fsdp shards weights over processes: start at least two with torchrun")
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (distributed.world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    for tower in (model.image, model.text):
        fully_shard(tower, mesh=mesh)
    if model.config.image.uncertainty == "multihead":
        fully_shard(model.log_var, mesh=mesh)


def dtype_of(choice: ParallelChoice) -> torch.dtype:
    """Of the weights."""
    return torch.float64 if choice.precision == "float64" else torch.float32


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together again, on all ranks (all must ask); another as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def peak_memory(device: torch.device) -> float:
    """The most memory that this process has held so far, in GiB: the GPU's, or the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    import resource
    import sys

    peak: Any = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (2**30 if sys.platform == "darwin" else 2**20)
