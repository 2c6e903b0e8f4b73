"""The distribution of scenes: one to three objects on a grid, a background, a drawing style."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import index

from prolip.checks import require_choice, require_positive_int
from prolip.scenes.random_draws import RandomDraws

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "round": ("circle", "ring", "crescent", "heart"),
    "pointed": ("square", "triangle", "star", "cross"),
}
TONES: Mapping[str, tuple[str, ...]] = {
    "warm": ("red", "orange", "yellow", "pink"),
    "cold": ("green", "cyan", "blue", "purple"),
}
SHAPES = tuple(shape for shapes in FAMILIES.values() for shape in shapes)
COLORS = tuple(color for colors in TONES.values() for color in colors)
FAMILY_BY_SHAPE = {shape: family for family, shapes in FAMILIES.items() for shape in shapes}
TONE_BY_COLOR = {color: tone for tone, colors in TONES.items() for color in colors}
SIZES = ("small", "large")
BACKGROUNDS = ("white", "silver", "striped", "checked")
STYLES = ("clean", "blurry", "dark", "noisy", "pixelated", "outlined", "grey", "faded")
MAX_OBJECTS = 3
"""Largest number of objects of a scene."""


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object of a scene; row and column of the grid count from the top left."""

    shape: str
    color: str
    size: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What an image shows. `render_seed` fixes all that no caption states: exact positions, sizes, hues, noise.

    `style_passes` is how often the style is applied: twice makes a dark image darker, a blurry one more blurry.
    """

    objects: tuple[SceneObject, ...]
    background: str
    style: str
    grid: int
    render_seed: int
    style_passes: int = 1


@dataclass(frozen=True, kw_only=True)
class World:
    """A distribution over scenes.

    Attributes:
        counts: Probabilities of one, two and three objects.
        grid: 2 or 3 cells per side; the objects of a scene are in different cells, all placements equally likely.
        backgrounds: The backgrounds, all equally likely.
        styles: Pairs (style, probability).
        unseen: Pairs (color, shape) that no object has: held out for tests. The objects of a scene are independent.
        shape_weights: Probabilities of the SHAPES, in their order. The probability of a kind of object (shape, color,
            size) is in proportion to the product of its three weights, over all kinds that are not unseen.
        color_weights: Probabilities of the COLORS.
        size_weights: Probabilities of the SIZES.
        style_passes: How often the style of a scene is applied to its image, from 1.
    """

    counts: tuple[float, float, float] = (1.0, 0.0, 0.0)
    grid: int = 2
    backgrounds: tuple[str, ...] = ("white",)
    styles: tuple[tuple[str, float], ...] = (("clean", 1.0),)
    unseen: frozenset[tuple[str, str]] = frozenset()
    shape_weights: tuple[float, ...] = (1 / len(SHAPES),) * len(SHAPES)
    color_weights: tuple[float, ...] = (1 / len(COLORS),) * len(COLORS)
    size_weights: tuple[float, ...] = (1 / len(SIZES),) * len(SIZES)
    style_passes: int = 1

    def __post_init__(self) -> None:
        """Convert lists to tuples, so that a world is hashable; raise ValueError unless all fields are valid."""
        _freeze_fields(self)
        require_distribution(self.counts, "World: counts", MAX_OBJECTS)
        if self.grid not in (2, 3) or not isinstance(self.grid, int):
            raise ValueError(f"World: grid must be 2 or 3 cells per side, not {self.grid!r}")
        for background in self.backgrounds:
            require_choice(background, BACKGROUNDS, "World: background")
        for style, _ in self.styles:
            require_choice(style, STYLES, "World: style")
        if not self.backgrounds or len(set(self.backgrounds)) < len(self.backgrounds):
            raise ValueError(
                f"World: backgrounds must be distinct, and at least one, not {self.backgrounds!r}"
            )
        if len({style for style, _ in self.styles}) < len(self.styles):
            raise ValueError(f"World: styles must be distinct, not {self.styles!r}")
        require_distribution(
            [probability for _, probability in self.styles], "World: styles", len(self.styles)
        )
        for color, shape in self.unseen:
            require_choice(color, COLORS, "World: unseen color")
            require_choice(shape, SHAPES, "World: unseen shape")
        if not self.object_kinds:
            raise ValueError("World: all pairs of color and shape are unseen: no object is left to draw")
        require_positive_int(self.style_passes, "World: style_passes", maximum=10)
        for name, values in (("shape", SHAPES), ("color", COLORS), ("size", SIZES)):
            weights = getattr(self, f"{name}_weights")
            require_distribution(weights, f"World: {name}_weights", len(values))
            if min(weights) == 0:
                raise ValueError(
                    f"World: {name}_weights must be positive, not {weights!r}; `unseen` removes pairs"
                )

    @cached_property
    def object_kinds(self) -> tuple[tuple[str, str, str], ...]:
        """(shape, color, size) of every possible object; `kind_probabilities` says how likely each is."""
        return tuple(
            (shape, color, size)
            for shape in SHAPES
            for color in COLORS
            if (color, shape) not in self.unseen
            for size in SIZES
        )

    @cached_property
    def kind_weights(self) -> tuple[float, ...]:
        """Weights of the `object_kinds`, in proportion to their probabilities; of default weights, powers of 2."""
        return tuple(self.weigh_kind(*kind) for kind in self.object_kinds)

    @cached_property
    def kind_probabilities(self) -> tuple[float, ...]:
        """Probabilities of the `object_kinds`; they add up to 1."""
        total = math.fsum(self.kind_weights)
        return tuple(weight / total for weight in self.kind_weights)

    @cached_property
    def has_uniform_kinds(self) -> bool:
        """Whether all kinds of objects are equally likely."""
        return len(set(self.kind_weights)) == 1

    @cached_property
    def _kind_thresholds(self) -> tuple[float, ...]:
        """Cumulative probabilities of all kinds but the last, for bisection."""
        return tuple(accumulate(self.kind_probabilities))[:-1]

    def weigh_kind(self, shape: str, color: str, size: str) -> float:
        """Compute the weight of a kind of object, also of one that is unseen.

        Args:
            shape, color, size: Attributes of the object.

        Returns:
            The product of its three weights: its probability, if no pair is unseen.
        """
        return (
            self.shape_weights[SHAPES.index(shape)]
            * self.color_weights[COLORS.index(color)]
            * self.size_weights[SIZES.index(size)]
        )

    @cached_property
    def varying_attributes(self) -> frozenset[str]:
        """Those of "count", "background" and "style" that are not the same in all scenes of this world."""
        num_choices = {
            "count": sum(probability > 0 for probability in self.counts),
            "background": len(self.backgrounds),
            "style": sum(probability > 0 for _, probability in self.styles),
        }
        return frozenset(name for name, number in num_choices.items() if number > 1)

    def fingerprint_values(self) -> tuple[object, ...]:
        """The values of all fields, in a deterministic order; part of the fingerprints of data."""
        values = self.counts, self.grid, self.backgrounds, self.styles, sorted(self.unseen)
        weights = self.shape_weights, self.color_weights, self.size_weights
        # worlds of default values keep the fingerprints that they had before there were weights and passes
        is_default = weights == (World.shape_weights, World.color_weights, World.size_weights)
        optional = ([] if is_default else [weights]) + ([self.style_passes] if self.style_passes > 1 else [])
        return *values, *optional

    def draw_scene(self, seed: int, index: int) -> Scene:
        """Draw the scene of (seed, index): always the same one.

        Args:
            seed: Seed of the random stream.
            index: Index of the scene, from 0.

        Returns:
            The scene.
        """
        draws = RandomDraws(seed, index)
        count = draws.categorical(self.counts) + 1
        objects = []
        for cell in draws.sample(self.grid**2, count):
            shape, color, size = self._draw_kind(draws)
            objects.append(SceneObject(shape, color, size, *divmod(cell, self.grid)))
        background = draws.choice(self.backgrounds)
        style = self.styles[draws.categorical([probability for _, probability in self.styles])][0]
        render_seed = draws.uint32() << 32 | draws.uint32()
        return Scene(tuple(objects), background, style, self.grid, render_seed, self.style_passes)

    def _draw_kind(self, draws: RandomDraws) -> tuple[str, str, str]:
        """A kind of object by its probability; consumes one draw."""
        if self.has_uniform_kinds:
            return draws.choice(self.object_kinds)
        return self.object_kinds[bisect_right(self._kind_thresholds, draws.uniform())]


def _freeze_fields(world: World) -> None:
    """Replace lists and sets in the fields of a world by tuples and frozensets, in place.

    ValueError if a field is not iterable, or holds no pairs where it should.
    """
    try:
        for name, values in (
            ("counts", tuple(world.counts)),
            ("backgrounds", tuple(world.backgrounds)),
            ("styles", tuple((style, probability) for style, probability in world.styles)),
            ("unseen", frozenset((color, shape) for color, shape in world.unseen)),
            ("shape_weights", tuple(world.shape_weights)),
            ("color_weights", tuple(world.color_weights)),
            ("size_weights", tuple(world.size_weights)),
        ):
            object.__setattr__(world, name, values)
    except (TypeError, ValueError):
        raise ValueError(
            "World: counts, backgrounds and weights must be sequences, styles pairs (style, probability), unseen pairs "
            f"(color, shape), not {world}"
        ) from None


def require_distribution(probabilities: object, name: str, length: int) -> None:
    """Raise ValueError unless a value is a sequence of probabilities that add up to 1.

    Args:
        probabilities: The value to check.
        name: Name of the value, for the message.
        length: Number of probabilities that there must be.
    """
    numbers = list(probabilities) if isinstance(probabilities, tuple | list) else []
    is_valid = len(numbers) == length and all(isinstance(n, int | float) and n >= 0 for n in numbers)
    if not is_valid or abs(sum(numbers) - 1) > 1e-9:
        raise ValueError(f"{name} must be {length} probabilities that add up to 1, not {probabilities!r}")


def require_image_size(size: int) -> None:
    """Raise ValueError unless the size of images is an integer from 32 to 224.

    Args:
        size: Height and width in pixels.
    """
    require_positive_int(size, "size", maximum=224)
    if size < 32:
        raise ValueError(
            f"size must be at least 32 pixels, not {size}: shapes of smaller images can't be recognized"
        )


SIMPLE = World(counts=(0.65, 0.35, 0.0), backgrounds=("white", "silver"))
SINGLE = replace(SIMPLE, counts=(1.0, 0.0, 0.0))
HARD = World(
    counts=(0.6, 0.3, 0.1),
    backgrounds=BACKGROUNDS,
    styles=(
        ("clean", 0.4),
        ("blurry", 0.1),
        ("dark", 0.1),
        ("noisy", 0.1),
        ("pixelated", 0.1),
        ("outlined", 0.1),
        ("grey", 0.05),
        ("faded", 0.05),
    ),
)
VARIED = replace(
    SIMPLE,
    counts=(0.7, 0.3, 0.0),
    shape_weights=(0.095, 0.08, 0.068, 0.057, 0.3, 0.18, 0.13, 0.09),  # round .3, pointed .7
    color_weights=(0.34, 0.22, 0.14, 0.1, 0.06, 0.05, 0.046, 0.044),  # warm .8, cold .2
    size_weights=(0.42, 0.58),
)
"""SIMPLE with unequal kinds of objects: the ambiguities of broad captions ("a warm thing") differ widely."""
STYLED = replace(
    SIMPLE,
    styles=(
        ("clean", 0.1),
        ("blurry", 0.15),
        ("dark", 0.15),
        ("noisy", 0.15),
        ("pixelated", 0.15),
        ("outlined", 0.1),
        ("grey", 0.05),
        ("faded", 0.15),
    ),
    style_passes=2,
)
"""SIMPLE in frequent, strong styles: images are hard to recognize, and prompts differ in value (`tasks`)."""
WORLDS: Mapping[str, World] = {
    "single": SINGLE,
    "simple": SIMPLE,
    "hard": HARD,
    "varied": VARIED,
    "styled": STYLED,
}


def get_world(name: str, unseen: int = 0) -> World:
    """Get a world by name.

    Args:
        name: A key of WORLDS: "single", "simple", "hard", "varied" or "styled".
        unseen: Number of pairs (color, shape) that are held out, always the same ones.

    Returns:
        The world.
    """
    require_choice(name, tuple(WORLDS), "world")
    return replace(WORLDS[name], unseen=get_unseen_pairs(unseen)) if unseen else WORLDS[name]


def get_unseen_pairs(count: int) -> frozenset[tuple[str, str]]:
    """Get the pairs (color, shape) to hold out.

    Args:
        count: Number of pairs.

    Returns:
        The pairs; the first eight, the next eight and so on each cover all colors and all shapes.

    Raises:
        ValueError: The count is negative, or no pair would be left.
    """
    if not 0 <= index(count) < len(COLORS) * len(SHAPES):
        raise ValueError(f"unseen must be from 0 to {len(COLORS) * len(SHAPES) - 1} pairs, not {count}")
    # round after round through the colors; a round pairs each color with another shape (3 and 8 have no common factor)
    rounds = (divmod(number, len(COLORS)) for number in range(count))
    return frozenset((COLORS[i], SHAPES[(3 * i + 1 + r) % len(SHAPES)]) for r, i in rounds)
