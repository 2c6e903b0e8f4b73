"""Several loaders as one: each batch is made of parts, one from each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prolip.data.base_loader import BaseLoader
from prolip.data.batch import Batch, joined
from prolip.data.sample_errors import ErrorCounts


class CombinedLoader:
    """Batches that take a fixed number of samples from each loader: a mixture of streams, or of streams and files.

    The loaders' batch sizes are the shares: 96 of one and 32 of the other are three to one. Each loader keeps its own
    sources, workers and place; all must have equally many batches an epoch, so give each a samples_per_epoch in
    proportion to its batch. In a joined batch, `samples` are the numbers that each loader gave.

    pad_id: what fills up the shorter of the parts' ids: the tokenizer's `rules.pad_id`.
    """

    def __init__(self, loaders: Sequence[BaseLoader], *, pad_id: int) -> None:
        if not loaders:
            raise ValueError("there is no loader to read from")
        lengths = [len(loader) for loader in loaders]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"the loaders have {lengths} batches an epoch; give each a samples_per_epoch in proportion to its batch"
            )
        self.loaders = tuple(loaders)
        self._pad_id = pad_id

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loaders[0])

    @property
    def epoch(self) -> int:
        return self.loaders[0].epoch

    @property
    def position(self) -> int:
        return self.loaders[0].position

    @property
    def error_counts(self) -> ErrorCounts:
        """Of all loaders; a copy."""
        total = ErrorCounts()
        for loader in self.loaders:
            total.merge(loader.error_counts)
        return total

    def __iter__(self) -> Iterator[Batch]:
        """To the end of the epoch. If a loader fails, all stand where they stood before the batch."""
        iterators = [iter(loader) for loader in self.loaders]
        while parts := self._parts(iterators):
            yield joined(parts, self._pad_id)

    def _parts(self, iterators: Sequence[Iterator[Batch]]) -> list[Batch]:
        """A batch of each loader; none at the end of the epoch."""
        before = self.state_dict()
        try:
            parts = [next(iterator, None) for iterator in iterators]
        except Exception:
            self.close()
            self.load_state_dict(before)
            raise
        found = [part for part in parts if part is not None]
        if found and len(found) < len(parts):
            raise ValueError(
                'the loaders are out of step: one of them has passed over a batch of bad samples; use on_bad="replace"'
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"loaders": [loader.state_dict() for loader in self.loaders]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states = state.get("loaders")
        states = states if isinstance(states, list) else []
        if len(states) != len(self.loaders) or not all(isinstance(one, Mapping) for one in states):
            raise ValueError(f"this is not the state of {len(self.loaders)} loaders together")
        places = {(one.get("epoch"), one.get("batch")) for one in states}
        if len(places) != 1:
            raise ValueError(
                f"the loaders' saved positions (epoch, batch) differ: {sorted(map(str, places))}"
            )
        before = [loader.state_dict() for loader in self.loaders]
        try:
            self._move(states)
        except ValueError:  # one of them is of another stream: then none moves
            self._move(before)
            raise

    def _move(self, states: Sequence[Mapping[str, Any]]) -> None:
        for loader, state in zip(self.loaders, states, strict=True):
            loader.load_state_dict(state)

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()
