"""ONNX export: both towers as graphs with mean and log-variance, verified against torch."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
from torch import Tensor, nn

from prolip.extras import import_extra
from prolip.files import write_json
from prolip.gaussian import Gaussian
from prolip.model.folder import CONFIG_FILE, TOKENIZER_FILE, make_config_json
from prolip.model.prolip import ProLIP

TOLERANCE = {"mean": 1e-5, "log_var": 1e-4}
"""Largest absolute difference between an exported graph and torch."""

MAX_EMBEDDED_BYTES = 1.5e9
"""Bytes of weights that are stored in the graph's own file: an ONNX file is limited to two gigabytes."""


class TowerGraph(nn.Module):
    """A tower for export: normalized pixels (B, 3, S, S) or ids (B, T) -> mean (B, D), log_var (B, D)."""

    def __init__(self, model: ProLIP, tower: Literal["image", "text"]) -> None:
        super().__init__()
        self.model = model
        self.tower = tower

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Encode a batch, see the class; returns mean and log_var, each (B, D)."""
        z = self.model.encode_image(inputs) if self.tower == "image" else self.model.encode_text(inputs)
        return z.mean, z.log_var


def export_onnx(model: ProLIP, folder: str | Path) -> dict[str, float]:
    """Write image.onnx, text.onnx, config.json and tokenizer.json; needs the extra `onnx`.

    The graphs take any batch size; the text graph takes any length, too, if padding is masked. Both are run by
    onnxruntime on random inputs and compared with torch. Weights of more than 1.5 GB are stored next to the graph,
    in image.onnx.data.

    Args:
        model: A float32 model on the CPU.
        folder: Output folder, which is created if need be; files of an earlier export are replaced.

    Returns:
        Largest absolute differences from torch, by tower and output: "image mean", "text log_var", ...

    Raises:
        ValueError: The model has another dtype or device, or a difference is above `TOLERANCE`; no file is written.
        MissingExtraError: The extra `onnx` is not installed.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        import_extra(module, "onnx")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ValueError(
            f"ONNX export takes a float32 model on the CPU, not {model.dtype} on {model.device}. Convert it first: "
            'model.to("cpu", torch.float32).'
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    differences: dict[str, float] = {}
    with TemporaryDirectory(dir=folder, prefix=".onnx.") as name:
        temporary = Path(name)
        image, text = TowerGraph(model, "image"), TowerGraph(model, "text")
        for graph, inputs, axes in (
            (image, _make_pixels(model), [0]),
            (text, _make_ids(model), _get_dynamic_text_axes(model)),
        ):
            path = _export_tower(graph, inputs, axes, temporary / f"{graph.tower}.onnx")
            differences |= {
                f"{graph.tower} {output}": value
                for output, value in _compare_with_torch(graph, inputs, path).items()
            }
        for path in sorted(temporary.iterdir(), reverse=True):  # weights before the graph that needs them
            os.replace(path, folder / path.name)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER_FILE)
    else:
        (folder / TOKENIZER_FILE).unlink(missing_ok=True)  # of a model that was exported there before
    write_json(
        folder / CONFIG_FILE, {**make_config_json(model.config, model.origin), "format": "prolip-onnx"}
    )
    return differences


def _export_tower(graph: TowerGraph, inputs: Tensor, axes: list[int], path: Path) -> Path:
    """Write one tower as an ONNX file; return its path. Silences the exporter's log and warnings meanwhile.

    Args:
        graph: The tower; it is exported in eval mode, and its mode is restored.
        inputs: Pixels or ids that the exporter traces.
        axes: Axes of `inputs` whose lengths may differ when the graph is run.
        path: The file. Large weights go to a second file next to it, see `MAX_EMBEDDED_BYTES`.
    """
    shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
    module = graph.model.image if graph.tower == "image" else graph.model.text
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    level, training = logging.getLogger("torch.onnx").level, graph.model.training
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(), (inputs,), path, dynamo=True, dynamic_shapes=shapes, verbose=False,
                input_names=["pixels" if graph.tower == "image" else "ids"], output_names=["mean", "log_var"],
                external_data=size > MAX_EMBEDDED_BYTES,
            )  # fmt: skip
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
        graph.train(training)
    return path


def _compare_with_torch(graph: TowerGraph, inputs: Tensor, path: Path) -> dict[str, float]:
    """Compare the ONNX file with torch; return the largest absolute differences of mean and log_var.

    Both run on the whole inputs and on their first row, which tests another batch size. Raises ValueError if a
    difference is above `TOLERANCE` or NaN.
    """
    runtime = import_extra("onnxruntime", "onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = dict.fromkeys(TOLERANCE, 0.0)
    for batch in (inputs, inputs[:1]):
        with torch.no_grad():
            expected = Gaussian(*graph(batch))
        outputs = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        for (name, worst_so_far), output, expected_output in zip(
            worst.items(), outputs, (expected.mean, expected.log_var), strict=True
        ):
            difference = _max_difference(torch.from_numpy(output), expected_output)
            worst[name] = float(torch.tensor([worst_so_far, difference]).max())  # Python's max would lose NaN
    for name, value in worst.items():
        if not value <= TOLERANCE[name]:
            raise ValueError(
                f"{path}: {name} differs from torch by {value:.2g}, more than {TOLERANCE[name]:.0g}"
            )
    return worst


def _max_difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference of two tensors; equal infinities (log-variances of points) differ by 0."""
    return float(torch.where(a == b, 0.0, (a - b).abs()).max())


def _make_pixels(model: ProLIP) -> Tensor:
    """Random normalized pixels of three images, (3, 3, S, S), the same on every call."""
    size = model.config.image.preprocessing.size
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(0))


def _make_ids(model: ProLIP) -> Tensor:
    """Random ids of three texts, (3, T), the same on every call; the second text ends early, the last is empty."""
    tokenizer = model.config.text.tokenizer
    generator = torch.Generator().manual_seed(0)
    has_dynamic_length = 1 in _get_dynamic_text_axes(model)
    length = max(2, tokenizer.context_length // 2) if has_dynamic_length else tokenizer.context_length
    ids = torch.randint(tokenizer.vocab_size, (3, length), generator=generator)
    ids[1, length // 2 :] = tokenizer.pad_id
    ids[2] = tokenizer.pad_id
    if tokenizer.end_id is not None:
        ids[:, -1] = tokenizer.end_id
    return ids


def _get_dynamic_text_axes(model: ProLIP) -> list[int]:
    """Axes of ids (B, T) with variable length: 0, and 1 unless the tower attends to padding up to the full context."""
    text = model.config.text_transformer
    return [0] if text.padding == "attended" and not text.causal else [0, 1]
