"""What both loaders share: the pool of workers, who we are among the ranks, and whether a saved position fits."""

from __future__ import annotations

import pickle
import signal
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from prolip import distributed
from prolip.checks import require_positive_int
from prolip.data.batch import Batch
from prolip.data.sample import SampleError
from prolip.data.sample_errors import ErrorCounts

D = TypeVar("D")


class WorkerResult(NamedTuple):
    """What a worker sends: a batch, or None if no sample was good; samples tried, and the bad ones among them."""

    batch: Batch | None
    tried: int
    bads: tuple[SampleError, ...]


class WorkerFailure(NamedTuple):
    """In place of an answer: what went wrong in the worker."""

    error: Exception


class BaseLoader(ABC):
    """The face of a loader: where it stands, its batches, its state; and that a failure ends its workers.

    epoch, position: the batches delivered in this epoch. A batch is delivered when the caller has it, however far
    workers have read. tally: of this epoch, and of this rank.
    """

    def __init__(self) -> None:
        self.epoch = self.position = 0
        self.error_counts = ErrorCounts()

    def __iter__(self) -> Iterator[Batch]:
        """To the end of the present epoch."""
        if self.position == 0:
            self.error_counts = ErrorCounts()
        try:
            yield from self._rest_of_epoch()
        except Exception:
            self.close()
            raise
        self.epoch, self.position = self.epoch + 1, 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch on this rank."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Where it stands, for JSON."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; ValueError if it is a place in another stream."""

    @abstractmethod
    def _rest_of_epoch(self) -> Iterator[Batch]: ...

    @abstractmethod
    def close(self) -> None:
        """End the workers. (They also end with the loader.) Iterating again starts new ones."""

    def _place(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Facts of the stream and the place in it, for JSON."""
        return {**facts, "epoch": self.epoch, "batch": self.position, "tally": self.error_counts.state_dict()}


class WorkerSettings(TypedDict):
    workers: int
    prefetch: int


def check_worker_settings(workers: int, prefetch: int) -> WorkerSettings:
    if workers != 0:
        require_positive_int(workers, "workers", maximum=1024)
    require_positive_int(prefetch, "prefetch", maximum=1024)
    return {"workers": workers, "prefetch": prefetch}


def make_worker_pool(
    reader: Dataset[D], requests: Iterable[Any], *, workers: int, prefetch: int
) -> DataLoader[D | WorkerFailure]:
    """torch's loader as a plain pool: it hands requests to workers in turn, and gives their answers in that order."""
    return DataLoader(
        _Guarded(reader) if workers else reader,
        batch_size=None,
        sampler=requests,
        num_workers=workers,
        collate_fn=_as_it_is,
        persistent_workers=workers > 0,
        prefetch_factor=prefetch if workers else None,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_deaf,
        generator=torch.Generator(),  # else each epoch would draw from the global one, which is the caller's
    )


def _deaf(_: int) -> None:
    """SIGTERM to a group of processes is for the parent to answer: it may still want batches, and ends us itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def answers(pool: Iterable[D]) -> Iterator[D]:
    """What a pool gives; a worker that was killed is an error of its own kind, with a sentence."""
    try:
        yield from pool
    except RuntimeError as error:
        if "exited unexpectedly" not in str(error):
            raise
        raise ChildProcessError(
            "a worker of the loader was ended from outside, perhaps for lack of memory; use fewer workers, or smaller "
            "batches"
        ) from None


def unwrap(answer: D | WorkerFailure) -> D:
    if isinstance(answer, WorkerFailure):
        raise answer.error
    return answer


class _Guarded(Dataset[D | WorkerFailure]):
    """Sends errors as they are. torch would wrap them in a traceback and forget their errno; and one that can't be
    pickled would never arrive, while the parent waits."""

    def __init__(self, reader: Dataset[D]) -> None:
        self.reader = reader

    def __getitem__(self, request: Any) -> D | WorkerFailure:
        try:
            return self.reader[request]
        except Exception as error:
            return WorkerFailure(_sendable(error))


def _sendable(error: Exception) -> Exception:
    story = "In a worker of the loader:\n" + "".join(traceback.format_tb(error.__traceback__))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(story)
    return copy


def shut_down_workers(answers: object) -> None:
    """End the workers behind an iterator over a pool, now. Left to the garbage collector, as they'd be after an error,
    their queues may go first: then they are waited for in vain, 5 seconds each."""
    if isinstance(answers, _MultiProcessingDataLoaderIter):
        answers._shutdown_workers()


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This rank and the number of ranks; None: those of the process group."""
    rank = distributed.rank() if rank is None else rank
    world_size = distributed.world_size() if world_size is None else world_size
    require_positive_int(world_size, "world_size")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
    return rank, world_size


def require_max_bad_fraction(max_bad_fraction: float) -> None:
    if not isinstance(max_bad_fraction, int | float) or not 0 <= max_bad_fraction <= 1:
        raise ValueError(f"max_bad_fraction must be a share from 0 to 1, not {max_bad_fraction!r}")


OTHER = {
    "fingerprint": "the data are others",
    "preprocessor": "samples are prepared in another way (pixels, augmentation, captions, tokenizer)",
}
"""What to say of facts that are digests."""


def require_same_stream(facts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """A position means something only in the stream that it was taken from."""
    for name, value in facts.items():
        if name not in state:
            raise ValueError(f"this is not the state of such a loader: it has no {name}")
        if state[name] != value:
            what = OTHER.get(name, f"{name} was {state[name]!r}, now it is {value!r}")
            raise ValueError(
                f"the saved position is of another stream: {what}; restore it, or start from the beginning"
            )


def read_count(state: Mapping[str, Any], name: str) -> int:
    value = state.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**40:
        raise ValueError(f"{name} of a saved position must be a whole number from 0 to 2^40, not {value!r}")
    return value


def _as_it_is(delivery: D) -> D:
    return delivery
