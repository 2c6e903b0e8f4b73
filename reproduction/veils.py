"""Images behind veils: correlation of image uncertainty with true ambiguity, and with wrong zero-shot answers."""

from __future__ import annotations

from typing import Any

import torch

from prolip.data.sample import Sample
from prolip.data.source import ImageAnnotation, compute_fingerprint, evenly_spaced, require_index
from prolip.data.sources.labeled import LabeledData
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import ImageAmbiguityConfig
from prolip.evaluation.image_ambiguity import evaluate_image_ambiguity
from prolip.evaluation.image_ambiguity_result import (
    PERPLEXITY,
    SOFTMAX,
    UNCERTAINTY,
    ImageAmbiguityResult,
    SequenceMetrics,
)
from prolip.evaluation.image_groups import POINTS
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.result import get_value
from prolip.scenes.captions import NUM_LEVELS, make_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.source import annotate_image
from prolip.scenes.tasks import make_tasks
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veiled_scenes import CURTAINS, OBJECTS, TEMPLATES, VeiledScenes
from prolip.scenes.veils import Veil, draw_veil
from reproduction.evaluation_data import EvaluationData, TaskScenes

VEILED_SPLIT, VEILED_TASK_SPLIT = 5, 6
"""Splits of the scenes behind veils; they enter the seeds of their scenes."""
TASK_VEIL_STREAM, TASK_CAPTION_STREAM = 18, 20
"""Last numbers of the seeds of the veils and captions of labeled images."""


class VeiledTaskScenes(TaskScenes):
    """The images of a zero-shot task, each behind a random veil; with a true caption of each level."""

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"veiled {super().name}"

    def draw_veil(self, index: int) -> Veil:
        """The veil of the image at an index; always the same one."""
        return draw_veil(RandomDraws(self.seed, index, TASK_VEIL_STREAM), self.world)

    def read(self, index: int) -> Sample:
        """Draw and render the sample at an index; raises IndexError beyond the length."""
        require_index(index, self.length)
        scene, label = self.task.sample(self.world, self.seed, index)
        draws = RandomDraws(self.seed, index, TASK_CAPTION_STREAM)
        return Sample(
            key=f"{self.seed}-{index}",
            location=f"{self.name}, index {index}",
            image=render_veiled(scene, self.size, self.draw_veil(index)),
            captions=tuple(make_caption(scene, level, draws, self.world).text for level in range(NUM_LEVELS)),
            extra={"cls": label},
        )

    def image_annotation(self, index: int) -> ImageAnnotation:
        """The veil of the image at an index, and its exact log-ambiguity."""
        scene, _ = self.task.sample(self.world, self.seed, index)
        return annotate_image(scene, self.draw_veil(index), self.world)

    def fingerprint(self) -> str:
        """A hash of all that the images depend on."""
        return compute_fingerprint("veiled", super().fingerprint())


def measure_veils(embedder: Embedder, data: EvaluationData) -> dict[str, Any] | None:
    """Measure image uncertainty on fresh scenes, each behind a random veil (`evaluate_image_ambiguity`).

    Returns:
        None for a deterministic model. Else, with None in place of a correlation if one side does not vary:
        n: number of images.
        spearman: correlation of uncertainty with the exact log-ambiguity of what the image shows.
        by_count: the same among images of scenes with one object, and with two, {n, spearman} each.
        within_veil: {mean (of the correlations within a veil), groups (number of veils with enough images), n (of their
            images)}.
        perplexity: of pool perplexity, the rival, {spearman, auroc (for wrong answers)}.
        curtains: for 0, 1, 2, 3 and 4 nested curtains over the same scenes, {n (pairs with the step before),
            log_ambiguity, uncertainty (means), rises (fraction of the pairs whose uncertainty rises)}.
        rises: fraction of images that are more uncertain than the whole image of their scene, {veil (behind a random
            veil), largest (only the largest object visible, of two), n_veil, n_largest}.
        errors: of zero-shot answers, the prompt "a {c}", by the match of the model's loss, on images of 64 classes
            behind veils: {n, accuracy, auroc (of uncertainty, for wrong answers), fpr95 (the same), max_softmax (AUROC
            of the largest softmax probability, the control)}.
    """
    if not embedder.has_uncertainty:
        return None
    source = VeiledScenes(
        data.world,
        num_scenes=data.sizes.scenes,
        size=data.sizes.size,
        seed=data.derive_seed(VEILED_SPLIT),
    )
    config = ImageAmbiguityConfig(controls=0)
    found = evaluate_image_ambiguity(embedder, source, config)
    answers = evaluate_image_ambiguity(embedder, _label_task(data), config)
    sequences = {sequence.name: sequence for sequence in found.sequences}
    largest = sequences[OBJECTS].steps[1].rises if OBJECTS in sequences else None
    return {
        "n": found.n,
        "spearman": _get_spearman(found, UNCERTAINTY),
        "by_count": _correlate_by_count(found, source),
        "within_veil": {
            "mean": None if (score := found.score(UNCERTAINTY)) is None else score.mean_within_veil,
            "groups": sum(veil.spearman is not None for veil in found.veils),
            "n": sum(veil.n for veil in found.veils if veil.spearman is not None),
        },
        "perplexity": {
            "spearman": _get_spearman(found, PERPLEXITY),
            "auroc": _get_error_metric(answers, PERPLEXITY, "auroc"),
        },
        "curtains": _describe_steps(sequences[CURTAINS]),
        "rises": {
            "veil": get_value(found.above_whole.uncertainty),
            "n_veil": found.above_whole.n,
            "largest": None if largest is None else get_value(largest.uncertainty),
            "n_largest": 0 if largest is None else largest.n,
        },
        "errors": {
            "n": answers.n,
            "accuracy": get_value(answers.accuracy),
            "auroc": _get_error_metric(answers, UNCERTAINTY, "auroc"),
            "fpr95": _get_error_metric(answers, UNCERTAINTY, "fpr95"),
            "max_softmax": _get_error_metric(answers, SOFTMAX, "auroc"),
        },
    }


def _label_task(data: EvaluationData) -> LabeledData:
    """The labeled images behind veils."""
    task = make_tasks(data.world)[0]
    seed = data.derive_seed(VEILED_TASK_SPLIT)
    source = VeiledTaskScenes(task, data.world, data.sizes.scenes, data.sizes.size, seed)
    return LabeledData(source=source, class_names=task.class_names, templates=TEMPLATES)


def _get_spearman(result: ImageAmbiguityResult, name: str) -> float | None:
    """The correlation of a score with the truth."""
    score = result.score(name)
    return None if score is None else score.spearman


def _get_error_metric(result: ImageAmbiguityResult, name: str, metric: str) -> float | None:
    """A metric of a score for wrong answers; None if there are none, or only wrong ones."""
    score = result.score(name)
    value: float | None = None if score is None else getattr(score.errors, metric, None)
    return value


def _correlate_by_count(found: ImageAmbiguityResult, source: VeiledScenes) -> dict[str, Any]:
    """`by_count` of `measure_veils`, over at most POINTS images."""
    rows = evenly_spaced(found.n, POINTS).tolist()
    counts = torch.tensor([len(source.scenes.draw_scene(row).objects) for row in rows])
    truth, uncertainty = (
        torch.tensor(values, dtype=torch.float64)
        for values in (found.points.log_ambiguity, found.points.uncertainty or ())
    )
    return {
        str(count): {
            "n": int((counts == count).sum()),
            "spearman": spearman(uncertainty[counts == count], truth[counts == count]),
        }
        for count in (1, 2)
    }


def _describe_steps(sequence: SequenceMetrics) -> list[dict[str, Any]]:
    """The steps of a sequence as plain values."""
    return [
        {
            "n": step.n if step.rises is None else step.rises.n,
            "log_ambiguity": step.log_ambiguity,
            "uncertainty": get_value(step.uncertainty),
            "rises": None if step.rises is None else get_value(step.rises.uncertainty),
        }
        for step in sequence.steps
    ]
