"""What models are judged on: scenes drawn afresh, which no training has seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prolip.data.sample import Sample
from prolip.data.source import fingerprint_of, require_index
from prolip.data.sources.labeled import Labelled, open_labelled
from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from prolip.scenes import writer
from prolip.scenes.captions import Caption
from prolip.scenes.rendering import picture
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import Task, tasks
from prolip.scenes.world import Scene, World

PICTURES, POLLUTED, SHOTS = 2, 3, 4
"""Parts of the data, beside those of `write`: each has scenes of its own."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How many of everything. The defaults are those of the table.

    scenes:    fresh scenes, and pictures of each evaluation set.
    captions:  of each scene; levels, complete: as in training (see `Scenes`).
    polluted:  pairs that are filtered.
    attacked:  pictures that PGD is run on; attack: after how many steps one looks.
    shots:     pictures of a class to learn from. repeats: of what is random in BPRW.
    size, unseen, seed: of the scenes; the world is the simple one.
    """

    scenes: int = 1000
    captions: int = 4
    levels: tuple[float, ...] = (0.1, 0.2, 0.4, 0.3)
    complete: float = 0.5
    polluted: int = 4000
    attacked: int = 200
    attack: tuple[int, ...] = (1, 5, 10, 40)
    shots: int = 18
    repeats: int = 3
    size: int = 48
    unseen: int = 8
    seed: int = 70_007


@dataclass(frozen=True)
class Ground:
    """folder: where the evaluation sets are written, once."""

    folder: Path
    samples: Samples

    @property
    def plan(self) -> writer.Plan:
        s = self.samples
        return writer.Plan(level="simple", size=s.size, unseen=s.unseen, train=1, test=s.scenes, seed=s.seed)

    @property
    def world(self) -> World:
        return self.plan.world

    def prepare(self, show: bool | None = None) -> Ground:
        """Write the evaluation sets that are missing."""
        writer.write(self.folder, self.plan, show)
        return self

    def task(self, name: str) -> Labelled:
        return open_labelled(self.folder / f"wds_scenes-{name}_test")

    def shots(self, name: str) -> Labelled:
        """Other pictures of the same classes, to learn from."""
        task = next(task for task in tasks(self.world) if task.name == name)
        source = TaskScenes(
            task, self.world, self.samples.shots * len(task.shown), self.samples.size, self.seed_of(SHOTS)
        )
        return Labelled(source=source, class_names=task.class_names, templates=task.templates)

    def scenes(self, part: int, length: int) -> Scenes:
        return Scenes(
            self.world, length=length, size=self.samples.size, seed=self.seed_of(part),
            captions=self.samples.captions, levels=self.samples.levels, complete=self.samples.complete,
        )  # fmt: skip

    def seed_of(self, part: int) -> int:
        return writer.seed_of(self.samples.seed, part)


@dataclass(frozen=True)
class TaskScenes:
    """The pictures of a zero-shot task as a Source, drawn when they are read; the label is the sample's `cls`."""

    task: Task
    world: World
    length: int
    size: int
    seed: int

    @property
    def name(self) -> str:
        return f"scenes of {self.task.name}"

    @property
    def chunks(self) -> np.ndarray:
        return np.array([self.length])

    def __len__(self) -> int:
        return self.length

    def read(self, index: int) -> Sample:
        require_index(index, self.length)
        scene, label = self.task.sample(self.world, self.seed, index)
        return Sample(
            key=f"{self.seed}-{index}",
            where=f"{self.name}, number {index}",
            image=picture(scene, self.size),
            captions=(),
            extra={"cls": label},
        )

    def fingerprint(self) -> str:
        return fingerprint_of("task", self.task.name, *self.world.told(), self.length, self.size, self.seed)


@dataclass(frozen=True, eq=False, kw_only=True)
class Told:
    """N scenes as a model sees them, and T captions that are true of them.

    images: (N, D). captions: T. image_of: int64 (T,), the scene of each caption. texts: (T, D).
    """

    world: World
    source: Scenes
    images: Gaussian
    captions: tuple[Caption, ...]
    image_of: Tensor
    texts: Gaussian

    @cached_property
    def scenes(self) -> tuple[Scene, ...]:
        return tuple(self.world.scene(self.source.seed, index) for index in range(len(self.source)))

    @property
    def probabilistic(self) -> bool:
        return has_variances(self.images) and has_variances(self.texts)


def tell(embedder: Embedder, ground: Ground) -> Told:
    """Fresh scenes with captions of all levels, as often as in training, embedded."""
    source = ground.scenes(PICTURES, ground.samples.scenes)
    told = [source.captions(index) for index in range(len(source))]
    captions = tuple(caption for several in told for caption in several)
    counts = torch.tensor([len(several) for several in told])
    return Told(
        world=ground.world,
        source=source,
        images=embedder.images(source).images,
        captions=captions,
        image_of=torch.repeat_interleave(torch.arange(len(told)), counts),
        texts=embedder.texts([caption.text for caption in captions]),
    )


def has_variances(z: Gaussian) -> bool:
    """Not a deterministic model's."""
    return bool(torch.isfinite(z.log_var).all())


def with_constant_variance(z: Gaussian) -> Gaussian:
    """The same means; every log-variance is the mean of all: the control for what variances add."""
    return Gaussian(z.mean, z.log_var.mean().expand_as(z.log_var))
