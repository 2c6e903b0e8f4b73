"""`prolip convert`: weights to our folder, a probabilistic model, the ProLIP release, or ONNX."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from prolip.files import require_empty_folder
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.weights import onnx
from prolip.weights.formats import release
from prolip.weights.formats.rules import LoadingReport
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import make_probabilistic

Target = Literal["folder", "probabilistic", "release", "onnx"]


@dataclass(frozen=True)
class ConversionResult:
    """Result of a conversion.

    Attributes:
        model: The converted model.
        report: What happened to its tensors.
        format: Format of the source.
        out: Output folder.
        differences: Largest differences between ONNX and torch; empty for other targets.
    """

    model: ProLIP
    report: LoadingReport
    format: str
    out: Path
    differences: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        return {
            "out": str(self.out),
            "format": self.format,
            "model": repr(self.model),
            "loaded": list(self.report.loaded),
            "resized": list(self.report.resized),
            "initialized": list(self.report.initialized),
            "unused": dict(self.report.unused),
            "differences": self.differences,
        }


def convert(
    source: str | Path,
    out: Path,
    *,
    to: Target = "folder",
    revision: str | None = None,
    config: Path | None = None,
    tokenizer: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
) -> ConversionResult:
    """Convert a model.

    Args:
        source, revision, config, tokenizer, image_size, context_length: As for `prolip.load`.
        out: A new or empty folder.
        to: Target format.
        seed: Seed of newly initialized weights of a probabilistic model.

    Returns:
        The converted model and what happened to its tensors.

    Raises:
        ValueError: The output folder is not empty, or the target format can't represent the model.
    """
    require_empty_folder(out)
    loaded = open_model(source, revision=revision, tokenizer=tokenizer, config=config)
    model = resize_model(loaded.model, image_size=image_size, context_length=context_length)
    report = replace(loaded.report, resized=_list_resized(loaded.model, model))
    if to == "probabilistic":
        model, made = make_probabilistic(model, torch.Generator().manual_seed(seed))
        report = replace(made, resized=report.resized, unused=(*report.unused, *made.unused))
    differences: dict[str, float] = {}
    if to == "release":
        release.export_release(model, out)
    elif to == "onnx":
        differences = onnx.export_onnx(model, out)
    else:
        model.save(out)
    return ConversionResult(model, report, loaded.format, out, differences)


def _list_resized(before: ProLIP, after: ProLIP) -> tuple[str, ...]:
    """Sorted names of the tensors whose shape changed."""
    old = before.state_dict()
    return tuple(sorted(name for name, value in after.state_dict().items() if value.shape != old[name].shape))


def print_result(result: ConversionResult) -> None:
    """Print which tensors were loaded, resized, newly initialized and unused.

    Args:
        result: Result of `convert`.
    """
    report = result.report
    print(f"{result.format} -> {result.out}\n{result.model}")
    print(f"loaded       {len(report.loaded)} tensors")
    if report.resized:
        print(f"resized      {', '.join(report.resized)}")
    print(f"initialized  {len(report.initialized)}", *report.initialized, sep="\n             ")
    print(f"unused       {len(report.unused)}", *_group_by_reason(report), sep="\n             ")
    if result.differences:
        worst = ", ".join(f"{name} {value:.1g}" for name, value in result.differences.items())
        print(f"Largest difference between onnxruntime and torch: {worst}")
    if result.model.tokenizer is None:
        reason = f" ({result.model.tokenizer_error})" if result.model.tokenizer_error else ""
        print(f"No tokenizer was found{reason}. Convert again with --tokenizer to store one in the folder.")


def _group_by_reason(report: LoadingReport) -> list[str]:
    """One line per reason for not using tensors: "reason: tensor, tensor"."""
    reasons = sorted({reason for _, reason in report.unused})
    names = {reason: [name for name, other in report.unused if other == reason] for reason in reasons}
    return [f"{reason}: {', '.join(found)}" for reason, found in names.items()]
