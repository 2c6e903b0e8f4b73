"""Captions of scenes of which a known fraction is false: ground truth for data filtering."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from prolip.scenes.captions import Caption, make_caption
from prolip.scenes.meaning import is_true
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.source import LEVEL_FRACTIONS
from prolip.scenes.world import Scene, World

CHOICE_STREAM, CAPTION_STREAM = 15, 16
"""Last numbers of the seeds that choose the false captions and draw all captions."""


class NoisyCaptions:
    """One caption per scene, of level 1, 2 or 3 as often as in training; a random fraction of them is false.

    A false caption was drawn for another scene and is false of this one. It has the level that a true one would have,
    so that levels don't give it away.
    """

    def __init__(self, scenes: Sequence[Scene], world: World, seed: int, false_fraction: float) -> None:
        """
        Args:
            scenes: The scenes that are captioned.
            world: The world of the scenes.
            seed: Seed of the choice of false captions and of all captions.
            false_fraction: Fraction of false captions, from 0 to below 1; above 0 only with two scenes or more.

        Raises:
            ValueError: Captions shall be false, but there are fewer than two scenes.
        """
        if false_fraction and len(scenes) < 2:
            raise ValueError(
                f"false_fraction {false_fraction} needs at least two scenes, not {len(scenes)}: "
                "a false caption is drawn for another scene"
            )
        self._scenes, self._world, self._seed, self._false_fraction = scenes, world, seed, false_fraction

    @cached_property
    def _false_indices(self) -> frozenset[int]:
        """Indices of the scenes whose caption is false, chosen at random by the seed."""
        count = len(self._scenes)
        draws = RandomDraws(self._seed, CHOICE_STREAM)
        return frozenset(draws.sample(count, round(self._false_fraction * count)))

    def is_correct(self, index: int) -> bool:
        """Whether the caption at an index is true of its scene."""
        return index not in self._false_indices

    def get_caption(self, index: int) -> Caption:
        """Draw the caption of the scene at an index; always the same one.

        Args:
            index: Index of the scene, from 0.

        Returns:
            A true caption, or one that was drawn for other scenes until it was false of this one.
        """
        scene, draws = self._scenes[index], RandomDraws(self._seed, index, CAPTION_STREAM)
        fractions = LEVEL_FRACTIONS[1:]  # no level 0, which is true of every scene
        level = 1 + draws.categorical([fraction / sum(fractions) for fraction in fractions])
        caption = make_caption(scene, level, draws, self._world)
        while not self.is_correct(index) and is_true(caption.meaning, scene):
            caption = make_caption(draws.choice(self._scenes), level, draws, self._world)
        return caption


class SceneSequence(Sequence[Scene]):
    """The first `length` scenes of (world, seed), each drawn on access."""

    def __init__(self, world: World, seed: int, length: int) -> None:
        """
        Args:
            world: The distribution of scenes.
            seed: Seed of the scenes.
            length: Number of scenes.
        """
        self._world, self._seed, self._length = world, seed, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Scene:  # type: ignore[override]
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._world.draw_scene(self._seed, index)
