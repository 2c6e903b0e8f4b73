"""ONNX: both towers as graphs that give mean and log-variance, checked against torch before they are handed over."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
from torch import Tensor, nn

from prolip.extras import require
from prolip.files import write_json
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.model.store import CONFIG, TOKENIZER, description

TOLERANCE = {"mean": 1e-5, "log_var": 1e-4}
"""Largest difference from torch, absolute, that an exported graph may have."""

LARGEST_FILE = 1.5e9
"""Bytes of weights that a graph's own file may hold: ONNX's files end at two gigabytes."""


class Graph(nn.Module):
    """pixels (B, 3, S, S), normalised, or ids (B, T) -> mean (B, D), log_var (B, D)."""

    def __init__(self, model: ProLIP, side: Literal["image", "text"]) -> None:
        super().__init__()
        self.model = model
        self.side = side

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        z = self.model.encode_image(inputs) if self.side == "image" else self.model.encode_text(inputs)
        return z.mean, z.log_var


def export_onnx(model: ProLIP, folder: str | Path) -> dict[str, float]:
    """Write image.onnx, text.onnx, config.json and tokenizer.json; needs the extra `onnx`.

    The graphs take any batch size, the text one also any length where padding is masked. Both are run by onnxruntime on
    random inputs and compared with torch; the largest differences are returned, and too large ones are an error that
    leaves nothing behind. Weights of more than a gigabyte and a half lie beside the graph, in image.onnx.data.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, "onnx")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ValueError(f"ONNX export takes a float32 model on the CPU, not {model.dtype} on {model.device}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    differences: dict[str, float] = {}
    with TemporaryDirectory(dir=folder, prefix=".onnx.") as name:
        aside = Path(name)
        image, text = Graph(model, "image"), Graph(model, "text")
        for graph, inputs, axes in ((image, _pixels(model), [0]), (text, _ids(model), _text_axes(model))):
            path = _export(graph, inputs, axes, aside / f"{graph.side}.onnx")
            differences |= {
                f"{graph.side} {part}": value for part, value in _compare(graph, inputs, path).items()
            }
        for path in sorted(aside.iterdir(), reverse=True):  # weights before the graph that needs them
            os.replace(path, folder / path.name)
    if model.tokenizer is not None:
        model.tokenizer.save(folder / TOKENIZER)
    write_json(folder / CONFIG, {**description(model.config, model.origin), "format": "prolip-onnx"})
    return differences


def _export(graph: Graph, inputs: Tensor, axes: list[int], path: Path) -> Path:
    shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
    tower = graph.model.image if graph.side == "image" else graph.model.text
    size = sum(p.numel() * p.element_size() for p in tower.parameters())
    level, training = logging.getLogger("torch.onnx").level, graph.model.training
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(), (inputs,), path, dynamo=True, dynamic_shapes=shapes, verbose=False,
                input_names=["pixels" if graph.side == "image" else "ids"], output_names=["mean", "log_var"],
                external_data=size > LARGEST_FILE,
            )  # fmt: skip
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
        graph.train(training)
    return path


def _compare(graph: Graph, inputs: Tensor, path: Path) -> dict[str, float]:
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
            difference = _distance(torch.from_numpy(value), ours)
            worst[name] = float(torch.tensor([worst_so_far, difference]).max())  # Python's max would lose NaN
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
