"""Captions of scenes of which a known share is false: to see what finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from prolip.scenes.captions import Caption, caption
from prolip.scenes.meaning import holds
from prolip.scenes.random_draws import Draws
from prolip.scenes.source import LEVEL_SHARES
from prolip.scenes.world import Scene, World

CHOICE, WORDS = 15, 16
"""Of the numbers that draw other things."""


class Pollution:
    """Of each scene a caption of level 1, 2 or 3, as often as in training; for the share `false`, drawn at random, of
    another scene and false of this one. A false caption has the level that a true one would have, so that levels tell
    nothing."""

    def __init__(self, scenes: Sequence[Scene], world: World, seed: int, false: float) -> None:
        self._scenes, self._world, self._seed, self._share = scenes, world, seed, false

    @cached_property
    def _false(self) -> frozenset[int]:
        count = len(self._scenes)
        return frozenset(Draws(self._seed, CHOICE).sample(count, round(self._share * count)))

    def is_right(self, index: int) -> bool:
        return index not in self._false

    def caption(self, index: int) -> Caption:
        """The one caption of scene number `index`, true or false."""
        scene, draws = self._scenes[index], Draws(self._seed, index, WORDS)
        level = 1 + draws.weighted([share / sum(LEVEL_SHARES[1:]) for share in LEVEL_SHARES[1:]])
        told = caption(scene, level, draws, self._world)
        while not self.is_right(index) and holds(told.meaning, scene):
            told = caption(draws.choice(self._scenes), level, draws, self._world)
        return told


class Drawn(Sequence[Scene]):
    """The first `length` scenes of (world, seed), each drawn when it is asked for."""

    def __init__(self, world: World, seed: int, length: int) -> None:
        self._world, self._seed, self._length = world, seed, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Scene:  # type: ignore[override]
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._world.scene(self._seed, index)
