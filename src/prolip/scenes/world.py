"""Which scenes there are, and how likely each is: one to three things on a grid, a background, a drawing style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index

from prolip.checks import require_choice, require_count
from prolip.scenes.random_draws import Draws

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "round": ("circle", "ring", "crescent", "heart"),
    "pointed": ("square", "triangle", "star", "cross"),
}
TONES: Mapping[str, tuple[str, ...]] = {
    "warm": ("red", "orange", "yellow", "pink"),
    "cold": ("green", "cyan", "blue", "purple"),
}
SHAPES = tuple(shape for shapes in FAMILIES.values() for shape in shapes)
COLOURS = tuple(colour for colours in TONES.values() for colour in colours)
FAMILY_OF = {shape: family for family, shapes in FAMILIES.items() for shape in shapes}
TONE_OF = {colour: tone for tone, colours in TONES.items() for colour in colours}
SIZES = ("small", "large")
BACKGROUNDS = ("white", "silver", "striped", "checked")
STYLES = ("clean", "blurry", "dark", "noisy", "pixelated", "outlined", "grey", "faded")
MOST_THINGS = 3


@dataclass(frozen=True, slots=True)
class Thing:
    """One drawn object; row and column of the grid count from the top left."""

    shape: str
    colour: str
    size: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows. `nuance` fixes all that no caption tells: exact places, sizes, hues, grain."""

    things: tuple[Thing, ...]
    background: str
    style: str
    grid: int
    nuance: int


@dataclass(frozen=True, kw_only=True)
class World:
    """A distribution over scenes.

    counts:      probabilities of one, two and three things.
    grid:        2 or 3 cells a side; the things of a scene are in different cells, all placements equally likely.
    backgrounds: equally likely.
    styles:      with their probabilities.
    unseen:      pairs (colour, shape) that no thing has: held out, to test what was never seen. All other kinds of
                 things (colour, shape, size) are equally likely, and the things of a scene independent.
    """

    counts: tuple[float, float, float] = (1.0, 0.0, 0.0)
    grid: int = 2
    backgrounds: tuple[str, ...] = ("white",)
    styles: tuple[tuple[str, float], ...] = (("clean", 1.0),)
    unseen: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        _freeze(self)
        require_distribution(self.counts, "World: counts", MOST_THINGS)
        if self.grid not in (2, 3) or not isinstance(self.grid, int):
            raise ValueError(f"World: grid must be 2 or 3 cells a side, not {self.grid!r}")
        for background in self.backgrounds:
            require_choice(background, BACKGROUNDS, "World: background")
        for style, _ in self.styles:
            require_choice(style, STYLES, "World: style")
        if not self.backgrounds or len(set(self.backgrounds)) < len(self.backgrounds):
            raise ValueError(
                f"World: backgrounds must be different, and at least one, not {self.backgrounds!r}"
            )
        if len({style for style, _ in self.styles}) < len(self.styles):
            raise ValueError(f"World: styles must be different, not {self.styles!r}")
        require_distribution([share for _, share in self.styles], "World: styles", len(self.styles))
        for colour, shape in self.unseen:
            require_choice(colour, COLOURS, "World: unseen colour")
            require_choice(shape, SHAPES, "World: unseen shape")
        if not self.kinds:
            raise ValueError("World: every pair of colour and shape is unseen: nothing is left to draw")

    @cached_property
    def kinds(self) -> tuple[tuple[str, str, str], ...]:
        """(shape, colour, size) of every possible thing."""
        return tuple(
            (shape, colour, size)
            for shape in SHAPES
            for colour in COLOURS
            if (colour, shape) not in self.unseen
            for size in SIZES
        )

    @cached_property
    def facts(self) -> frozenset[str]:
        """What can be said of a whole scene that is not the same for all: of "count", "background", "style"."""
        varied = {
            "count": sum(share > 0 for share in self.counts),
            "background": len(self.backgrounds),
            "style": sum(share > 0 for _, share in self.styles),
        }
        return frozenset(name for name, choices in varied.items() if choices > 1)

    def told(self) -> tuple[object, ...]:
        """All that makes this world, in an order that no hash decides."""
        return self.counts, self.grid, self.backgrounds, self.styles, sorted(self.unseen)

    def scene(self, seed: int, index: int) -> Scene:
        """Scene number `index` of a seed; the same wherever and whenever it is asked for."""
        draws = Draws(seed, index)
        count = draws.weighted(self.counts) + 1
        things = []
        for cell in draws.sample(self.grid**2, count):
            shape, colour, size = draws.choice(self.kinds)
            things.append(Thing(shape, colour, size, *divmod(cell, self.grid)))
        background = draws.choice(self.backgrounds)
        style = self.styles[draws.weighted([share for _, share in self.styles])][0]
        return Scene(tuple(things), background, style, self.grid, draws.word() << 32 | draws.word())


def _freeze(world: World) -> None:
    """Lists and sets, as JSON and people bring them, to what can be hashed."""
    try:
        for name, values in (
            ("counts", tuple(world.counts)),
            ("backgrounds", tuple(world.backgrounds)),
            ("styles", tuple((style, share) for style, share in world.styles)),
            ("unseen", frozenset((colour, shape) for colour, shape in world.unseen)),
        ):
            object.__setattr__(world, name, values)
    except (TypeError, ValueError):
        raise ValueError(
            "World: counts and backgrounds are lists, styles pairs (style, probability), unseen pairs (colour, shape)"
        ) from None


def require_distribution(shares: object, what: str, length: int) -> None:
    numbers = list(shares) if isinstance(shares, tuple | list) else []
    good = len(numbers) == length and all(isinstance(n, int | float) and n >= 0 for n in numbers)
    if not good or abs(sum(numbers) - 1) > 1e-9:
        raise ValueError(f"{what} must be {length} probabilities that add up to 1, not {shares!r}")


def require_size(size: int) -> None:
    """Pixels a side of a picture of a scene."""
    require_count(size, "size", most=224)
    if size < 32:
        raise ValueError(f"size must be at least 32 pixels: below, shapes can't be told apart; not {size}")


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
WORLDS: Mapping[str, World] = {"single": SINGLE, "simple": SIMPLE, "hard": HARD}


def world_named(name: str, unseen: int = 0) -> World:
    """A world by name; unseen: so many pairs (colour, shape) are held out, always the same ones."""
    require_choice(name, tuple(WORLDS), "world")
    return replace(WORLDS[name], unseen=unseen_pairs(unseen)) if unseen else WORLDS[name]


def unseen_pairs(count: int) -> frozenset[tuple[str, str]]:
    """So many pairs (colour, shape), spread evenly: each eight of them in turn have all colours and all shapes."""
    if not 0 <= index(count) < len(COLOURS) * len(SHAPES):
        raise ValueError(f"unseen must be from 0 to {len(COLOURS) * len(SHAPES) - 1} pairs, not {count}")
    rounds = (divmod(number, len(COLOURS)) for number in range(count))
    return frozenset((COLOURS[i], SHAPES[(3 * i + 1 + r) % len(SHAPES)]) for r, i in rounds)
