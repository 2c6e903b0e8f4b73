"""ONNX export: both towers as graphs with mean and log-variance, verified against torch, and what they need."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from prolip.choices import Modality
from prolip.extras import import_extra
from prolip.files import atomic_write, write_json
from prolip.gaussian import Gaussian
from prolip.model.folder import CONFIG_FILE, TOKENIZER_FILE, make_config_json
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.standalone_tokenizer import make_standalone_tokenizer
from prolip.weights import onnx_frozen
from prolip.weights.formats.preprocessing import to_transformers
from prolip.weights.onnx_int8 import quantize_graph
from prolip.weights.onnx_module import export_module, tidy_graph

TOLERANCE = {"mean": 1e-5, "log_var": 1e-4}
"""Largest absolute difference between an exported graph and torch."""

INT8_TOLERANCE = {"mean": math.inf, "log_var": math.inf}
"""The same of an int8 graph: only NaN is refused. What int8 costs is measured, see docs/weights.md."""

PIXELS_FILE = "preprocessor_config.json"

MAX_EMBEDDED_BYTES = 1.5e9
"""Bytes of weights that are stored in the graph's own file: an ONNX file is limited to two gigabytes."""

MODALITIES: tuple[Modality, Modality] = ("image", "text")


class TowerGraph(nn.Module):
    """A tower for export: normalized pixels (B, 3, S, S) or ids (B, T) -> mean (B, D), log_var (B, D)."""

    def __init__(self, model: ProLIP, tower: Modality) -> None:
        super().__init__()
        self.model = model
        self.tower = tower
        self.train(model.training)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Encode a batch, see the class; returns mean and log_var, each (B, D)."""
        z = self.model.encode_image(inputs) if self.tower == "image" else self.model.encode_text(inputs)
        return z.mean, z.log_var


def export_onnx(model: ProLIP, folder: str | Path, *, int8: bool = False) -> dict[str, float]:
    """Write graphs, and what makes their inputs: tokenizer.json and preprocessor_config.json; extra `onnx`.

    The graphs are image.onnx (input `pixels`) and text.onnx (input `ids`), with the outputs `mean` and `log_var`. They
    take any batch size; the text graph takes any length, too, if padding is masked. Both are run by onnxruntime on
    random inputs and compared with torch. Weights of more than 1.5 GB are stored next to the graph, in image.onnx.data.

    `tokenizers.Tokenizer.from_file` of the tokenizer.json gives the ids of any text: it cleans, cuts and pads, see
    `make_standalone_tokenizer`. The preprocessor_config.json has the layout of transformers.

    A model with frozen encoders becomes graphs with the encoders in them; of an encoder that is a Python object, the
    graph is the head alone, with the input `features`.

    Args:
        model: A float32 model on the CPU.
        folder: Output folder, which is created if need be; files of an earlier export are replaced.
        int8: Also write image.int8.onnx and text.int8.onnx, whose matrix products have int8 weights: a quarter of
            the size, and faster on CPUs. A graph without matrix products has no int8 version.

    Returns:
        Largest absolute differences from torch, by tower and output: "image mean", "text log_var", ...; of the int8
        graphs "image int8 mean", ...

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
        for graph, inputs, axes in _list_graphs(model):
            differences |= _write_graphs(graph, inputs, axes, temporary, int8=int8)
        for tower in MODALITIES:
            (folder / f"{tower}.int8.onnx").unlink(missing_ok=True)  # of an earlier export
        for path in sorted(temporary.iterdir(), reverse=True):  # weights before the graph that needs them
            os.replace(path, folder / path.name)
    _write_preprocessing(model, folder)
    content = make_config_json(model.config, model.origin)
    content |= {"format": "prolip-onnx", "logit_parameters": model.logit_parameters._asdict()}
    write_json(folder / CONFIG_FILE, content)
    return differences


def _write_graphs(
    graph: TowerGraph | onnx_frozen.FeatureGraph, inputs: Tensor, axes: list[int], folder: Path, *, int8: bool
) -> dict[str, float]:
    """Write a tower's graph and, if asked for, its int8 version; return the differences from torch by output."""
    path, quantized = folder / f"{graph.tower}.onnx", folder / f"{graph.tower}.int8.onnx"
    if _is_onnx_encoder(graph.model, graph.tower):
        onnx_frozen.export_onnx_encoder(graph.model, graph.tower, inputs, path)
    else:
        _export_tower(graph, inputs, axes, path)
    tidy_graph(path, axes)
    found: dict[str, dict[str, float]] = {graph.tower: _compare_with_torch(graph, inputs, path, TOLERANCE)}
    if int8 and quantize_graph(path, quantized, external_data=_is_large(graph)):
        found[f"{graph.tower} int8"] = _compare_with_torch(graph, inputs, quantized, INT8_TOLERANCE)
    return {f"{name} {output}": value for name, worst in found.items() for output, value in worst.items()}


def _write_preprocessing(model: ProLIP, folder: Path) -> None:
    """Write tokenizer.json and preprocessor_config.json; remove a tokenizer.json if the model has no tokenizer."""
    write_json(folder / PIXELS_FILE, to_transformers(model.config.image.preprocessing))
    path = folder / TOKENIZER_FILE
    if model.tokenizer is None:
        path.unlink(missing_ok=True)  # of a model that was exported there before
        return
    text = make_standalone_tokenizer(model.tokenizer).to_str(pretty=True)
    atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _list_graphs(model: ProLIP) -> list[tuple[TowerGraph | onnx_frozen.FeatureGraph, Tensor, list[int]]]:
    """The two graphs to export, with inputs and their dynamic axes.

    Of a frozen encoder that can't be exported, a Python object, the graph is the head alone, and takes features.
    """
    graphs: list[tuple[TowerGraph | onnx_frozen.FeatureGraph, Tensor, list[int]]] = []
    for tower in MODALITIES:
        inputs, axes = _make_pixels(model), [0]
        if tower == "text":
            inputs, axes = _make_ids(model), _get_dynamic_text_axes(model)
        if not model.config.is_frozen or _is_onnx_encoder(model, tower):
            graphs.append((TowerGraph(model, tower), inputs, axes))
            continue
        network = onnx_frozen.find_network(model, tower)
        assert network is None or isinstance(network, nn.Module)
        if network is None:
            inputs, axes = _make_features(model, tower), [0]
        graphs.append((onnx_frozen.FeatureGraph(model, tower, network), inputs, axes))
    return graphs


def _is_onnx_encoder(model: ProLIP, tower: Modality) -> bool:
    """Whether a tower has a frozen encoder that is an ONNX graph itself."""
    if not model.config.is_frozen:
        return False
    network = onnx_frozen.find_network(model, tower)
    return network is not None and not isinstance(network, nn.Module)


def _make_features(model: ProLIP, tower: Modality) -> Tensor:
    """Random features of three inputs, (3, F), the same on every call."""
    config = model.config.image if tower == "image" else model.config.text
    assert isinstance(config, FrozenImageConfig | FrozenTextConfig)
    return torch.randn(3, config.encoder.dim, generator=torch.Generator().manual_seed(0))


def _export_tower(
    graph: TowerGraph | onnx_frozen.FeatureGraph, inputs: Tensor, axes: list[int], path: Path
) -> Path:
    """Write one tower as an ONNX file; return its path. Silences the exporter's log and warnings meanwhile.

    Args:
        graph: The tower; it is exported in eval mode, and its mode is restored.
        inputs: Pixels or ids that the exporter traces.
        axes: Axes of `inputs` whose lengths may differ when the graph is run.
        path: The file. Large weights go to a second file next to it, see `MAX_EMBEDDED_BYTES`.
    """
    is_large = _is_large(graph)
    if isinstance(graph, onnx_frozen.FeatureGraph):
        return onnx_frozen.export_feature_graph(graph, inputs, axes, path, is_large)
    names = ([onnx_frozen.INPUT_NAMES[graph.tower]], list(TOLERANCE))
    return export_module(graph, (inputs,), path, names, axes, external_data=is_large)


def _is_large(graph: TowerGraph | onnx_frozen.FeatureGraph) -> bool:
    """Whether the weights of a tower, with its encoder, go to a second file."""
    module: nn.Module = graph.model.image if graph.tower == "image" else graph.model.text
    module = graph if isinstance(graph, onnx_frozen.FeatureGraph) else module
    return sum(p.numel() * p.element_size() for p in module.parameters()) > MAX_EMBEDDED_BYTES


def _compare_with_torch(
    graph: TowerGraph | onnx_frozen.FeatureGraph, inputs: Tensor, path: Path, tolerance: Mapping[str, float]
) -> dict[str, float]:
    """Compare the ONNX file with torch; return the largest absolute differences of mean and log_var.

    Both run on the whole inputs and on their first row, which tests another batch size. Raises ValueError if a
    difference is above the tolerance or NaN.
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
        if not value <= tolerance[name]:
            raise ValueError(
                f"{path}: {name} differs from torch by {value:.2g}, more than {tolerance[name]:.0g}"
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
    if model.config.is_frozen:
        return [0, 1]
    text = model.config.text_transformer
    return [0] if text.padding == "attended" and not text.causal else [0, 1]
