"""Procedural scenes: images with captions whose ambiguity is known exactly."""

from __future__ import annotations

from prolip.scenes import ambiguity as _ambiguity
from prolip.scenes.captions import (
    Caption,
    iter_true_meanings,
    make_caption,
    make_caption_chain,
    make_description,
)
from prolip.scenes.generalization import generalize
from prolip.scenes.meaning import CaptionMeaning, ObjectPattern, SpatialRelation, entails, is_true
from prolip.scenes.parsing import parse_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render, render_masks
from prolip.scenes.source import Scenes, make_tokenizer
from prolip.scenes.world import HARD, SIMPLE, Scene, SceneObject, World, get_world
from prolip.scenes.writer import SceneDatasetSpec, write_dataset

__all__ = [
    "HARD",
    "SIMPLE",
    "Caption",
    "CaptionMeaning",
    "ObjectPattern",
    "RandomDraws",
    "Scene",
    "SceneDatasetSpec",
    "SceneObject",
    "Scenes",
    "SpatialRelation",
    "World",
    "entails",
    "generalize",
    "get_world",
    "is_true",
    "is_true_caption",
    "iter_true_meanings",
    "log_ambiguity",
    "make_caption",
    "make_caption_chain",
    "make_description",
    "make_tokenizer",
    "parse_caption",
    "probability",
    "render",
    "render_masks",
    "write_dataset",
]


def probability(caption: str | CaptionMeaning, world: World | str = HARD) -> float:
    """Compute the exact probability that a caption is true of a random scene.

    Args:
        caption: A text in the words of scenes, or its meaning.
        world: The distribution of scenes, or its name.

    Returns:
        The probability, 0 to 1.
    """
    return _ambiguity.probability(_to_meaning(caption), _to_world(world))


def log_ambiguity(caption: str | CaptionMeaning, world: World | str = HARD) -> float:
    """Compute the natural logarithm of `probability`.

    Args:
        caption: A text in the words of scenes, or its meaning.
        world: The distribution of scenes, or its name.

    Returns:
        Nats: 0 for a caption that is always true, more negative the more it states, -inf if it is never true.
    """
    return _ambiguity.log_ambiguity(_to_meaning(caption), _to_world(world))


def is_true_caption(caption: str | CaptionMeaning, scene: Scene) -> bool:
    """Whether a caption is true of a scene.

    Args:
        caption: A text in the words of scenes, or its meaning.
        scene: The scene.

    Returns:
        True if every statement of the caption holds.
    """
    return is_true(_to_meaning(caption), scene)


def _to_meaning(caption: str | CaptionMeaning) -> CaptionMeaning:
    """The meaning of a caption; a text is parsed."""
    return parse_caption(caption) if isinstance(caption, str) else caption


def _to_world(world: World | str) -> World:
    """The world itself, or the world of this name."""
    return get_world(world) if isinstance(world, str) else world
