"""Processes and devices of a run: the process group, the device, DDP or FSDP around the towers."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from prolip import distributed
from prolip.data.order import derive_seed
from prolip.model.prolip import ProLIP
from prolip.model.transformer import Block
from prolip.process_memory import get_peak_resident_memory
from prolip.training.config import ParallelConfig
from prolip.training.step import MicroBatch, TowerOutputs, Towers, TrainModule

TIMEOUT = timedelta(hours=2)
"""How long a collective waits for the other ranks, for example while one of them indexes many shards."""
AUTOCAST_DTYPES = {"float32": None, "float64": None, "bfloat16": torch.bfloat16}
"""By precision: the dtype of autocast; None: no autocast."""


@contextmanager
def init_processes(config: ParallelConfig) -> Iterator[torch.device]:
    """Join the process group, if torchrun started this process, and leave it at the end.

    Args:
        config: For its device.

    Yields:
        The device of this process.

    Raises:
        ValueError: The device doesn't exist.
    """
    device = _choose_device(config.device)
    is_owner = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_distributed()
    if is_owner:
        _init_process_group(device)
    yield device
    # After an error the group is not destroyed: other ranks may still communicate, and the traceback still refers to
    # DDP, which refers to the group.
    if distributed.world_size() > 1:
        gc.collect()  # DDP is in reference cycles; freed after its group is destroyed, it would hang
        dist.barrier()  # no rank leaves while another still communicates
    if is_owner:
        dist.destroy_process_group()


def is_local_rank_zero() -> bool:
    """Whether this is the first of torchrun's processes on its machine."""
    return int(os.environ.get("LOCAL_RANK", distributed.rank())) == 0


@contextmanager
def seeded_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, differently on each rank, and restore their state at the end of the block.

    Nothing in prolip draws from them; a user's module may.

    Args:
        seed: Seed of the run.
        device: Device of this process; a GPU's generator is seeded too.

    Yields:
        Nothing.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(seed, "torch", distributed.rank()))
        yield


def _init_process_group(device: torch.device) -> None:
    """Rendezvous with the other processes of torchrun and create torch's default process group."""
    store, rank, world_size = next(rendezvous("env://"))
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        # Processes that torchrun restarts find the same store, which still has the addresses of the dead ones: a prefix
        # per attempt hides those. (On several machines the restart counts may differ, so not there.)
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    # gloo as well as NCCL: the flags that ranks exchange at each step must not wait for the GPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT, store=store, rank=rank, world_size=world_size)


def _choose_device(name: str | None) -> torch.device:
    """Choose the CPU, or a GPU: the one named, else that of torchrun's local rank. It becomes CUDA's current device.

    Args:
        name: cpu, cuda or cuda:N; None: a GPU if there is one.

    Raises:
        ValueError: The name is something else, or there is no such GPU.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name is None and not num_gpus):
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(:([0-9]{1,4}))?", "cuda" if name is None else name)
    if match is None:
        raise ValueError(f"parallel.device must be cpu, cuda or cuda:N (N from 0), not {name!r}")
    if not num_gpus:
        raise ValueError(f"parallel.device is {name}, but PyTorch finds no GPU: set --device cpu")
    number = int(match[2] or os.environ.get("LOCAL_RANK", "0"))
    if number >= num_gpus:
        raise ValueError(
            f"there is no GPU {number}: this machine has {num_gpus}, counted from 0. Set parallel.device to one of "
            f"them, or start at most {num_gpus} processes on it (torchrun --nproc-per-node {num_gpus})"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def parallelize(
    module: TrainModule, config: ParallelConfig, device: torch.device
) -> Callable[[MicroBatch], TowerOutputs]:
    """Move the parameters to the device, in the dtype of the precision, and shard them or wrap the towers in DDP.

    `model.encode_image` of the model itself still works under either strategy, if all ranks call it.

    Args:
        module: All trained parameters; changed in place.
        config: Strategy, precision, compilation, activation checkpointing.
        device: Device of `init_processes`.

    Returns:
        A function from a micro-batch to its embeddings, for `compute_gradients`.
    """
    model = module.model
    module.to(device=device, dtype=get_weight_dtype(config))
    model.set_grad_checkpointing(config.activation_checkpointing)
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    if config.compile:
        for block in blocks:
            block.compile()
    if config.strategy == "fsdp":
        _shard_towers(model, blocks, device)
    towers = Towers(model)
    if config.strategy == "fsdp" or distributed.world_size() == 1:
        return towers
    if not any(p.requires_grad for p in towers.parameters()):
        return towers  # only logit scale and bias are trained, and DDP rejects a module without trained parameters
    return DistributedDataParallel(towers, gradient_as_bucket_view=True)


def _shard_towers(model: ProLIP, blocks: list[Block], device: torch.device) -> None:
    """Shard each block, then the rest of each tower, in place, over all ranks with FSDP2.

    Logit scale and bias are scalars, which FSDP can't shard: they stay plain parameters.

    Raises:
        ValueError: There is no process group.
    """
    if not distributed.is_distributed():
        raise ValueError(
            "parallel.strategy fsdp shards weights over processes: start at least two with "
            "`torchrun --nproc-per-node 2 -m prolip train ...`"
        )
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (distributed.world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    for tower in (model.image, model.text):
        fully_shard(tower, mesh=mesh)
    if model.config.image.uncertainty == "multihead":
        fully_shard(model.log_var, mesh=mesh)


def get_weight_dtype(config: ParallelConfig) -> torch.dtype:
    """dtype of the weights. With bfloat16 they are float32: only autocast uses bfloat16.

    Args:
        config: For its precision.

    Returns:
        torch.float64 or torch.float32.
    """
    return torch.float64 if config.precision == "float64" else torch.float32


def full_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered on all ranks, which must all call this; another tensor unchanged.

    Args:
        tensor: A DTensor or a plain tensor.

    Returns:
        The plain tensor, on the same device.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def get_peak_memory(device: torch.device) -> float:
    """Peak memory of this process so far, in GiB: of the GPU, or the resident set on the CPU.

    Args:
        device: Device of this process.

    Returns:
        GiB.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return get_peak_resident_memory() / 2**30
