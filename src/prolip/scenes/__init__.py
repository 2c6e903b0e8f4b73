"""Procedural scenes: pictures and captions whose true ambiguity is known."""

from __future__ import annotations

from prolip.scenes import ambiguity as _ambiguity
from prolip.scenes.captions import Caption, caption, chain, describe, true_meanings
from prolip.scenes.meaning import Meaning, Pattern, Relation, holds, implies
from prolip.scenes.parsing import read
from prolip.scenes.random_draws import Draws
from prolip.scenes.rendering import masks, picture
from prolip.scenes.source import Scenes, tokenizer
from prolip.scenes.world import HARD, SIMPLE, Scene, Thing, World, world_named

__all__ = [
    "HARD",
    "SIMPLE",
    "Caption",
    "Draws",
    "Meaning",
    "Pattern",
    "Relation",
    "Scene",
    "Scenes",
    "Thing",
    "World",
    "caption",
    "chain",
    "describe",
    "entails",
    "holds",
    "implies",
    "log_ambiguity",
    "masks",
    "picture",
    "probability",
    "read",
    "tokenizer",
    "true_meanings",
]


def probability(caption: str | Meaning, world: World | str = HARD) -> float:
    """The exact probability that a random scene of the world satisfies a caption."""
    return _ambiguity.probability(_meaning(caption), _world(world))


def log_ambiguity(caption: str | Meaning, world: World | str = HARD) -> float:
    """ln of it: 0 for a caption that is always true, more negative the more it says."""
    return _ambiguity.log_ambiguity(_meaning(caption), _world(world))


def entails(caption: str | Meaning, scene: Scene) -> bool:
    """The caption is true of the scene."""
    return holds(_meaning(caption), scene)


def _meaning(caption: str | Meaning) -> Meaning:
    return read(caption) if isinstance(caption, str) else caption


def _world(world: World | str) -> World:
    return world_named(world) if isinstance(world, str) else world
