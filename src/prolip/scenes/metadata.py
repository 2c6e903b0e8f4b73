"""Descriptions of captions and scenes, for the json of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.captions import Caption
from prolip.scenes.world import Scene, World


def describe_captions(captions: Sequence[Caption], world: World) -> dict[str, list[Any]]:
    """Describe the captions of a sample.

    Args:
        captions: The captions.
        world: The distribution of scenes.

    Returns:
        Texts, levels and log-ambiguities (nats), a list each: what `embed_pairs` reads.
    """
    return {
        "captions": [caption.text for caption in captions],
        "caption_levels": [caption.level for caption in captions],
        "log_ambiguity": [round(log_ambiguity(caption.meaning, world), 6) for caption in captions],
    }


def describe_scene(scene: Scene) -> Mapping[str, object]:
    """Describe the scene of a sample.

    Args:
        scene: The scene.

    Returns:
        Its objects, background and style.
    """
    return {
        "objects": [asdict(obj) for obj in scene.objects],
        "background": scene.background,
        "style": scene.style,
    }
