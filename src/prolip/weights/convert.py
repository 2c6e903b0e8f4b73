"""`prolip convert`: weights to our folder, a probabilistic model, or other formats."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from prolip.configs import takes_config
from prolip.files import require_empty_folder
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.weights import onnx
from prolip.weights.config import ConvertConfig
from prolip.weights.formats import release
from prolip.weights.formats.rules import LoadingReport
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import LIKELIHOOD_HEADS, NewHeads, make_probabilistic
from prolip.weights.sentence_transformers_folder import write_sentence_transformers_folder


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

    def to_json(self) -> str:
        """The result as JSON text; tensors by name, the model by its summary line."""
        content = {
            "out": str(self.out),
            "format": self.format,
            "model": repr(self.model),
            "loaded": list(self.report.loaded),
            "resized": list(self.report.resized),
            "initialized": list(self.report.initialized),
            "unused": dict(self.report.unused),
            "differences": self.differences,
        }
        return json.dumps(content)


@takes_config(ConvertConfig)
def convert(model: str | Path, out: str | Path, config: ConvertConfig) -> ConversionResult:
    """Load a model, convert it, and write it to a folder.

    Args:
        model: What `prolip.load` takes.
        out: Output folder, which must be new or empty.
        config: What to write; or its fields as keywords.

    Returns:
        The converted model and what happened to its tensors.

    Raises:
        ValueError, OSError: The output folder is not empty, the model can't be loaded (see `prolip.load`), or the
            target format can't represent it.
    """
    folder = Path(out).expanduser()
    require_empty_folder(folder)
    loaded = open_model(
        model, revision=config.revision, tokenizer=config.tokenizer, config=config.model_config
    )
    converted = resize_model(loaded.model, image_size=config.image_size, context_length=config.context_length)
    report = replace(loaded.report, resized=_list_resized(loaded.model, converted))
    if config.to in ("probabilistic", "likelihood"):
        heads = LIKELIHOOD_HEADS if config.to == "likelihood" else NewHeads()
        generator = torch.Generator().manual_seed(config.seed)
        converted, new_report = make_probabilistic(converted, generator, heads)
        report = replace(new_report, resized=report.resized, unused=(*report.unused, *new_report.unused))
    differences: dict[str, float] = {}
    if config.to == "release":
        release.export_release(converted, folder)
    elif config.to == "onnx":
        differences = onnx.export_onnx(converted.float(), folder, int8=config.int8)
    elif config.to == "sentence-transformers":
        write_sentence_transformers_folder(converted, folder)
    else:
        converted.save_pretrained(folder)
    return ConversionResult(converted, report, loaded.format, folder, differences)


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
    print(f"{result.out}, from the format {result.format}\n{result.model}")
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
