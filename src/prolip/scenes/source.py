"""Scenes as data to train on: a Source of any length, drawn when it is read; and a tokenizer for its captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from prolip.checks import require_count
from prolip.data.sample import Sample
from prolip.data.source import fingerprint_of, require_index
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import train_bpe
from prolip.scenes.captions import LEVELS, Caption, caption, complete, placed
from prolip.scenes.general import generalise
from prolip.scenes.lexicon import phrases
from prolip.scenes.random_draws import Draws
from prolip.scenes.rendering import picture
from prolip.scenes.wording import say
from prolip.scenes.world import Scene, World, require_distribution, require_size, world_named

LEVEL_SHARES = (0.1, 0.2, 0.5, 0.2)
"""How often a caption is of each level, from general to specific."""
DEFAULT_LENGTH = 20_000
"""Of an address that names no length."""
GENERAL = 7
"""Of the numbers that draw more general captions; 1 to 6 draw other things."""


class Scenes:
    """Number `index` is the world's scene of (seed, index), with `captions` captions drawn anew for it.

    world: a World, "simple" or "hard". size: pixels a side. levels: probabilities of the four levels.
    complete: share of the captions of the last level that tell everything about the scene.
    placed: share of all captions that tell a place, perhaps a size, and nothing else; the levels are of the others.
    general: each caption comes with one that follows from it and says less, worded anew: a masked twin that looks like
             any other caption.
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
        complete: float = 0.0,
        placed: float = 0.0,
        general: bool = False,
    ) -> None:
        self.world = world_named(world) if isinstance(world, str) else world
        self.size, self.seed, self.levels = size, seed, tuple(levels)
        self.name = f"scenes:{world}" if isinstance(world, str) else "scenes"
        require_count(length, "length", most=2**40)
        require_count(captions, "captions", most=1000)
        require_size(size)
        require_distribution(self.levels, "levels", LEVELS)
        for name, share in (("complete", complete), ("placed", placed)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share!r}")
        self._length, self._captions = length, captions
        self._complete, self._placed, self._general = complete, placed, general

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
            general=self._generalised(captions, index) if self._general else (),
        )

    def captions(self, index: int) -> tuple[Caption, ...]:
        """The captions of scene number `index`, without drawing it."""
        return self._told(self.world.scene(self.seed, index), index)

    def _told(self, scene: Scene, index: int) -> tuple[Caption, ...]:
        draws = Draws(self.seed, index, 1)
        return tuple(self._one(scene, draws) for _ in range(self._captions))

    def _one(self, scene: Scene, draws: Draws) -> Caption:
        if self._placed and draws.chance(self._placed):
            return placed(scene, draws)
        level = draws.weighted(self.levels)
        if level == LEVELS - 1 and self._complete and draws.chance(self._complete):
            return complete(scene, draws, self.world)
        return caption(scene, level, draws, self.world)

    def _generalised(self, captions: Sequence[Caption], index: int) -> tuple[str, ...]:
        draws = Draws(self.seed, index, GENERAL)
        meanings = [generalise(caption.meaning, draws) for caption in captions]
        return tuple("" if meaning is None else say(meaning, draws) for meaning in meanings)

    def fingerprint(self) -> str:
        return fingerprint_of(
            "scenes", *self.world.told(), self._length, self.size, self.seed, self._captions, self.levels,
            self._complete, self._placed, self._general,
        )  # fmt: skip


def tokenizer(context_length: int = 64) -> Tokenizer:
    """Byte-level BPE in which every word of scenes is one token; any other text is spelt, none is unknown."""
    words = sorted({word for phrase in phrases() for word in phrase})
    return train_bpe([" ".join(words)] * 2, vocab_size=2**14, context_length=context_length)


def open_source(text: str) -> Scenes:
    """ "scenes:hard,length=5000,size=64,seed=1"."""
    level, *settings = text.removeprefix("scenes:").split(",")
    values: dict[str, Any] = {"length": DEFAULT_LENGTH}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            values[name] = SETTINGS[name](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"{text}: {setting!r} is none of length=, size=, seed=, unseen=, captions= with a number, complete=, "
                "placed= with a share, levels= with four shares (0.1/0.2/0.4/0.3) and general=true"
            ) from None
    unseen = values.pop("unseen", 0)
    return Scenes(world_named(level, unseen) if unseen else level, **values)


def _whole(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(value)
    return int(value)


def _four(value: str) -> tuple[float, ...]:
    return tuple(map(float, value.split("/")))


def _truth(value: str) -> bool:
    return {"true": True, "false": False}[value]


SETTINGS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("length", "size", "seed", "unseen", "captions"), _whole),
    **dict.fromkeys(("complete", "placed"), float),
    "levels": _four,
    "general": _truth,
}
