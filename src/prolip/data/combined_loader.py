"""CombinedLoader: batches that take a fixed number of samples from each of several loaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prolip.data.base_loader import BaseLoader
from prolip.data.batch import Batch, concat_batches
from prolip.data.sample_errors import ErrorCounts


class CombinedLoader:
    """Batches that take a fixed number of samples from each loader: a mixture of streams, or of streams and files.

    The loaders' batch sizes are the proportions: 96 of one and 32 of the other are three to one. Each loader has its
    own sources, workers and position. All must have the same number of batches per epoch, so give each a
    samples_per_epoch in proportion to its batch size. `Batch.sample_indices` are those that each loader gave.

    Args:
        loaders: at least one.
        pad_id: fills up the shorter rows of token ids; the tokenizer's `config.pad_id`.

    Raises:
        ValueError: If there is no loader, or if their numbers of batches per epoch differ.
    """

    def __init__(self, loaders: Sequence[BaseLoader], *, pad_id: int) -> None:
        if not loaders:
            raise ValueError("CombinedLoader needs at least one loader")
        lengths = [len(loader) for loader in loaders]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"The loaders have {lengths} batches per epoch. "
                "Give each a samples_per_epoch in proportion to its batch size."
            )
        self.loaders = tuple(loaders)
        self._pad_id = pad_id

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loaders[0])

    @property
    def epoch(self) -> int:
        """Epochs that were completed; the same for all loaders."""
        return self.loaders[0].epoch

    @property
    def position(self) -> int:
        """Batches of this epoch that were delivered; the same for all loaders."""
        return self.loaders[0].position

    @property
    def error_counts(self) -> ErrorCounts:
        """Samples tried and bad samples of all loaders together; a copy."""
        total = ErrorCounts()
        for loader in self.loaders:
            total.merge(loader.error_counts)
        return total

    def __iter__(self) -> Iterator[Batch]:
        """Iterate to the end of the epoch. If a loader fails, all go back to where they were before the batch."""
        iterators = [iter(loader) for loader in self.loaders]
        while batches := self._next_batches(iterators):
            yield concat_batches(batches, self._pad_id)

    def _next_batches(self, iterators: Sequence[Iterator[Batch]]) -> list[Batch]:
        """The next batch of each loader; [] at the end of the epoch.

        If a loader raises, all loaders are closed and go back to the state before this call. ValueError if some of
        them, but not all, are at the end of the epoch.
        """
        state_before = self.state_dict()
        try:
            next_batches = [next(iterator, None) for iterator in iterators]
        except Exception:
            # Some loaders have already advanced. Without going back, a resumed run would skip their samples.
            self.close()
            self.load_state_dict(state_before)
            raise
        batches = [batch for batch in next_batches if batch is not None]
        if batches and len(batches) < len(next_batches):
            raise ValueError(
                "A combined loader ended its epoch before the others: it skipped a batch that had only bad samples. "
                'Make the loaders with on_bad="replace".'
            )
        return batches

    def state_dict(self) -> dict[str, object]:
        """Return the states of all loaders, as values that JSON can hold."""
        return {"loaders": [loader.state_dict() for loader in self.loaders]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: If it was saved with other data or settings; then no loader moves.
        """
        states = state.get("loaders")
        states = states if isinstance(states, list) else []
        if len(states) != len(self.loaders) or not all(
            isinstance(loader_state, Mapping) for loader_state in states
        ):
            raise ValueError(
                f"The saved state must have a list 'loaders' with the states of {len(self.loaders)} combined loaders"
            )
        positions = {(loader_state.get("epoch"), loader_state.get("batch")) for loader_state in states}
        if len(positions) != 1:
            raise ValueError(
                f"The loaders' saved positions (epoch, batch) differ: {sorted(map(str, positions))}. "
                "Use a state that state_dict returned, unchanged."
            )
        states_before = [loader.state_dict() for loader in self.loaders]
        try:
            self._load_states(states)
        except ValueError:  # a state belongs to other batches: no loader may move
            self._load_states(states_before)
            raise

    def _load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Load one state into each loader; ValueError at the first that was saved with other data or settings."""
        for loader, state in zip(self.loaders, states, strict=True):
            loader.load_state_dict(state)

    def close(self) -> None:
        """End the workers of all loaders."""
        for loader in self.loaders:
            loader.close()
