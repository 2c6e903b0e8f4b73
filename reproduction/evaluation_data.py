"""Evaluation data of the reproduction: fresh scenes that no training has seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prolip.choices import SceneWorld
from prolip.data.sample import Sample
from prolip.data.source import compute_fingerprint, require_index
from prolip.data.sources.labeled import LabeledData, open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from prolip.scenes.captions import Caption
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.rendering import render
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import SceneTask, make_tasks
from prolip.scenes.world import Scene, World
from prolip.scenes.writer import derive_split_seed, write_dataset

PAIRS_SPLIT, NOISY_SPLIT, SHOTS_SPLIT = 2, 3, 4
"""Splits beside those of `write_dataset`; they enter the seeds of their scenes."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSizes:
    """Sizes of the evaluation data. The defaults are those of the table.

    Attributes:
        scenes: Number of fresh scenes, and of images of each evaluation set.
        captions: Captions per scene.
        levels, complete: Fractions of captions by level, and of complete ones, as in training; see `Scenes`.
        noisy: Number of pairs to filter.
        num_pgd: Number of images that PGD attacks.
        pgd_steps: Numbers of steps after which the images are evaluated.
        shots: Labeled images per class.
        repeats: Random repetitions of BPRW.
        size: Pixels per side of an image.
        unseen: Number of color-shape pairs that no training scene shows.
        seed: Seed from which those of all splits are derived.
        world: World of the scenes.
    """

    scenes: int = 1000
    captions: int = 4
    levels: tuple[float, ...] = (0.1, 0.2, 0.4, 0.3)
    complete: float = 0.5
    noisy: int = 4000
    num_pgd: int = 200
    pgd_steps: tuple[int, ...] = (1, 5, 10, 40)
    shots: int = 18
    repeats: int = 3
    size: int = 48
    unseen: int = 8
    seed: int = 70_007
    world: SceneWorld = "simple"


@dataclass(frozen=True)
class EvaluationData:
    """Evaluation sets in a folder, which `prepare` writes, and scenes that are drawn on access."""

    folder: Path
    sizes: EvaluationSizes

    @property
    def spec(self) -> SceneDatasetSpec:
        """World and sizes of the evaluation sets that `prepare` writes."""
        return SceneDatasetSpec(
            world=self.sizes.world, image_size=self.sizes.size, unseen=self.sizes.unseen, num_train=1,
            num_test=self.sizes.scenes, seed=self.sizes.seed,
        )  # fmt: skip

    @property
    def world(self) -> World:
        """The distribution of the scenes."""
        return self.spec.distribution

    def prepare(self, show: bool | None = None) -> EvaluationData:
        """Write the evaluation sets that are missing in the folder; returns self. show: a progress bar."""
        write_dataset(self.folder, self.spec, show)
        return self

    def task(self, name: str) -> LabeledData:
        """Open a zero-shot task by name, after `prepare`."""
        return open_labeled(self.folder / f"wds_scenes-{name}_test")

    def shots(self, name: str) -> LabeledData:
        """Labeled images of a task's classes to learn from, drawn from another split than the task itself."""
        task = next(task for task in make_tasks(self.world) if task.name == name)
        source = TaskScenes(
            task,
            self.world,
            self.sizes.shots * len(task.sampled_labels),
            self.sizes.size,
            self.derive_seed(SHOTS_SPLIT),
        )
        return LabeledData(source=source, class_names=task.class_names, templates=task.templates)

    def scenes(self, split: int, length: int) -> Scenes:
        """The first `length` scenes of a split, with captions as in training."""
        return Scenes(
            self.world, length=length, size=self.sizes.size, seed=self.derive_seed(split),
            captions=self.sizes.captions, levels=self.sizes.levels, complete=self.sizes.complete,
        )  # fmt: skip

    def derive_seed(self, split: int) -> int:
        """The seed of a split's scenes."""
        return derive_split_seed(self.sizes.seed, split)


@dataclass(frozen=True)
class TaskScenes:
    """The images of a zero-shot task as a Source, drawn on access; the label is `cls` of a sample's extra."""

    task: SceneTask
    world: World
    length: int
    size: int
    seed: int

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"scenes of {self.task.name}"

    @property
    def chunks(self) -> np.ndarray:
        """Lengths of the chunks of the source: all in one."""
        return np.array([self.length])

    def __len__(self) -> int:
        return self.length

    def read(self, index: int) -> Sample:
        """Draw and render the sample at an index; raises IndexError beyond the length."""
        require_index(index, self.length)
        scene, label = self.task.sample(self.world, self.seed, index)
        return Sample(
            key=f"{self.seed}-{index}",
            location=f"{self.name}, index {index}",
            image=render(scene, self.size),
            captions=(),
            extra={"cls": label},
        )

    def fingerprint(self) -> str:
        """A hash of all that the images depend on."""
        return compute_fingerprint(
            "task", self.task.name, *self.world.fingerprint_values(), self.length, self.size, self.seed
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddedScenes:
    """Embeddings of N scenes and of T captions that are true of them.

    Attributes:
        images: (N, D).
        captions: The T captions.
        image_of: int64 (T,), the row in `images` of each caption's scene.
        texts: (T, D).
    """

    world: World
    source: Scenes
    images: Gaussian
    captions: tuple[Caption, ...]
    image_of: Tensor
    texts: Gaussian

    @cached_property
    def scenes(self) -> tuple[Scene, ...]:
        """The N scenes, drawn again at the first access."""
        return tuple(self.world.draw_scene(self.source.seed, index) for index in range(len(self.source)))

    @property
    def probabilistic(self) -> bool:
        """Whether the model that made the embeddings has variances."""
        return has_variances(self.images) and has_variances(self.texts)


def embed_scenes(embedder: Embedder, evaluation_data: EvaluationData) -> EmbeddedScenes:
    """Embed fresh scenes and their captions, which have all levels as in training."""
    source = evaluation_data.scenes(PAIRS_SPLIT, evaluation_data.sizes.scenes)
    captions_by_scene = [source.captions(index) for index in range(len(source))]
    captions = tuple(caption for group in captions_by_scene for caption in group)
    counts = torch.tensor([len(group) for group in captions_by_scene])
    return EmbeddedScenes(
        world=evaluation_data.world,
        source=source,
        images=embedder.embed_images(source).images,
        captions=captions,
        image_of=torch.repeat_interleave(torch.arange(len(captions_by_scene)), counts),
        texts=embedder.embed_texts([caption.text for caption in captions]),
    )


def has_variances(z: Gaussian) -> bool:
    """Whether embeddings come from a probabilistic model: those of a deterministic one have log-variances of -inf."""
    return bool(torch.isfinite(z.log_var).all())


def replace_with_constant_variance(z: Gaussian) -> Gaussian:
    """A copy in which every log-variance is the mean of all: the control for what learned variances add."""
    return Gaussian(z.mean, z.log_var.mean().expand_as(z.log_var))
