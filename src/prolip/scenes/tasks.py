"""Zero-shot classification tasks of scenes: classes, class names, templates, labeled scenes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from prolip.scenes.lexicon import IMAGE_NOUNS, OPENINGS, count_phrases
from prolip.scenes.meaning import POSITIONS
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.wording import add_article
from prolip.scenes.world import COLORS, SHAPES, SIZES, STYLES, Scene, SceneObject, World

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
"""`{c}` is the class name, as in the 38 tasks. Templates with a style fit some classes and mislead for others."""

VAGUE_TEMPLATES = ("a {c} and something", "something above a {c}", "a {c} with a thing", "a thing and a {c}")
"""They state that there is a second object, but not which."""
MISLEADING_TEMPLATES = (
    "a {c} above a blue star",
    "a {c} left of a red circle",
    "a yellow cross and a {c}",
    "a green ring below a {c}",
    "two things, a pink heart and a {c}",
    "a small purple square with a {c}",
)
"""They state a second object in full, which images of classes don't have. These and VAGUE_TEMPLATES are used in worlds
of strong styles (`World.style_passes` above 1), so that prompts differ in value."""

TEMPLATES_WITHOUT_ARTICLE = (
    "{c}",
    *(f"{add_article(noun)} of {{c}}" for noun in IMAGE_NOUNS),
    *(f"{opening} {{c}}" for opening in OPENINGS),
    *(f"{add_article(style)} picture of {{c}}" for style in STYLES),
)
"""For class names with an article."""
Kind = tuple[str, str, str]
"""Shape, color and size of an object."""
TASK_STREAM = 2
"""Last number of the seeds of a task's scenes. It fixes the data."""
STYLE_FRACTIONS = (0.6, 0.3)
"""Fractions of a class's images in its two typical styles; the others have a style as the world draws it."""


@dataclass(frozen=True, kw_only=True)
class SceneClass:
    """What all images of a class have in common. None: any.

    Attributes:
        name: The class name.
        color: Color of the objects.
        shape: Shape of the objects.
        cell: (row, column) of the first object.
        count: Number of objects.
    """

    name: str
    color: str | None = None
    shape: str | None = None
    cell: tuple[int, int] | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SceneTask:
    """A zero-shot classification task. Sample `index` has the label sampled_labels[index % len(sampled_labels)].

    Attributes:
        name: Name of the task and of its folder.
        classes: The classes, in the order of their labels.
        templates: Templates of prompts; `{c}` stands for the class name.
        sampled_labels: Labels of the classes of which images are drawn.
        style_key: Seeds the classes' typical styles, with the label.
    """

    name: str
    classes: tuple[SceneClass, ...]
    templates: tuple[str, ...] = TEMPLATES
    sampled_labels: tuple[int, ...]
    style_key: str

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names, by label."""
        return tuple(scene_class.name for scene_class in self.classes)

    def sample(self, world: World, seed: int, index: int) -> tuple[Scene, int]:
        """Draw the scene at an index, and its label.

        Args:
            world: The distribution of scenes.
            seed: Seed of the random stream.
            index: Index of the sample; labels follow each other in turn.

        Returns:
            The scene, and the index of its class.
        """
        label = self.sampled_labels[index % len(self.sampled_labels)]
        draws = RandomDraws(seed, index, TASK_STREAM)
        scene = _replace_objects(world.draw_scene(seed, index), self.classes[label], world, draws)
        return replace(scene, style=_draw_style(scene.style, self.style_key, label, world, draws)), label


def make_tasks(world: World) -> tuple[SceneTask, ...]:
    """Make the classification tasks that a world allows.

    Args:
        world: The distribution of scenes.

    Returns:
        The tasks: color_shape first, then shape, color and position; count and unseen if the world allows them.
    """
    pairs = [
        SceneClass(name=f"{color} {shape}", color=color, shape=shape)
        for color, shape in product(COLORS, SHAPES)
    ]
    corners = {position: parts for position, parts in POSITIONS.items() if len(parts) == 2}
    row_or_column = {"top": 0, "left": 0, "bottom": world.grid - 1, "right": world.grid - 1}
    positions = [
        SceneClass(name=f"a thing in the {position}", cell=(row_or_column[row], row_or_column[column]))
        for position, (row, column) in corners.items()
    ]
    counts = [
        SceneClass(name=count_phrases(number)[0], count=number)
        for number, probability in enumerate(world.counts, start=1)
        if probability > 0
    ]
    templates = TEMPLATES
    if world.style_passes > 1:
        templates += VAGUE_TEMPLATES + MISLEADING_TEMPLATES
    seen = tuple(label for label, pair in enumerate(pairs) if (pair.color, pair.shape) not in world.unseen)
    # Some style keys are former names of the tasks: the new names would draw other styles.
    tasks = [
        replace(_make_task("color_shape", pairs, templates, style_key="colour_shape"), sampled_labels=seen),
        _make_task("shape", [SceneClass(name=shape, shape=shape) for shape in SHAPES], templates),
        _make_task(
            "color",
            [SceneClass(name=f"{color} thing", color=color) for color in COLORS],
            templates,
            style_key="colour",
        ),
        _make_task("position", positions, TEMPLATES_WITHOUT_ARTICLE, style_key="place"),
    ]
    if len(counts) > 1:
        tasks.append(_make_task("count", counts, TEMPLATES_WITHOUT_ARTICLE))
    if world.unseen:
        unseen = tuple(label for label in range(len(pairs)) if label not in seen)
        tasks.append(replace(_make_task("unseen", pairs, templates), sampled_labels=unseen))
    return tuple(tasks)


def _make_task(
    name: str,
    classes: list[SceneClass],
    templates: tuple[str, ...] = TEMPLATES,
    style_key: str | None = None,
) -> SceneTask:
    """A task that draws images of all of its classes. style_key: None: the name of the task."""
    return SceneTask(
        name=name,
        classes=tuple(classes),
        templates=templates,
        sampled_labels=tuple(range(len(classes))),
        style_key=style_key or name,
    )


def _replace_objects(scene: Scene, scene_class: SceneClass, world: World, draws: RandomDraws) -> Scene:
    """A copy of a scene with new objects, such that it is of the class: their number, colors and shapes fit the class.

    The class's cell applies to the first object only. draws: choose the kinds and cells.
    """
    cells = [divmod(cell, world.grid) for cell in draws.sample(world.grid**2, scene_class.count)]
    if scene_class.cell is not None:
        cells[0] = scene_class.cell
    kinds = [
        (shape, color, size)
        for shape, color, size in world.object_kinds
        if scene_class.shape in (None, shape) and scene_class.color in (None, color)
    ]
    if not kinds:  # the class is a pair of color and shape that the world holds out
        kinds = [(str(scene_class.shape), str(scene_class.color), size) for size in SIZES]
    return replace(
        scene, objects=tuple(SceneObject(*_draw_kind(kinds, world, draws), *cell) for cell in cells)
    )


def _draw_kind(kinds: list[Kind], world: World, draws: RandomDraws) -> Kind:
    """One of the kinds of objects, in proportion to their weights in the world; consumes one draw."""
    if world.has_uniform_kinds:
        return draws.choice(kinds)
    weights = [world.weigh_kind(*kind) for kind in kinds]
    return kinds[draws.categorical([weight / sum(weights) for weight in weights])]


def _draw_style(style: str, style_key: str, label: int, world: World, draws: RandomDraws) -> str:
    """One of the class's two typical styles, or the scene's own `style`; never "grey", which would hide the color.

    The typical styles depend on style_key and label only. A world of one style keeps it.
    """
    if "style" not in world.varying_attributes:
        return style
    names = [name for name, probability in world.styles if probability > 0 and name != "grey"]
    class_draws = RandomDraws(label, *style_key.encode())
    typical = [names[i] for i in class_draws.sample(len(names), min(len(STYLE_FRACTIONS), len(names)))]
    choice = draws.categorical((*STYLE_FRACTIONS, 1 - sum(STYLE_FRACTIONS)))
    if choice < len(typical):
        return typical[choice]
    return style if style != "grey" else draws.choice(names)
