"""ONNX: both towers as graphs that give mean and log-variance, checked against torch before they are handed over."""

from __future__ import annotations

import logging
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from prolip.extras import require
from prolip.files import write_whole
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.model.store import CONFIG, TOKENIZER, description, write_json

TOLERANCE = {"mean": 1e-5, "log_var": 1e-4}
"""Largest difference from torch, absolute, that an exported graph may have."""


class ImageGraph(nn.Module):
    """pixels (B, 3, S, S), normalised -> mean (B, D), log_var (B, D)."""

    def __init__(self, model: ProLIP) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        z = self.model.encode_image(pixels)
        return z.mean, z.log_var


class TextGraph(nn.Module):
    """ids (B, T) -> mean (B, D), log_var (B, D)."""

    def __init__(self, model: ProLIP) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        z = self.model.encode_text(ids)
        return z.mean, z.log_var


def export_onnx(model: ProLIP, folder: str | Path) -> dict[str, float]:
    """Write image.onnx, text.onnx, config.json and tokenizer.json; needs the extra `onnx`.

    The graphs take any batch size, the text one also any length where padding is masked. Both are run by onnxruntime on
    random inputs and compared with torch; the largest differences are returned, and too large ones are an error.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, "onnx")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ValueError(f"ONNX export takes a float32 model on the CPU, not {model.dtype} on {model.device}")
    folder = Path(folder)
    differences: dict[str, float] = {}
    image, text = ImageGraph(model), TextGraph(model)
    for name, graph, inputs, axes in (
        ("image", image, _pixels(model), [0]),
        ("text", text, _ids(model), _text_axes(model)),
    ):
        path = write_whole(folder / f"{name}.onnx", partial(_export, graph, inputs, axes))
        differences |= {f"{name} {part}": value for part, value in _compare(graph, inputs, path).items()}
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER)
    write_json(folder / CONFIG, {**description(model.config, model.origin), "format": "prolip-onnx"})
    return differences


def _export(graph: nn.Module, inputs: Tensor, axes: list[int], path: Path) -> None:
    shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(), (inputs,), path, dynamo=True, dynamic_shapes=shapes, verbose=False,
                input_names=["pixels" if inputs.is_floating_point() else "ids"], output_names=["mean", "log_var"],
                external_data=False,
            )  # fmt: skip
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _compare(graph: nn.Module, inputs: Tensor, path: Path) -> dict[str, float]:
    """Largest difference between onnxruntime and torch, on the inputs and on one row of them."""
    runtime = require("onnxruntime", "onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = dict.fromkeys(TOLERANCE, 0.0)
    for batch in (inputs, inputs[:1]):
        with torch.no_grad():
            wanted = Gaussian(*graph(batch))
        found = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        for (name, worst_so_far), value, ours in zip(
            worst.items(), found, (wanted.mean, wanted.log_var), strict=True
        ):
            worst[name] = max(worst_so_far, _distance(torch.from_numpy(value), ours))
    for name, value in worst.items():
        if not value <= TOLERANCE[name]:
            raise ValueError(
                f"{path}: {name} differs from torch by {value:.2g}, more than {TOLERANCE[name]:.0g}"
            )
    return worst


def _distance(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; equal infinities (points) don't differ."""
    return float(torch.where(a == b, 0.0, (a - b).abs()).max())


def _pixels(model: ProLIP) -> Tensor:
    size = model.config.image.pixels.size
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(0))


def _ids(model: ProLIP) -> Tensor:
    """Random words; the second text ends early, the last is empty."""
    rules = model.config.text.tokens
    generator = torch.Generator().manual_seed(0)
    length = rules.context_length if 1 not in _text_axes(model) else max(2, rules.context_length // 2)
    ids = torch.randint(rules.vocab_size, (3, length), generator=generator)
    ids[1, length // 2 :] = rules.pad_id
    ids[2] = rules.pad_id
    if rules.end_id is not None:
        ids[:, -1] = rules.end_id
    return ids


def _text_axes(model: ProLIP) -> list[int]:
    """Axes of any size: the batch, and the length unless padding up to the whole context is read."""
    text = model.config.text
    return [0] if text.padding == "attended" and not text.causal else [0, 1]
