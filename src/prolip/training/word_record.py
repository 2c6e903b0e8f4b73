"""Record of the words that a model meets in training, so that searches can say which words it never met."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from prolip import distributed
from prolip.data.batch import Batch
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP
from prolip.preprocessing.words import MAX_WORDS, WORDS_FILE, read_words, split_words, write_words
from prolip.training.rank_sync import on_rank_zero

MAX_SEEN = 1_000_000
"""Pieces between spaces that are remembered, so that each is split into words once, not at every step."""


class WordRecorder:
    """Collects the words of each rank's batches.

    There is no record if it would be incomplete: for a pretrained model without one, a frozen text encoder, or more
    than MAX_WORDS words.

    Args:
        model: The model that is trained; `gather` sets its `training_words`, on rank 0.
        is_pretrained: Whether training starts from trained weights.
    """

    def __init__(self, model: ProLIP, *, is_pretrained: bool) -> None:
        self.model = model
        is_unknown = isinstance(model.text, FrozenTower) or model.tokenizer is None
        start = model.training_words if is_pretrained else frozenset()
        self.words: set[str] | None = None if is_unknown or start is None else set(start)
        self._seen: set[str] = set()

    def add(self, batch: Batch) -> None:
        """Add the words of a batch that is trained on.

        Args:
            batch: This rank's batch.
        """
        tokenizer = self.model.tokenizer
        if self.words is None or tokenizer is None:
            return
        texts = list(batch.captions)
        if batch.general_token_ids is not None:
            texts += tokenizer.decode(batch.general_token_ids)
        new = {piece for text in texts for piece in text.split()} - self._seen
        for piece in new:
            self.words.update(split_words(piece, tokenizer.config.cleaning))
        if len(self._seen) > MAX_SEEN:
            self._seen.clear()
        self._seen.update(new)
        if len(self.words) > MAX_WORDS:
            self.words = None

    def gather(self) -> None:
        """Give the model of rank 0 the words of all ranks. All ranks call it."""
        parts: list[set[str] | None] = [self.words]
        if distributed.world_size() > 1:
            parts = [None] * distributed.world_size()
            dist.all_gather_object(parts, self.words)
        words = {word for part in parts if part is not None for word in part}
        is_complete = all(part is not None for part in parts) and 0 < len(words) <= MAX_WORDS
        self.model.training_words = frozenset(words) if is_complete else None

    def save(self, folder: Path) -> None:
        """Write the words of all ranks into the run folder. All ranks call it.

        Args:
            folder: The run folder.
        """
        self.gather()
        on_rank_zero(lambda: write_words(folder / WORDS_FILE, self.model.training_words))

    def restore(self, folder: Path) -> None:
        """Continue from what `save` wrote. All ranks call it.

        Args:
            folder: The run folder; one without a record has none from now on.
        """
        if distributed.rank() == 0:
            words = read_words(folder / WORDS_FILE)
            self.words = None if words is None or self.words is None else self.words | words
