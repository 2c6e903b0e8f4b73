"""Scenes as a data source: images rendered and captions drawn on access; the tokenizer of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.checks import require_fraction, require_positive_int
from prolip.configs import takes_config
from prolip.data.sample import Sample
from prolip.data.source import CaptionAnnotation, ImageAnnotation, compute_fingerprint, require_index
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import train_bpe
from prolip.scenes import ambiguity
from prolip.scenes.captions import (
    NUM_LEVELS,
    Caption,
    make_caption,
    make_complete_caption,
    make_position_caption,
)
from prolip.scenes.generalization import generalize
from prolip.scenes.image_ambiguity import image_log_ambiguity
from prolip.scenes.lexicon import make_phrase_table
from prolip.scenes.meaning import entails, is_true
from prolip.scenes.parsing import parse_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veils import Veil, draw_veil, observe
from prolip.scenes.wording import verbalize
from prolip.scenes.world import Scene, World, get_world, require_distribution, require_image_size

LEVEL_FRACTIONS = (0.1, 0.2, 0.5, 0.2)
"""How often a caption is of each level, from general to specific."""
DEFAULT_LENGTH = 20_000
"""Scenes of an address without `length=`."""
CAPTION_STREAM, GENERAL_STREAM, VEIL_STREAM = 1, 7, 17
"""Last numbers of the seeds of captions, of more general captions and of veils. They fix the data.

No two streams may share a number: `tasks`, `writer` and `caption_noise` have others."""


@dataclass(frozen=True, kw_only=True)
class ScenesConfig:
    """Options of `Scenes`."""

    length: int
    """Number of samples."""
    size: int = 48
    """Height and width of the images in pixels."""
    seed: int = 0
    """Seed of the scenes and of their captions."""
    captions: int = 4
    """Captions per scene."""
    levels: Sequence[float] = LEVEL_FRACTIONS
    """Probabilities of the four caption levels."""
    complete: float = 0.0
    """Fraction of the captions of the last level that state everything about the scene."""
    placed: float = 0.0
    """Fraction of all captions that state a position, perhaps a size, and nothing else; `levels` applies to the
    others."""
    veiled: float = 0.0
    """Fraction of the images that are seen through a random veil, which hides known facts; captions stay true of the
    whole scene."""
    general: bool = False
    """Each caption comes with one that it entails and that says less (`Sample.general_captions`)."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        object.__setattr__(self, "levels", tuple(self.levels))
        require_positive_int(self.length, "length", maximum=2**40)
        require_positive_int(self.captions, "captions", maximum=1000)
        require_image_size(self.size)
        require_distribution(self.levels, "levels", NUM_LEVELS)
        for name in ("complete", "placed", "veiled"):
            require_fraction(getattr(self, name), name)


class Scenes:
    """Sample `index` is the world's scene of (seed, index), with captions drawn for it. An `AnnotatedSource`.

    A sample's `extra` holds the `scene` and its `captions` with their meanings.

    Args:
        world: The distribution of scenes, or its name (`prolip.choices.WorldName`).
        config: A `ScenesConfig`, or its fields as keywords.
    """

    @takes_config(ScenesConfig).constructor
    def __init__(self, world: World | str, config: ScenesConfig) -> None:
        self.world = get_world(world) if isinstance(world, str) else world
        self.name = f"scenes:{world}" if isinstance(world, str) else "scenes"
        self.config, self.size, self.seed = config, config.size, config.seed

    @property
    def chunks(self) -> np.ndarray:
        """int64 (1,): one chunk, since any order of reading is as fast."""
        return np.array([self.config.length])

    def __len__(self) -> int:
        return self.config.length

    def read(self, index: int) -> Sample:
        """Render the scene at an index and draw its captions.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The sample, with a PIL image; `extra` holds the scene and its captions.
        """
        require_index(index, self.config.length)
        scene = self.draw_scene(index)
        captions, veil = self._draw_captions(scene, index), self.draw_veil(index)
        return Sample(
            key=f"{self.seed}-{index}",
            location=f"{self.name}, seed {self.seed}, index {index}",
            image=render_veiled(scene, self.size, veil),
            captions=tuple(caption.text for caption in captions),
            extra={"scene": scene, "captions": captions, "veil": veil},
            general_captions=self._draw_general_captions(captions, index) if self.config.general else (),
        )

    def draw_scene(self, index: int) -> Scene:
        """Draw the scene at an index, without rendering it; always the same one."""
        return self.world.draw_scene(self.seed, index)

    def draw_veil(self, index: int) -> Veil:
        """Draw the veil of the image at an index; always the same one. It hides nothing unless `veiled` is above 0."""
        if not self.config.veiled:
            return Veil()
        draws = RandomDraws(self.seed, index, VEIL_STREAM)
        return draw_veil(draws, self.world) if draws.bernoulli(self.config.veiled) else Veil()

    def image_annotation(self, index: int) -> ImageAnnotation:
        """Get what is known of the image at an index.

        Args:
            index: Index of the sample, from 0.

        Returns:
            Its veil, and the exact log-probability (nats) that a random scene looks like it.
        """
        return annotate_image(self.draw_scene(index), self.draw_veil(index), self.world)

    def captions(self, index: int) -> tuple[Caption, ...]:
        """Draw the captions at an index, without rendering the scene; always the same ones."""
        return self._draw_captions(self.draw_scene(index), index)

    def caption_annotations(self, index: int) -> tuple[CaptionAnnotation, ...]:
        """Get what is known of each caption at an index.

        Args:
            index: Index of the sample, from 0.

        Returns:
            Text, level and exact log-ambiguity (nats) of each caption.
        """
        return tuple(
            CaptionAnnotation(
                caption.text, caption.level, ambiguity.log_ambiguity(caption.meaning, self.world)
            )
            for caption in self.captions(index)
        )

    def log_ambiguity(self, text: str) -> float:
        """Compute ln of the probability that a caption is true of a random scene of this world.

        Args:
            text: A caption in the words of scenes.

        Returns:
            Nats; 0 for what is always true, -inf for what never is.

        Raises:
            ValueError: A word is not in the lexicon of scenes, or the caption can't be parsed.
        """
        return ambiguity.log_ambiguity(parse_caption(text), self.world)

    def is_true_caption(self, index: int, text: str) -> bool:
        """Whether a caption is true of the scene at an index.

        Args:
            index: Index of the sample.
            text: A caption in the words of scenes.

        Returns:
            True if every statement of the caption holds.

        Raises:
            ValueError: The caption can't be parsed.
        """
        return is_true(parse_caption(text), self.draw_scene(index))

    def entails(self, specific: str, general: str) -> bool:
        """Whether a caption entails another (`prolip.scenes.entails`, on the formulas of their words).

        Args:
            specific, general: Captions in the words of scenes.

        Returns:
            True if every scene of which the first is true satisfies the second; False also where only the geometry of
            the grid implies it.

        Raises:
            ValueError: A caption can't be parsed.
        """
        return entails(parse_caption(specific), parse_caption(general))

    def _draw_captions(self, scene: Scene, index: int) -> tuple[Caption, ...]:
        """Draw all captions of the scene at an index, from a random stream of their own."""
        draws = RandomDraws(self.seed, index, CAPTION_STREAM)
        return tuple(self._draw_caption(scene, draws) for _ in range(self.config.captions))

    def _draw_caption(self, scene: Scene, draws: RandomDraws) -> Caption:
        """Draw one caption: of a position only (`placed`), of everything (`complete`), or of a level (`levels`)."""
        if self.config.placed and draws.bernoulli(self.config.placed):
            return make_position_caption(scene, draws)
        level = draws.categorical(self.config.levels)
        if level == NUM_LEVELS - 1 and self.config.complete and draws.bernoulli(self.config.complete):
            return make_complete_caption(scene, draws, self.world)
        return make_caption(scene, level, draws, self.world)

    def _draw_general_captions(self, captions: Sequence[Caption], index: int) -> tuple[str, ...]:
        """For each caption a more general one that it entails; "" if there is none."""
        draws = RandomDraws(self.seed, index, GENERAL_STREAM)
        meanings = [generalize(caption.meaning, draws) for caption in captions]
        return tuple("" if meaning is None else verbalize(meaning, draws) for meaning in meanings)

    def fingerprint(self) -> str:
        """Digest of everything that decides the samples (see `Source.fingerprint`)."""
        return compute_fingerprint(
            "scenes", *self.world.fingerprint_values(), self.config.length, self.size, self.seed, self.config.captions,
            self.config.levels, self.config.complete, self.config.placed, self.config.general,
            *((self.config.veiled,) if self.config.veiled else ()),
        )  # fmt: skip


def annotate_image(scene: Scene, veil: Veil, world: World) -> ImageAnnotation:
    """Work out what is known of the image of a scene behind a veil.

    Args:
        scene: The scene.
        veil: What is hidden.
        world: The distribution of scenes.

    Returns:
        Name and kind of the veil, the exact log-ambiguity (nats), and the number of objects that are not behind a
        curtain.
    """
    meaning = observe(scene, veil)
    return ImageAnnotation(
        veil.name, image_log_ambiguity(meaning, world), kind=veil.kind, visible_objects=len(meaning.objects)
    )


def make_tokenizer(context_length: int = 64) -> Tokenizer:
    """Train a byte-level BPE in which every word of scenes is one token; other words are split, none is unknown.

    Args:
        context_length: Maximum number of tokens of a text.

    Returns:
        The tokenizer.
    """
    words = sorted({word for phrase in make_phrase_table() for word in phrase})
    # Twice, since `train_bpe` merges only pairs that occur twice. The vocabulary ends far below its largest size.
    return train_bpe([" ".join(words)] * 2, vocab_size=2**14, context_length=context_length)


def open_source(spec: str) -> Scenes:
    """Open an address such as "scenes:hard,length=5000,size=64,seed=1".

    Args:
        spec: The world's name, then settings of `Scenes` and `unseen=` (pairs of color and shape that are held out).

    Returns:
        The scenes.

    Raises:
        ValueError: A setting is unknown or has no valid value.
    """
    world, settings = parse_spec(spec)
    unseen = settings.pop("unseen", 0)
    # a world without unseen pairs is passed by name, which `Scenes` then shows in the locations of samples
    return Scenes(get_world(world, unseen) if unseen else world, **settings)


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split an address into the world's name and its settings.

    Args:
        spec: An address, with or without "scenes:".

    Returns:
        The world's name, which is not checked, and the values of the settings by name; `length` is always among them.

    Raises:
        ValueError: A setting is unknown or has no valid value.
    """
    world, *assignments = spec.removeprefix("scenes:").split(",")
    settings: dict[str, Any] = {"length": DEFAULT_LENGTH}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            settings[name] = SETTINGS[name](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"{spec}: the setting {assignment!r} is not valid. Valid settings are length=, size=, seed=, unseen= "
                "and captions= with an integer, complete=, placed= and veiled= with a fraction, levels= with four "
                "fractions (0.1/0.2/0.4/0.3), and general=true"
            ) from None
    return world, settings


def _parse_int(value: str) -> int:
    """The integer; ValueError for a sign or anything but digits."""
    if not value.isdecimal():
        raise ValueError(value)
    return int(value)


def _parse_levels(value: str) -> tuple[float, ...]:
    """Fractions that are separated by slashes."""
    return tuple(map(float, value.split("/")))


def _parse_bool(value: str) -> bool:
    """True or False; KeyError for another word."""
    return {"true": True, "false": False}[value]


SETTINGS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("length", "size", "seed", "unseen", "captions"), _parse_int),
    **dict.fromkeys(("complete", "placed", "veiled"), float),
    "levels": _parse_levels,
    "general": _parse_bool,
}
"""Name of a setting of an address -> parser of its value. The names are part of saved training configs."""
