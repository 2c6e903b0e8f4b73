"""Saves the checkpoints of a run, in a background thread or at once, and removes old ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.tensor import DTensor

from prolip import distributed
from prolip.training import checkpointing
from prolip.training.checkpointing import CheckpointContent
from prolip.training.config import CheckpointConfig
from prolip.training.parallel import TIMEOUT
from prolip.training.rank_sync import on_rank_zero, raise_on_any_rank

EXIT_SECONDS = 60.0
"""How long a run that ends with an error waits for a checkpoint that is being written."""
log = logging.getLogger("prolip.training")


class Checkpointer:
    """Saves the checkpoints of a run and removes old ones. A context manager, which waits for the last at its end.

    With `async_save`, a save copies tensors and JSON to memory, and a thread writes the copy while training continues.
    There is at most one such thread: the next save waits for it. An error of the thread is raised by `wait`.

    torch's `async_save` does the same for the tensors alone. Here the thread also does what comes before and after
    them: the files of the ranks, checksums, the rename, the removal of old checkpoints. And it is a daemon: Python
    waits at its exit for the executor threads of torch, which may be waiting for a rank that has died.

    All ranks make one, and call `save` and `wait` at the same steps.

    Args:
        folder: The run's folder of checkpoints.
        config: How many to keep, and whether to write in the background.
    """

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self._folder, self._config = folder, config
        # Collectives of two threads in one group would be mixed up: the thread has a group of its own. It is gloo's,
        # because the copy is on the CPU.
        is_shared = config.async_save and distributed.world_size() > 1
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT) if is_shared else None
        self._staging = StagingBuffers()
        self._pending: _BackgroundWrite | None = None

    def save(self, content: CheckpointContent, sync_metrics: Callable[[], object]) -> None:
        """Save a checkpoint, and then remove old ones. Waits for the save before it. All ranks call it.

        Args:
            content: What this rank puts into it. It may change as soon as this function returns.
            sync_metrics: Called on rank 0 before the checkpoint is written, perhaps in the background: brings the
                metrics of the steps so far to the disk, so that a checkpoint is never ahead of its metrics.

        Raises:
            OSError: This checkpoint, or the one before it, can't be written.
        """
        self.wait()
        if self._config.async_save:
            copied = raise_on_any_rank(lambda: self._copy(content))
            self._pending = _BackgroundWrite(copied.step, lambda: self._write(copied, sync_metrics))
        else:
            self._write(content, sync_metrics)

    @property
    def has_failed(self) -> bool:
        """Whether a save in the background has failed on this rank. Then `wait`, called by all ranks, raises."""
        return self._pending is not None and self._pending.error is not None

    def wait(self) -> None:
        """Wait until the pending save has ended. All ranks call it.

        Raises:
            OSError: The checkpoint can't be written.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.join()
        except BaseException:  # Ctrl-C: the save is still pending
            self._pending = pending
            raise
        if pending.error is not None:
            raise pending.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._close()
        elif not issubclass(kind, KeyboardInterrupt):  # the second Ctrl-C ends the process at once
            self._wait_after_error()

    def _close(self) -> None:
        """Wait for the pending save, and leave the thread's process group. All ranks call it."""
        self.wait()
        if self._group is not None:
            dist.barrier()  # no rank leaves the group while the thread of another still communicates
            dist.destroy_process_group(self._group)

    def _wait_after_error(self) -> None:
        """Give the pending save some time to end, since the run ends with an error; log what became of it.

        Not more, because the thread may wait for a rank that doesn't answer.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if not pending.join(EXIT_SECONDS):
            log.warning("the checkpoint of step %d was not finished in %g s", pending.step, EXIT_SECONDS)
        elif pending.error is not None:
            log.warning("the checkpoint of step %d was not saved: %s", pending.step, pending.error)

    def _copy(self, content: CheckpointContent) -> CheckpointContent:
        """A copy that training doesn't change, in memory of the CPU."""
        return replace(
            content, tensors=self._staging.copy(content.tensors), rank_state=deepcopy(content.rank_state),
            run_state=deepcopy(content.run_state),
        )  # fmt: skip

    def _write(self, content: CheckpointContent, sync_metrics: Callable[[], object]) -> None:
        """Sync the metrics, write the checkpoint, and remove old ones. All ranks call it, each in the same thread."""
        on_rank_zero(sync_metrics, self._group)
        checkpointing.save_checkpoint(self._folder, content, self._group)
        keep_last = self._config.keep_last
        on_rank_zero(
            lambda: checkpointing.remove_old_checkpoints(self._folder, keep_last, content.step), self._group
        )


class StagingBuffers:
    """Memory on the CPU for a copy of tensors: allocated at the first copy, pinned if there is a GPU, then reused."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors, and wait until they are copied.

        Args:
            tensors: By name, plain or sharded, on any device.

        Returns:
            By the same names, on the CPU, sharded in the same way. The next call overwrites them.
        """
        if _get_signature(tensors) != _get_signature(self._copies):
            self._copies = _allocate_copies(tensors)
            return self._copies
        # Not by torch's stager, which takes twice as long on many small tensors: it copies their attributes, too.
        for name, value in tensors.items():
            _get_local(self._copies[name]).copy_(_get_local(value), non_blocking=True)
        if any(value.is_cuda for value in tensors.values()):
            torch.cuda.current_stream().synchronize()
        return self._copies


def _allocate_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to new memory of the CPU by torch's stager, which knows how to do that with sharded ones."""
    has_gpu = torch.cuda.is_available()
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=has_gpu, use_shared_memory=False, use_async_staging=False,
            use_non_blocking_copy=has_gpu,
        )
    )  # fmt: skip
    copies = stager.stage(dict(tensors))
    stager.close()
    assert isinstance(copies, dict)  # a future only with use_async_staging
    return copies


def _get_local(tensor: Tensor) -> Tensor:
    """This rank's shard of a sharded tensor, which shares its memory; another tensor unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _get_signature(tensors: Mapping[str, Tensor]) -> list[tuple[str, torch.Size, torch.dtype]]:
    """Names, shapes and dtypes."""
    return [(name, value.shape, value.dtype) for name, value in tensors.items()]


class _BackgroundWrite:
    """A thread that writes one checkpoint. It never keeps the process from exiting.

    Args:
        step: Step of the checkpoint.
        write: Writes it.

    Attributes:
        step: Step of the checkpoint.
        error: What `write` raised; None if it is running or has succeeded.
    """

    def __init__(self, step: int, write: Callable[[], None]) -> None:
        self.step, self._write = step, write
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"checkpoint of step {step}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Write, and keep an error for the main thread."""
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the thread has ended, at most so many seconds; returns whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()
