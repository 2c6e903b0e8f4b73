"""What fine-tuning starts from and where it ends: held-out recall, and a reference on which the start is good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import Subset
from prolip.data.sources.labeled import CLASS_PLACEHOLDER, LabeledData, has_class_names, open_labeled
from prolip.model.prolip import ProLIP
from prolip.storage.addresses import redact_secrets
from prolip.training.config import DataConfig, HeldOutConfig, TrainConfig
from prolip.training.data_setup import HeldOutSamples, open_source, require_files, stack_samples

RECALL, REFERENCE = "held_out/r1", "held_out/reference_r1"
"""Metrics: recall@1 on held-out data, and on the reference (of labeled images: accuracy)."""


def read_reference(config: TrainConfig, model: ProLIP) -> HeldOutSamples | None:
    """Read at most `held_out.samples` samples of the reference, evenly spaced, preprocessed as for evaluation.

    Args:
        config: `held_out.reference` names the data. Columns of the run's own data don't apply to it.
        model: For its preprocessing and tokenizer.

    Returns:
        Images with their longest captions; of labeled images these are prompts of their classes. None: no reference.

    Raises:
        ValueError: The data is a stream or features, or has fewer than 2 samples that aren't bad.
    """
    spec = config.held_out.reference
    if spec is None:
        return None
    require_files(spec, "held_out.reference")
    data = DataConfig(max_pixels=config.data.max_pixels)
    source = ClassCaptions(open_labeled(spec)) if has_class_names(spec) else open_source(spec, data)
    limited = Subset(source, config.held_out.samples)
    return stack_samples(limited, len(limited), model, data, "held_out.reference")


class ClassCaptions(Subset):
    """Labeled images as pairs: the caption is the first template with the name of the class.

    Args:
        data: Images with labels.
    """

    def __init__(self, data: LabeledData) -> None:
        super().__init__(data.source, len(data.source))
        self._data = data

    def read(self, index: int) -> Sample:
        """Read a sample, with the caption of its class; BadSampleError if its label can't be read."""
        sample = super().read(index)
        extra = dict(sample.extra)
        if isinstance(content := extra.get("cls"), bytes):
            try:
                extra["cls"] = int(content)
            except ValueError:
                raise BadSampleError("unreadable row", sample.location, "its .cls is no integer") from None
        label = int(self._data.labels([replace(sample, extra=extra)])[0])
        caption = self._data.templates[0].replace(CLASS_PLACEHOLDER, self._data.class_names[label])
        return replace(sample, captions=(caption,))


def find_lost_ability(
    config: HeldOutConfig, start: Mapping[str, float], end: Mapping[str, float]
) -> str | None:
    """Find out whether the reference fell by more than `max_reference_drop`.

    Args:
        config: The reference and the largest drop.
        start: Metrics before the first step.
        end: Metrics after the last step.

    Returns:
        A message that says what was lost and what may keep it; None if nothing was, or nothing was measured.
    """
    before, after = start.get(REFERENCE), end.get(REFERENCE)
    if (
        config.reference is None
        or before is None
        or after is None
        or before - after <= config.max_reference_drop
    ):
        return None
    return (
        f"ABILITY LOST: {_describe_metric(config)} on the reference {redact_secrets(config.reference)} fell from "
        f"{before:.1%} to {after:.1%}. The model is now one for its own data. To keep what it could: data of the start "
        "beside your own in --data.source, --model.lora-rank 8, a lower --optimizer.lr, or fewer --samples "
        "(docs/own-data.md)"
    )


def describe_outcome(
    config: HeldOutConfig,
    start: Mapping[str, float],
    end: Mapping[str, float],
    sizes: Mapping[str, int],
) -> list[str]:
    """Describe what a run has changed.

    Args:
        config: Held-out data and reference.
        start: Metrics before the first step.
        end: Metrics after the last step.
        sizes: Number of samples of each metric.

    Returns:
        A line per metric that was measured at both ends, and the message of `find_lost_ability`.
    """
    labels = {RECALL: "held-out R@1", REFERENCE: f"{_describe_metric(config)} on the reference"}
    lines = [
        f"{label} (n = {sizes[name]:,}): {start[name]:.1%} before, {end[name]:.1%} after"
        for name, label in labels.items()
        if name in start and name in end
    ]
    lost = find_lost_ability(config, start, end)
    return lines if lost is None else [*lines, lost]


def measures_accuracy(config: HeldOutConfig) -> bool:
    """Whether the reference has labels, so that its metric is an accuracy.

    Args:
        config: Names the reference.
    """
    return config.reference is not None and has_class_names(Path(config.reference))


def _describe_metric(config: HeldOutConfig) -> str:
    """The name of the reference's metric, for messages."""
    return "zero-shot accuracy" if measures_accuracy(config) else "R@1"
