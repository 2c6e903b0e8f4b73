"""Procedural scenes: images with captions whose ambiguity is known exactly."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.scenes.captions import Caption as Caption
    from prolip.scenes.captions import iter_true_meanings as iter_true_meanings
    from prolip.scenes.captions import make_caption as make_caption
    from prolip.scenes.captions import make_caption_chain as make_caption_chain
    from prolip.scenes.captions import make_description as make_description
    from prolip.scenes.config import SceneDatasetSpec as SceneDatasetSpec
    from prolip.scenes.generalization import generalize as generalize
    from prolip.scenes.image_ambiguity import image_log_ambiguity as image_log_ambiguity
    from prolip.scenes.image_ambiguity import image_probability as image_probability
    from prolip.scenes.meaning import CaptionMeaning as CaptionMeaning
    from prolip.scenes.meaning import ObjectPattern as ObjectPattern
    from prolip.scenes.meaning import SpatialRelation as SpatialRelation
    from prolip.scenes.meaning import entails as entails
    from prolip.scenes.meaning import is_true as is_true
    from prolip.scenes.parsing import parse_caption as parse_caption
    from prolip.scenes.public import is_true_caption as is_true_caption
    from prolip.scenes.public import log_ambiguity as log_ambiguity
    from prolip.scenes.public import probability as probability
    from prolip.scenes.random_draws import RandomDraws as RandomDraws
    from prolip.scenes.rendering import render as render
    from prolip.scenes.rendering import render_masks as render_masks
    from prolip.scenes.source import Scenes as Scenes
    from prolip.scenes.source import ScenesConfig as ScenesConfig
    from prolip.scenes.source import make_tokenizer as make_tokenizer
    from prolip.scenes.veiled_rendering import render_veiled as render_veiled
    from prolip.scenes.veiled_scenes import VeiledScenes as VeiledScenes
    from prolip.scenes.veils import VEILS as VEILS
    from prolip.scenes.veils import ImageMeaning as ImageMeaning
    from prolip.scenes.veils import Veil as Veil
    from prolip.scenes.veils import VisibleObject as VisibleObject
    from prolip.scenes.veils import draw_veil as draw_veil
    from prolip.scenes.veils import hide_facts as hide_facts
    from prolip.scenes.veils import observe as observe
    from prolip.scenes.world import HARD as HARD
    from prolip.scenes.world import SIMPLE as SIMPLE
    from prolip.scenes.world import Scene as Scene
    from prolip.scenes.world import SceneObject as SceneObject
    from prolip.scenes.world import World as World
    from prolip.scenes.world import get_world as get_world
    from prolip.scenes.writer import write_dataset as write_dataset
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "captions": [
                "Caption",
                "iter_true_meanings",
                "make_caption",
                "make_caption_chain",
                "make_description",
            ],
            "config": ["SceneDatasetSpec"],
            "generalization": ["generalize"],
            "image_ambiguity": ["image_log_ambiguity", "image_probability"],
            "meaning": ["CaptionMeaning", "ObjectPattern", "SpatialRelation", "entails", "is_true"],
            "parsing": ["parse_caption"],
            "public": ["is_true_caption", "log_ambiguity", "probability"],
            "random_draws": ["RandomDraws"],
            "rendering": ["render", "render_masks"],
            "source": ["Scenes", "ScenesConfig", "make_tokenizer"],
            "veiled_rendering": ["render_veiled"],
            "veiled_scenes": ["VeiledScenes"],
            "veils": ["VEILS", "ImageMeaning", "Veil", "VisibleObject", "draw_veil", "hide_facts", "observe"],
            "world": ["HARD", "SIMPLE", "Scene", "SceneObject", "World", "get_world"],
            "writer": ["write_dataset"],
        },
    )
