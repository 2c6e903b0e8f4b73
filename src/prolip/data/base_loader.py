"""BaseLoader: interface of all loaders; worker processes, ranks, and the check of a saved state."""

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
    """What a worker sends for one request.

    batch:  the good samples; None if there was none.
    tried:  number of samples that were read for the batch, good and bad.
    errors: the bad ones among them.
    """

    batch: Batch | None
    tried: int
    errors: tuple[SampleError, ...]


class WorkerFailure(NamedTuple):
    """What a worker sends instead of a result: the exception that it met."""

    error: Exception


class BaseLoader(ABC):
    """A resumable iterator over the batches of one rank. An exception ends the workers.

    epoch:           epochs that were completed.
    position:        batches of this epoch that were delivered. A batch counts when the caller has it, however far
                     workers have read ahead: so a state that is saved between two batches is exact.
    error_counts:    samples tried and bad samples of this epoch on this rank.
    """

    def __init__(self) -> None:
        self.epoch = self.position = 0
        self.error_counts = ErrorCounts()

    def __iter__(self) -> Iterator[Batch]:
        """Iterate from `position` to the end of the epoch; afterwards `epoch` is one higher and `position` is 0."""
        if self.position == 0:
            self.error_counts = ErrorCounts()
        try:
            yield from self._iter_rest_of_epoch()
        except Exception:
            self.close()
            raise
        self.epoch, self.position = self.epoch + 1, 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch on this rank."""

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """Return the position and all settings that determine the sequence of batches, as values that JSON can hold."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: If it was saved with other data or settings, which give other batches.
        """

    @abstractmethod
    def _iter_rest_of_epoch(self) -> Iterator[Batch]:
        """Iterate over the batches from `position` on, and advance `position` and `error_counts` with each."""

    @abstractmethod
    def close(self) -> None:
        """End the workers (they also end with the loader). Iterating again starts new ones."""

    def _make_state(self, settings: Mapping[str, object]) -> dict[str, object]:
        """The state to save: `settings`, which determine the stream, then epoch, position and error counts."""
        return {
            **settings,
            "epoch": self.epoch,
            "batch": self.position,
            "error_counts": self.error_counts.state_dict(),
        }


class WorkerSettings(TypedDict):
    """Number of worker processes, and of batches that each prepares ahead."""

    num_workers: int
    prefetch_factor: int


def make_worker_pool(
    reader: Dataset[D], requests: Iterable[Any], *, num_workers: int, prefetch_factor: int
) -> DataLoader[D | WorkerFailure]:
    """Make torch's DataLoader work as a plain pool of processes, without batching or sampling of its own.

    Args:
        reader: called as reader[request], in a worker. It is copied into each worker.
        requests: handed to the workers in turn; they must be picklable.
        num_workers: number of worker processes; 0: everything runs in this process.
        prefetch_factor: requests that each worker answers ahead.

    Returns:
        An iterable over the results, in the order of the requests. With workers, an exception of the reader comes as
        a `WorkerFailure`; without, it is raised.
    """
    return DataLoader(
        _FailureCatcher(reader) if num_workers else reader,
        batch_size=None,
        sampler=requests,
        num_workers=num_workers,
        collate_fn=_identity,
        persistent_workers=num_workers > 0,
        prefetch_factor=prefetch_factor if num_workers else None,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_ignore_sigterm,
        # Otherwise each epoch would draw a seed from the global generator, and training would not be reproducible.
        generator=torch.Generator(),
    )


def _ignore_sigterm(_: int) -> None:
    """Ignore SIGTERM in this worker process, and leave it to the parent. (The argument is torch's worker id.)

    A job manager sends it to the whole process group. The parent may still want batches (to reach the end of a step and
    save a checkpoint), and ends its workers itself.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def iter_results(pool: Iterable[D]) -> Iterator[D]:
    """Iterate over the results of a pool.

    Args:
        pool: what `make_worker_pool` returned, or an iterator over it.

    Yields:
        The results, in the order of the requests.

    Raises:
        ChildProcessError: If a worker was killed.
    """
    try:
        yield from pool
    except RuntimeError as error:
        if "exited unexpectedly" not in str(error):
            raise
        raise ChildProcessError(
            "A worker process of the loader was killed, perhaps because memory ran out. "
            "Lower the number of workers, or the batch size."
        ) from None


def unwrap_result(result: D | WorkerFailure) -> D:
    """Return a worker's result, or raise the exception that it sent.

    Args:
        result: an element of `iter_results`.

    Returns:
        The result, if it is no `WorkerFailure`.

    Raises:
        Exception: The one that the worker met, if the result is a `WorkerFailure`.
    """
    if isinstance(result, WorkerFailure):
        raise result.error
    return result


class _FailureCatcher(Dataset[D | WorkerFailure]):
    """Wraps a reader so that its exceptions come as results, `WorkerFailure`.

    torch would wrap them in a traceback and lose their errno; and one that can't be pickled would never arrive, while
    the parent waits for it.
    """

    def __init__(self, reader: Dataset[D]) -> None:
        self.reader = reader

    def __getitem__(self, request: Any) -> D | WorkerFailure:
        """reader[request], or the exception that it raised."""
        try:
            return self.reader[request]
        except Exception as error:
            return WorkerFailure(_make_picklable(error))


def _make_picklable(error: Exception) -> Exception:
    """Copy an exception (as a RuntimeError if it can't be pickled), with the traceback of this process as a note."""
    note = "In a worker of the loader:\n" + "".join(traceback.format_tb(error.__traceback__))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(note)
    return copy


def shut_down_workers(results: object) -> None:
    """End the workers behind an iterator over a pool, now.

    Left to the garbage collector, as they would be after an error, their queues may be destroyed first: then the
    parent waits for the workers in vain, 5 seconds for each.

    Args:
        results: iterator over a pool; anything else (None, a pool without workers) is ignored.
    """
    if isinstance(results, _MultiProcessingDataLoaderIter):
        results._shutdown_workers()


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Fill in the rank and the number of ranks of a loader from torch's process group.

    Args:
        rank: from 0; None: that of the process group.
        world_size: number of ranks; None: that of the process group.

    Returns:
        (rank, world_size).

    Raises:
        ValueError: If the rank is not below world_size.
    """
    rank = distributed.rank() if rank is None else rank
    world_size = distributed.world_size() if world_size is None else world_size
    require_positive_int(world_size, "world_size")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
    return rank, world_size


DIGEST_MESSAGES = {
    "fingerprint": "the data has changed",
    "preprocessor": "the preprocessing has changed (pixels, augmentation, captions or tokenizer)",
}
"""What to say if a setting that is a digest differs: its values mean nothing to a reader."""


def require_same_stream(settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Check that a saved state belongs to this stream of batches: in another one its position means nothing.

    Args:
        settings: all settings that determine this stream, by name.
        state: the saved state; must have the same values under these names.

    Raises:
        ValueError: If a setting is missing or differs; the message names it.
    """
    for name, value in settings.items():
        if name not in state:
            raise ValueError(f"The saved state was not saved by this kind of loader: it has no {name!r}")
        if name == "version" and state[name] != value:
            raise ValueError(
                f"The saved state of the loader has version {state[name]!r}; this release reads version {value!r}. "
                "Start the run from the beginning."
            )
        if state[name] != value:
            message = DIGEST_MESSAGES.get(name, f"{name} was {state[name]!r}, and is {value!r} now")
            raise ValueError(
                f"The saved state belongs to other batches: {message}. "
                "Undo this change, or start the run from the beginning."
            )


def read_count(state: Mapping[str, Any], name: str) -> int:
    """Read a count from a saved state.

    Args:
        state: the saved state.
        name: key of the count in it.

    Returns:
        An integer, at least 0 and below 2**40.

    Raises:
        ValueError: If the state has no such integer under this key.
    """
    value = state.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**40:
        raise ValueError(
            f"{name!r} of the loader's saved state must be an integer from 0 to 2^40 - 1, not {value!r}"
        )
    return value


def _identity(result: D) -> D:
    """Return the argument: `collate_fn` of a pool whose results are batches already."""
    return result
