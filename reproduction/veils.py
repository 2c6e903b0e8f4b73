"""Images behind veils: correlation of image uncertainty with true ambiguity, and with wrong zero-shot answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.selective import auroc
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.source import Scenes
from prolip.scenes.tasks import make_tasks
from prolip.scenes.veiled_rendering import render_veiled
from prolip.scenes.veils import draw_veil
from reproduction.evaluation_data import EvaluationData

VEILED_SPLIT, VEILED_TASK_SPLIT = 5, 6
"""Splits of the scenes behind veils; they enter the seeds of their scenes."""
TASK_VEIL_STREAM = 18
"""Last number of the seeds of the veils of labeled images."""


def measure_veils(embedder: Embedder, data: EvaluationData) -> dict[str, Any] | None:
    """Measure image uncertainty on fresh scenes, each behind a random veil.

    Returns:
        None for a deterministic model. Else, with None in place of a correlation if one side does not vary:
        n: number of images.
        spearman: correlation of uncertainty with the exact log-ambiguity of what the image shows.
        by_count: the same among images of scenes with one object, and with two, {n, spearman} each.
        errors: of zero-shot answers, the prompt "a {c}", by the match of the model's loss, on images of 64 classes
            behind veils: {n, accuracy, auroc (of uncertainty, for wrong answers), max_softmax (the same of the largest
            softmax probability, the control)}.
    """
    if not embedder.has_uncertainty:
        return None
    source = Scenes(
        data.world, length=data.sizes.scenes, size=data.sizes.size, seed=data.derive_seed(VEILED_SPLIT),
        captions=1, veiled=1.0,
    )  # fmt: skip
    uncertainty = embedder.embed_images(source).images.uncertainty.double()
    truth = torch.tensor(
        [source.image_annotation(i).log_ambiguity for i in range(len(source))], dtype=torch.float64
    )
    counts = torch.tensor([len(source.draw_scene(i).objects) for i in range(len(source))])
    return {
        "n": len(source),
        "spearman": spearman(uncertainty, truth),
        "by_count": {
            str(count): {
                "n": int((counts == count).sum()),
                "spearman": spearman(uncertainty[counts == count], truth[counts == count]),
            }
            for count in (1, 2)
        },
        "errors": _measure_errors(embedder, data),
    }


def _measure_errors(embedder: Embedder, data: EvaluationData) -> dict[str, Any]:
    """`errors` of `measure_veils`."""
    task, seed = make_tasks(data.world)[0], data.derive_seed(VEILED_TASK_SPLIT)
    images, labels = [], []
    for index in range(data.sizes.scenes):
        scene, label = task.sample(data.world, seed, index)
        veil = draw_veil(RandomDraws(seed, index, TASK_VEIL_STREAM), data.world)
        images.append(render_veiled(scene, data.sizes.size, veil))
        labels.append(label)
    embedded = embedder.model.embed_images(images, progress=False)
    classes = embedder.embed_texts([f"a {name}" for name in task.class_names])
    logits: Tensor = embedder.logit_parameters.logits_matrix(embedded, classes).double()
    is_wrong = logits.argmax(1) != torch.tensor(labels)
    return {
        "n": len(labels),
        "accuracy": 1 - is_wrong.double().mean().item(),
        "auroc": auroc(is_wrong, embedded.uncertainty.double()),
        "max_softmax": auroc(is_wrong, -logits.softmax(1).amax(1)),
    }
