"""Decisions that all ranks take together: stop on a signal, save, end if one rank failed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import torch
import torch.distributed as dist

from prolip import distributed

T = TypeVar("T")


class StopRequest:
    """Becomes true at SIGTERM, SIGHUP or the first Ctrl-C. A second Ctrl-C interrupts at once.

    Attributes:
        signal: The signal that was received; None: none so far.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: record it. After a Ctrl-C, restore Python's own handler, so that a second one interrupts."""
        self.signal = signal.Signals(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Record stop signals in a request instead of ending the process; the handlers are restored at the end.

    Outside the main thread Python gets no signals, and the request stays false.

    Yields:
        The request.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous_handlers = {number: signal.signal(number, request._handle) for number in _list_stop_signals()}
    try:
        yield request
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _list_stop_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP unless nohup made this process ignore it."""
    hangup = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # Windows has none
    return [signal.SIGTERM, signal.SIGINT, *(s for s in hangup if signal.getsignal(s) is not signal.SIG_IGN)]


class PeerError(RuntimeError):
    """Another rank failed, so this one ends, too."""


def any_rank(*flags: bool, group: dist.ProcessGroup | None = None) -> tuple[bool, ...]:
    """Tell, for each flag, whether it is set on any rank. All ranks call it, with equally many flags.

    The flags are exchanged over gloo, on the CPU: NCCL would wait for the GPU's queued work.

    Args:
        flags: This rank's flags.
        group: All ranks; a thread other than the main one needs a group of its own. None: the default group.

    Returns:
        As many flags, the same on all ranks.
    """
    if distributed.world_size() == 1:
        return flags
    reduced = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(reduced, op=dist.ReduceOp.MAX, group=group)
    return tuple(bool(flag) for flag in reduced)


def raise_with_peers(error: Exception | None, group: dist.ProcessGroup | None = None) -> None:
    """Raise this rank's error, or a PeerError with that of another rank. All ranks call it after one has failed.

    Args:
        error: This rank's error; None if it has none.
        group: As `any_rank`.

    Raises:
        PeerError: Another rank failed, and this one did not.
    """
    if distributed.world_size() == 1 and error is not None:
        raise error
    messages: list[str | None] = [None] * distributed.world_size()
    message = None if error is None else f"{type(error).__name__}: {error}"
    dist.all_gather_object(messages, message, group=group)
    if error is not None:
        raise error
    rank, text = next((rank, text) for rank, text in enumerate(messages) if text is not None)
    raise PeerError(f"rank {rank} failed: {text}")


def raise_on_any_rank(work: Callable[[], T], group: dist.ProcessGroup | None = None) -> T:
    """Run `work` on every rank; if it fails on one, raise on all.

    Without this, the other ranks would wait for the failed one in their next collective until it times out. `work`
    itself must not contain a collective.

    Args:
        work: Called on this rank.
        group: As `any_rank`.

    Returns:
        This rank's result.

    Raises:
        PeerError: Another rank failed. This rank's own error is raised as it is.
    """
    error: Exception | None = None
    try:
        result = work()
    except Exception as failure:
        error = failure
    if any_rank(error is not None, group=group)[0]:
        raise_with_peers(error, group)
    return result


def broadcast_from_rank_zero(work: Callable[[], T]) -> T:
    """Run `work` on rank 0 and return its result on all ranks; its error is raised on all.

    Args:
        work: Its result must be picklable.

    Returns:
        The result of rank 0.
    """
    result: list[T | None] = [None]  # a list of one: broadcast_object_list fills it in place
    on_rank_zero(lambda: result.__setitem__(0, work()))
    if distributed.world_size() > 1:
        dist.broadcast_object_list(result, src=0, device=torch.device("cpu"))
    return result[0]  # type: ignore[return-value]


def on_rank_zero(work: Callable[[], object], group: dist.ProcessGroup | None = None) -> None:
    """Run `work` on rank 0 while the others wait; its error is raised on all.

    Args:
        work: Its result is dropped. It must not contain collectives.
        group: As `any_rank`.
    """
    raise_on_any_rank(work if distributed.rank() == 0 else lambda: None, group)
