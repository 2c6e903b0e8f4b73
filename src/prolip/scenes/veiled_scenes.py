"""VeiledScenes: scenes whole, behind random veils, and behind more and more curtains; the ambiguity is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from prolip.data.image_annotations import describe_image
from prolip.data.sample import Sample
from prolip.data.source import ImageAnnotation, compute_fingerprint, require_index
from prolip.data.sources.labeled import LabeledData
from prolip.scenes.metadata import describe_captions, describe_scene
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render_masks
from prolip.scenes.source import Scenes, annotate_image
from prolip.scenes.tasks import make_tasks
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veils import Veil
from prolip.scenes.world import Scene, World

CURTAINS, OBJECTS = "curtains", "objects"
"""Names of the sequences: one to four curtains over random cells; curtains over all but the largest objects."""
MAX_CURTAINS = 4
"""Steps of the sequence of curtains."""
CURTAIN_FRACTION = 0.25
"""Fraction of the scenes, the first ones, that have a sequence of curtains: it has more images than all else."""
CURTAIN_STREAM = 19
"""Last number of the seeds of the order of curtains. It fixes the data."""
NUM_CAPTIONS = 4
"""Captions per scene; they are true of the whole scene."""
TEMPLATES = ("a {c}",)
"""Prompts of the classes."""


class View(NamedTuple):
    """Which image of which scene.

    Attributes:
        scene_index: Index of the scene.
        sequence, step: As in `ImageAnnotation`. Step None: behind a random veil.
    """

    scene_index: int
    sequence: str | None
    step: int | None


class VeiledScenes:
    """Images of known ambiguity, an `AnnotatedImages`; several of each scene.

    Of each scene there is the image behind a random veil, the whole image, and images in which curtains hide one, two,
    ... of its objects, the smallest first, down to the largest one alone (as in HierarImgs); of the first quarter of
    the scenes also images behind one, two, three and four curtains over random cells. In both sequences each image
    hides all that the one before hides.

    A sample's `extra` holds `json` (captions that are true of the whole scene, the scene, `describe_image` of the
    annotation) and, if the scene has one object, `cls`: the index of its color and shape among 64 classes.

    Args:
        world: The distribution of scenes.
        num_scenes: Number of scenes.
        size: Height and width of the images in pixels.
        seed: Seed of the scenes, captions and veils.
    """

    def __init__(self, world: World, *, num_scenes: int, size: int = 48, seed: int = 0) -> None:
        self.world, self.size, self.seed = world, size, seed
        self.name = "veiled scenes"
        self.scenes = Scenes(
            world, length=num_scenes, size=size, seed=seed, captions=NUM_CAPTIONS, veiled=1.0
        )
        self.num_curtain_scenes = math.ceil(CURTAIN_FRACTION * num_scenes)
        self.views = tuple(view for index in range(num_scenes) for view in self._iter_views(index))

    @property
    def chunks(self) -> np.ndarray:
        """int64 (1,): one chunk, since any order of reading is as fast."""
        return np.array([len(self.views)])

    def __len__(self) -> int:
        return len(self.views)

    def read(self, index: int) -> Sample:
        """Render an image and draw its captions; see the class.

        Args:
            index: Index of the sample, from 0.

        Returns:
            The sample, with a PIL image.
        """
        require_index(index, len(self))
        view = self.views[index]
        scene, captions = self.scenes.draw_scene(view.scene_index), self.scenes.captions(view.scene_index)
        record = {
            **describe_captions(captions, self.world),
            "scene": describe_scene(scene),
            **describe_image(self.image_annotation(index)),
        }
        label = self._find_label(scene)
        return Sample(
            key=f"{self.seed}-{index}",
            location=f"{self.name}, seed {self.seed}, index {index}",
            image=render_veiled(scene, self.size, self.draw_veil(index)),
            captions=tuple(caption.text for caption in captions),
            extra={"json": record} | ({} if label is None else {"cls": label}),
        )

    def draw_veil(self, index: int) -> Veil:
        """Draw the veil of the image at an index; always the same one."""
        view = self.views[index]
        if view.step is None:
            return self.scenes.draw_veil(view.scene_index)
        if view.step == 0:
            return Veil()
        scene = self.scenes.draw_scene(view.scene_index)
        if view.sequence == CURTAINS:
            draws = RandomDraws(self.seed, view.scene_index, CURTAIN_STREAM)
            cells = [divmod(cell, scene.grid) for cell in draws.sample(scene.grid**2, MAX_CURTAINS)]
        else:
            areas = render_masks(scene, self.size).sum((1, 2))
            smallest_first = [scene.objects[i] for i in np.argsort(areas, kind="stable")]
            cells = [(obj.row, obj.column) for obj in smallest_first]
        return Veil(curtains=frozenset(cells[: view.step]))

    def image_annotation(self, index: int) -> ImageAnnotation:
        """Get what is known of the image at an index.

        Args:
            index: Index of the sample, from 0.

        Returns:
            Its veil, the exact log-ambiguity (nats), its scene, sequence and step.
        """
        view = self.views[index]
        annotation = annotate_image(
            self.scenes.draw_scene(view.scene_index), self.draw_veil(index), self.world
        )
        return annotation._replace(scene=str(view.scene_index), sequence=view.sequence, step=view.step)

    def label(self) -> LabeledData:
        """The same images with the names of the classes; scenes of several objects have no label."""
        return LabeledData(
            source=self, class_names=make_tasks(self.world)[0].class_names, templates=TEMPLATES
        )

    def fingerprint(self) -> str:
        """Digest of everything that decides the samples (see `Source.fingerprint`)."""
        return compute_fingerprint("veiled scenes", self.scenes.fingerprint(), len(self))

    def _iter_views(self, index: int) -> Iterator[View]:
        """Yield the images of the scene at an index."""
        yield View(index, None, None)
        yield View(index, None, 0)
        if index < self.num_curtain_scenes:
            yield from (View(index, CURTAINS, step) for step in range(1, MAX_CURTAINS + 1))
        num_objects = len(self.scenes.draw_scene(index).objects)
        yield from (View(index, OBJECTS, step) for step in range(1, num_objects))

    def _find_label(self, scene: Scene) -> int | None:
        """The class of a scene of one object; None for several objects."""
        if len(scene.objects) > 1:
            return None
        return self._labels[scene.objects[0].color, scene.objects[0].shape]

    @cached_property
    def _labels(self) -> dict[tuple[str | None, str | None], int]:
        """Labels by color and shape."""
        classes = make_tasks(self.world)[0].classes
        return {(one.color, one.shape): label for label, one in enumerate(classes)}
