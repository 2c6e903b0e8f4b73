"""Scenes as data to train on: a Source of any length, drawn when it is read; and a tokenizer for its captions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prolip.checks import require_count
from prolip.data.sample import Sample
from prolip.data.scenes.captions import LEVELS, Caption, caption
from prolip.data.scenes.draw import picture
from prolip.data.scenes.draws import Draws
from prolip.data.scenes.lexicon import phrases
from prolip.data.scenes.world import Scene, World, require_distribution, require_size, world_named
from prolip.data.source import fingerprint_of, require_index
from prolip.inputs.tokens import Tokenizer
from prolip.inputs.vocabulary import train_bpe

LEVEL_SHARES = (0.1, 0.2, 0.5, 0.2)
"""How often a caption is of each level, from general to specific."""


class Scenes:
    """Number `index` is the world's scene of (seed, index), with `captions` captions drawn anew for it.

    world: a World, "simple" or "hard". size: pixels a side. levels: probabilities of the four levels.
    A sample's extra holds the `scene` and its `captions` with their meanings.
    """

    def __init__(
        self,
        world: World | str = "simple",
        *,
        length: int,
        size: int = 48,
        seed: int = 0,
        captions: int = 4,
        levels: Sequence[float] = LEVEL_SHARES,
    ) -> None:
        self.world = world_named(world) if isinstance(world, str) else world
        self.size, self.seed, self.levels = size, seed, tuple(levels)
        self.name = f"scenes:{world}" if isinstance(world, str) else "scenes"
        require_count(length, "length", most=2**40)
        require_count(captions, "captions", most=1000)
        require_size(size)
        require_distribution(self.levels, "levels", LEVELS)
        self._length, self._captions = length, captions

    @property
    def chunks(self) -> np.ndarray:
        return np.array([self._length])

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> Sample:
        require_index(index, self._length)
        scene = self.world.scene(self.seed, index)
        captions = self._told(scene, index)
        return Sample(
            key=f"{self.seed}-{index}",
            where=f"{self.name}, seed {self.seed}, number {index}",
            image=picture(scene, self.size),
            captions=tuple(caption.text for caption in captions),
            extra={"scene": scene, "captions": captions},
        )

    def captions(self, index: int) -> tuple[Caption, ...]:
        """The captions of scene number `index`, without drawing it."""
        return self._told(self.world.scene(self.seed, index), index)

    def _told(self, scene: Scene, index: int) -> tuple[Caption, ...]:
        draws = Draws(self.seed, index, 1)
        return tuple(
            caption(scene, draws.weighted(self.levels), draws, self.world) for _ in range(self._captions)
        )

    def fingerprint(self) -> str:
        return fingerprint_of(
            "scenes", *self.world.told(), self._length, self.size, self.seed, self._captions, self.levels
        )


def tokenizer(context_length: int = 64) -> Tokenizer:
    """Byte-level BPE in which every word of scenes is one token; any other text is spelt, none is unknown."""
    words = sorted({word for phrase in phrases() for word in phrase})
    return train_bpe([" ".join(words)] * 2, vocab_size=2**14, context_length=context_length)
