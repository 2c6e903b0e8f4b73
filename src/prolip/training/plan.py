"""What a run will do, in words: its stages with their data, its steps, its learning rate, what is trained."""

from __future__ import annotations

from collections.abc import Sequence

from prolip.storage.addresses import redact_secrets
from prolip.training.config import TrainConfig
from prolip.training.run_folder import DataDescription
from prolip.training.step import TrainModule


def describe_stage(config: TrainConfig, index: int, data: Sequence[DataDescription]) -> str:
    """Describe a stage: its number, its steps, its loss terms and its data.

    Args:
        config: The run.
        index: Index in `config.stages`.
        data: What `describe_data` returned.

    Returns:
        One line.
    """
    stage, steps = config.stages[index], config.stage_steps
    first = sum(steps[:index]) + 1
    sources = describe_sources(stage.source or config.data.source, data)
    return (
        f"stage {index + 1} of {len(config.stages)}, steps {first:,} to {first - 1 + steps[index]:,}: "
        f"{', '.join(stage.objective.active)} on {sources}"
    )


def describe_sources(sources: Sequence[str], data: Sequence[DataDescription]) -> str:
    """List sources with their numbers of samples.

    Args:
        sources: As in `DataConfig.source`.
        data: What `describe_data` returned.

    Returns:
        For example "train.csv (463 samples), scenes:simple (10,000 samples)".
    """
    samples = {entry["source"]: entry["samples"] for entry in data}
    names = map(redact_secrets, sources)
    return ", ".join(
        f"{name} ({count:,} samples)" if (count := samples.get(name)) is not None else name for name in names
    )


def describe_run(config: TrainConfig, module: TrainModule, data: Sequence[DataDescription]) -> list[str]:
    """Describe what a run trains, on how much, and how.

    Args:
        config: The run.
        module: What is trained, before it is sharded.
        data: What `describe_data` returned.

    Returns:
        Lines: the start and the trained parameters; epochs, learning rate and warm-up; if the start is measured, the
        reference.
    """
    counts = {p.requires_grad: 0 for p in module.parameters()}
    for parameter in module.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    trained, total = counts.get(True, 0), sum(counts.values())
    start = (
        f"{config.model.pretrained}"
        if config.model.pretrained
        else f"new weights of size {config.model.size}"
    )
    share = f"{total:,} parameters" if trained == total else f"{trained:,} of {total:,} parameters"
    rank = config.model.lora_rank
    optimizer, held_out = config.optimizer, config.held_out
    lines = [
        f"start: {start}; {share} are trained{f' (LoRA of rank {rank})' if rank else ''}",
        f"{config.steps:,} steps of {config.batch_size:,} samples{_describe_epochs(config, data)}, learning rate "
        f"{optimizer.lr:.3g} after {optimizer.warmup_steps:,} warm-up steps",
    ]
    if held_out.source is not None and held_out.at_start:
        lines.append(f"held out: {redact_secrets(held_out.source)}")
    if held_out.reference is not None:
        lines.append(
            f"reference: {redact_secrets(held_out.reference)}; the end of the run says if recall on it fell by more "
            f"than {held_out.max_reference_drop:.0%}"
        )
    elif held_out.at_start:
        lines.append("no reference (--held-out.reference): what the start loses is not measured")
    return lines


def _describe_epochs(config: TrainConfig, data: Sequence[DataDescription]) -> str:
    """The passes over the data of a run on one kind of data: ", 12 epochs of 463"; "" if that isn't known."""
    sources = {stage.source or config.data.source for stage in config.stages}
    samples = [entry["samples"] for entry in data]
    if len(sources) > 1 or config.data.weights is not None or not samples:
        return ""
    total = 0
    for count in samples:
        if count is None:
            return ""
        total += count
    return f", {config.steps * config.batch_size / total:.3g} epochs of {total:,}"
