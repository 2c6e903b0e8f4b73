"""Evaluation sets of scenes: what is drawn, under which label, with which class names and templates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from prolip.scenes.lexicon import OPENINGS, PICTURES, count_phrases
from prolip.scenes.meaning import PLACES
from prolip.scenes.random_draws import Draws
from prolip.scenes.wording import with_article
from prolip.scenes.world import COLOURS, SHAPES, SIZES, STYLES, Scene, Thing, World

TEMPLATES = (
    "a {c}",
    "{c}",
    "a picture of a {c}",
    "an image of a {c}",
    "a photo of a {c}",
    "a drawing of a {c}",
    "there is a {c}",
    "here is a {c}",
    "this is a {c}",
    "we see a {c} here",
    "look here at a {c}",
    "here you can see a {c}",
    *(f"a {style} picture of a {{c}}" for style in STYLES),
    *(f"a {{c}} in a {style} drawing" for style in STYLES),
)
"""`{c}` is the class name, as in the 38 tasks. Those with a style suit some classes and mislead for others."""

PLAIN_TEMPLATES = (
    "{c}",
    *(f"{with_article(noun)} of {{c}}" for noun in PICTURES),
    *(f"{opening} {{c}}" for opening in OPENINGS),
    *(f"{with_article(style)} picture of {{c}}" for style in STYLES),
)
"""For class names that bring their article along."""
FAVOURITES = (0.6, 0.3)
"""Shares of a class's own two styles; the rest is drawn as the world draws it."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What all pictures of a class have in common. One thing, unless `count` says otherwise."""

    name: str
    colour: str | None = None
    shape: str | None = None
    cell: tuple[int, int] | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Task:
    """A zero-shot classification task. Picture number `index` is of class shown[index % len(shown)]."""

    name: str
    kinds: tuple[Kind, ...]
    templates: tuple[str, ...] = TEMPLATES
    shown: tuple[int, ...]

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)

    def sample(self, world: World, seed: int, index: int) -> tuple[Scene, int]:
        """A scene and its label."""
        label = self.shown[index % len(self.shown)]
        draws = Draws(seed, index, 2)
        scene = _conforming(world.scene(seed, index), self.kinds[label], world, draws)
        return replace(scene, style=_style(scene.style, self.name, label, world, draws)), label


def tasks(world: World) -> tuple[Task, ...]:
    """The tasks that a world can pose."""
    pairs = [Kind(name=f"{c} {s}", colour=c, shape=s) for c, s in product(COLOURS, SHAPES)]
    corners = {place: parts for place, parts in PLACES.items() if len(parts) == 2}
    ends = {"top": 0, "left": 0, "bottom": world.grid - 1, "right": world.grid - 1}
    places = [
        Kind(name=f"a thing in the {place}", cell=(ends[row], ends[column]))
        for place, (row, column) in corners.items()
    ]
    counts = [
        Kind(name=count_phrases(number)[0], count=number)
        for number, share in enumerate(world.counts, start=1)
        if share > 0
    ]
    seen = tuple(i for i, kind in enumerate(pairs) if (kind.colour, kind.shape) not in world.unseen)
    found = [
        replace(_task("colour_shape", pairs), shown=seen),
        _task("shape", [Kind(name=shape, shape=shape) for shape in SHAPES]),
        _task("colour", [Kind(name=f"{colour} thing", colour=colour) for colour in COLOURS]),
        _task("place", places, PLAIN_TEMPLATES),
    ]
    if len(counts) > 1:
        found.append(_task("count", counts, PLAIN_TEMPLATES))
    if world.unseen:
        unseen = tuple(i for i in range(len(pairs)) if i not in seen)
        found.append(replace(_task("unseen", pairs), shown=unseen))
    return tuple(found)


def _task(name: str, kinds: list[Kind], templates: tuple[str, ...] = TEMPLATES) -> Task:
    return Task(name=name, kinds=tuple(kinds), templates=templates, shown=tuple(range(len(kinds))))


def _conforming(scene: Scene, kind: Kind, world: World, draws: Draws) -> Scene:
    """The scene with as many things as the class has, the first of them as the class says."""
    cells = [divmod(cell, world.grid) for cell in draws.sample(world.grid**2, kind.count)]
    if kind.cell is not None:
        cells[0] = kind.cell
    kinds = [
        (shape, colour, size)
        for shape, colour, size in world.kinds
        if kind.shape in (None, shape) and kind.colour in (None, colour)
    ]
    if not kinds:  # a pair that the world doesn't show
        kinds = [(str(kind.shape), str(kind.colour), size) for size in SIZES]
    return replace(scene, things=tuple(Thing(*draws.choice(kinds), *cell) for cell in cells))


def _style(style: str, task: str, label: int, world: World, draws: Draws) -> str:
    """One of the class's two favourites, or the scene's own; never grey, which would hide what a colour's name says."""
    if "style" not in world.facts:
        return style
    names = [name for name, share in world.styles if share > 0 and name != "grey"]
    own = Draws(label, *task.encode())
    favourites = [names[i] for i in own.sample(len(names), min(len(FAVOURITES), len(names)))]
    choice = draws.weighted((*FAVOURITES, 1 - sum(FAVOURITES)))
    if choice < len(favourites):
        return favourites[choice]
    return style if style != "grey" else draws.choice(names)
