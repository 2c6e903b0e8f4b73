"""What ranks must agree on before each step: whether to stop, whether to save; and that an error on one ends all."""

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
    """Set by SIGTERM, a lost terminal, or the first Ctrl-C; the second one interrupts at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Requests to stop are noted, not obeyed at once, while this lasts. (Only a main thread can hear signals.)"""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request._note) for number in _asking()}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _asking() -> list[signal.Signals]:
    """SIGTERM, Ctrl-C, and a lost terminal, unless nohup has told us not to mind it."""
    lost = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
    return [signal.SIGTERM, signal.SIGINT, *(s for s in lost if signal.getsignal(s) is not signal.SIG_IGN)]


class PeerError(RuntimeError):
    """Another rank failed; this one ends with it."""


def agree(*flags: bool) -> tuple[bool, ...]:
    """For each flag: is it set on any rank? By way of the hosts, so that no GPU is waited for."""
    if distributed.world_size() == 1:
        return flags
    told = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return tuple(bool(flag) for flag in told)


def end_together(error: Exception | None) -> None:
    """Raise this rank's error, or the news of another's. All ranks call it, if `agree` said that one has failed."""
    if distributed.world_size() == 1 and error is not None:
        raise error
    stories: list[str | None] = [None] * distributed.world_size()
    dist.all_gather_object(stories, None if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    rank, story = next((rank, story) for rank, story in enumerate(stories) if story is not None)
    raise PeerError(f"rank {rank} failed: {story}")


def together(work: Callable[[], T]) -> T:
    """Every rank's result; an error on one ends all, so that none waits for a rank that is gone."""
    error: Exception | None = None
    try:
        result = work()
    except Exception as failure:
        error = failure
    if agree(error is not None)[0]:
        end_together(error)
    return result


def from_first(work: Callable[[], T]) -> T:
    """Rank 0 works, and all have its result; its error ends all."""
    found: list[T | None] = [None]
    on_first(lambda: found.__setitem__(0, work()))
    if distributed.world_size() > 1:
        dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
    return found[0]  # type: ignore[return-value]


def on_first(work: Callable[[], object]) -> None:
    """Rank 0 works, the others wait; its error ends all."""
    together(work if distributed.rank() == 0 else lambda: None)
