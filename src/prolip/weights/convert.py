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
        format: Name of the source's format.
        out: Output folder.
        differences: Largest absolute differences between ONNX and torch, by tower and output ("image mean"); empty for
            other targets.
    """

    model: ProLIP
    report: LoadingReport
    format: str
    out: Path
    differences: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values; tensors by name, the model by its summary line."""
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
    """Load a model, convert it, and write it to a folder.

    Args:
        source, revision, config, tokenizer, image_size, context_length: As for `prolip.load`.
        out: Output folder, which must be new or empty.
        to: What is written: "folder", a model folder of prolip; "probabilistic", one of the model with added
            uncertainty; "release", the files of the ProLIP release; "onnx", both towers as graphs.
        seed: Seed of newly initialized weights of a probabilistic model.

    Returns:
        The converted model and what happened to its tensors.

    Raises:
        ValueError, OSError: The output folder is not empty, the model can't be loaded (see `prolip.load`), or the
            target format can't represent it.
    """
    require_empty_folder(out)
    loaded = open_model(source, revision=revision, tokenizer=tokenizer, config=config)
    model = resize_model(loaded.model, image_size=image_size, context_length=context_length)
    report = replace(loaded.report, resized=_list_resized(loaded.model, model))
    if to == "probabilistic":
        model, new_report = make_probabilistic(model, torch.Generator().manual_seed(seed))
        report = replace(new_report, resized=report.resized, unused=(*report.unused, *new_report.unused))
    differences: dict[str, float] = {}
    if to == "release":
        release.export_release(model, out)
    elif to == "onnx":
        differences = onnx.export_onnx(model, out)
    else:
        model.save_pretrained(out)
    return ConversionResult(model, report, loaded.format, out, differences)


def _list_resized(before: ProLIP, after: ProLIP) -> tuple[str, ...]:
    """Sorted names of the tensors whose shapes differ between two models with the same tensor names."""
    old_tensors = before.state_dict()
    return tuple(
        sorted(name for name, value in after.state_dict().items() if value.shape != old_tensors[name].shape)
    )


def print_result(result: ConversionResult) -> None:
    """Print a conversion: which tensors were loaded, resized, newly initialized and unused, and what is missing.

    Args:
        result: Result of `convert`.
    """
    report = result.report
    print(f"{result.format} -> {result.out}\n{result.model}")
    print(f"loaded       {len(report.loaded)} tensors")
    if report.resized:
        print(f"resized      {', '.join(report.resized)}")
    print(f"initialized  {len(report.initialized)}", *report.initialized, sep="\n             ")
    print(f"unused       {len(report.unused)}", *_format_unused(report), sep="\n             ")
    if result.differences:
        differences = ", ".join(f"{name} {value:.1g}" for name, value in result.differences.items())
        print(f"Largest absolute differences between onnxruntime and torch: {differences}")
    if result.model.tokenizer is None:
        reason = f" ({result.model.tokenizer_error})" if result.model.tokenizer_error else ""
        print(f"No tokenizer was found{reason}. Convert again with --tokenizer to store one in the folder.")


def _format_unused(report: LoadingReport) -> list[str]:
    """One line per reason why tensors are unused, sorted: "reason: tensor, tensor"."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in report.unused:
        names_by_reason.setdefault(reason, []).append(name)
    return [f"{reason}: {', '.join(names)}" for reason, names in sorted(names_by_reason.items())]
