"""Truth and ambiguity of captions, given as text or meaning, in a world, given by name or value."""

from __future__ import annotations

from prolip.scenes import ambiguity
from prolip.scenes.meaning import CaptionMeaning, is_true
from prolip.scenes.parsing import parse_caption
from prolip.scenes.world import HARD, Scene, World, get_world


def probability(caption: str | CaptionMeaning, world: World | str = HARD) -> float:
    """Compute the exact probability that a caption is true of a random scene.

    Args:
        caption: A text in the words of scenes, or its meaning.
        world: The distribution of scenes, or its name.

    Returns:
        The probability, 0 to 1.
    """
    return ambiguity.probability(_to_meaning(caption), _to_world(world))


def log_ambiguity(caption: str | CaptionMeaning, world: World | str = HARD) -> float:
    """Compute the natural logarithm of `probability`.

    Args:
        caption: A text in the words of scenes, or its meaning.
        world: The distribution of scenes, or its name.

    Returns:
        Nats: 0 for a caption that is always true, more negative the more it states, -inf if it is never true.
    """
    return ambiguity.log_ambiguity(_to_meaning(caption), _to_world(world))


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
