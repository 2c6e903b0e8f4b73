"""ONNX export of towers with frozen encoders: encoder, pooling, feature map and head in one graph."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from prolip.choices import Modality
from prolip.extras import import_extra
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP
from prolip.weights.encoders.base import ImageEncoder, TextEncoder, find_tokens
from prolip.weights.encoders.onnx_graph import ImageGraph, TextGraph, pool_output
from prolip.weights.onnx_module import export_module

MIN_OPSET = 18
"""Operators of an older graph are converted to this version, the oldest that torch's exporter writes."""
INPUT_NAMES: dict[Modality, str] = {"image": "pixels", "text": "ids"}
OUTPUTS = {"output_mean": "mean", "output_log_var": "log_var"}
"""Names of outputs while a graph is made -> in the end. Values within a graph may have the name `mean`, too."""


class FeatureGraph(nn.Module):
    """A tower for export: inputs of the encoder, or features (B, F) if `network` is None -> mean, log_var, (B, D)."""

    def __init__(self, model: ProLIP, tower: Modality, network: nn.Module | None) -> None:
        super().__init__()
        self.model, self.tower, self.network = model, tower, network
        self.train(model.training)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Encode a batch, see the class."""
        return self.encode_features(inputs if self.network is None else self.network(inputs))

    def encode_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """mean and log_var, each (B, D), of features (B, F)."""
        z = self.model.encode_features(features.float(), self.tower)
        return z.mean, z.log_var


class _TextInputs(nn.Module):
    """Ids (B, T) -> the inputs of a text graph, by name and in their order, and the ids once more."""

    def __init__(self, pad_id: int, names: list[str]) -> None:
        super().__init__()
        self.pad_id, self.names = pad_id, names

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Prepare a batch, see the class."""
        mask = find_tokens(ids, self.pad_id).long()
        values = {"input_ids": ids.clone(), "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return (*(values[name] for name in self.names), ids.clone())


class _OutputHead(nn.Module):
    """The output of an encoder's graph, and for texts the ids (B, T) -> mean, log_var, (B, D)."""

    def __init__(self, graph: FeatureGraph, pad_id: int | None) -> None:
        super().__init__()
        self.features, self.pad_id = graph, pad_id
        self.train(graph.training)

    def forward(self, output: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Pool and encode, see the class."""
        is_token = None if ids is None or self.pad_id is None else find_tokens(ids, self.pad_id)
        return self.features.encode_features(pool_output(output, is_token))


def export_feature_graph(
    graph: FeatureGraph, inputs: Tensor, axes: list[int], path: Path, external_data: bool
) -> Path:
    """Write a tower whose encoder is a module of torch, or its head alone.

    Args:
        graph: The tower.
        inputs: Pixels (B, 3, S, S), ids (B, T) or features (B, F).
        axes: Axes of `inputs` whose lengths may differ when the graph is run.
        path: The file.
        external_data: Whether weights go to a second file next to it.

    Returns:
        path.
    """
    onnx = import_extra("onnx", "onnx")
    name = "features" if graph.network is None else INPUT_NAMES[graph.tower]
    with TemporaryDirectory() as folder:
        file = Path(folder, "tower.onnx")
        export_module(graph, (inputs,), file, ([name], list(OUTPUTS)), axes, external_data=external_data)
        content = onnx.compose.add_prefix(onnx.load(str(file)), "tower/")
    final = {name: name, **OUTPUTS}
    _rename(content.graph, {f"tower/{old}": new for old, new in final.items()})
    onnx.save(content, str(path), save_as_external_data=external_data, location=f"{path.name}.data")
    return path


def find_network(model: ProLIP, tower: Modality) -> nn.Module | ImageGraph | TextGraph | None:
    """What computes a tower's features, if it can be exported.

    Args:
        model: A model with frozen encoders.
        tower: Which.

    Returns:
        A module or a graph; None for a Python object, or if no encoder is attached.
    """
    part = getattr(model, tower)
    assert isinstance(part, FrozenTower)
    encoder = part.encoder if part.has_encoder else None
    network = encoder.network if isinstance(encoder, ImageEncoder | TextEncoder) else None
    return network if isinstance(network, nn.Module | ImageGraph | TextGraph) else None


def export_onnx_encoder(model: ProLIP, tower: Modality, inputs: Tensor, path: Path) -> Path:
    """Write one graph of a tower whose encoder is an ONNX graph itself.

    Args:
        model: The model.
        tower: Which.
        inputs: Pixels (B, 3, S, S) or ids (B, T).
        path: The file.

    Returns:
        path.

    Raises:
        ValueError: The encoder's operators can't be converted.
    """
    onnx = import_extra("onnx", "onnx")
    network = find_network(model, tower)
    assert isinstance(network, ImageGraph | TextGraph)
    encoder = _read_graph(onnx, network.path)
    opset = _get_opset(encoder)
    head = _OutputHead(
        FeatureGraph(model, tower, None), network.pad_id if isinstance(network, TextGraph) else None
    )
    output, is_text = _run_graph(network, inputs), tower == "text"
    with TemporaryDirectory() as folder:
        tail_inputs = (output, inputs) if is_text else (output,)
        tail_names = (["output", "ids"][: len(tail_inputs)], list(OUTPUTS))
        tail_axes = [0, 1] if is_text and output.ndim == 3 else [0]
        tail = onnx.load(
            str(
                export_module(
                    head, tail_inputs, Path(folder, "tail.onnx"), tail_names, tail_axes, opset=opset
                )
            )
        )
        tail = onnx.compose.add_prefix(tail, "head/")
        encoder = onnx.compose.add_prefix(encoder, "encoder/")
        links = [(f"encoder/{network.output_name}", "head/output")]
        if isinstance(network, TextGraph):
            front = _TextInputs(network.pad_id, list(network.input_names))
            names = (["ids"], [*network.input_names, "copy"])
            file = export_module(front, (inputs,), Path(folder, "front.onnx"), names, [0, 1], opset=opset)
            front_graph = onnx.compose.add_prefix(onnx.load(str(file)), "input/")
            front_links = [(f"input/{name}", f"encoder/{name}") for name in network.input_names]
            encoder = _merge(onnx, front_graph, encoder, front_links)
            links.append(("input/copy", "head/ids"))
            first = "input/ids"
        else:
            first = f"encoder/{network.input_name}"
        merged = _merge(onnx, encoder, tail, links)
    outputs = {f"head/{name}": final for name, final in OUTPUTS.items()}
    _rename(merged.graph, {first: INPUT_NAMES[tower], **outputs})
    onnx.save(merged, str(path))
    return path


def _read_graph(onnx: Any, path: Path) -> Any:
    """The encoder's graph with its weights, with operators of at least `MIN_OPSET`, and its first output only."""
    graph = onnx.load(str(path))
    if _get_opset(graph) < MIN_OPSET:
        try:
            graph = onnx.version_converter.convert_version(graph, MIN_OPSET)
        except Exception as error:  # of C++, without a common base
            raise ValueError(
                f"the operators of {path}, version {_get_opset(graph)}, can't be converted to version {MIN_OPSET}: "
                f"{str(error).splitlines()[0]}. Export the encoder with a newer opset"
            ) from error
    del graph.graph.output[1:]
    return graph


def _get_opset(graph: Any) -> int:
    """Version of the standard operators of a graph."""
    return next(int(entry.version) for entry in graph.opset_import if entry.domain in ("", "ai.onnx"))


def _run_graph(network: ImageGraph | TextGraph, inputs: Tensor) -> Tensor:
    """The output of an encoder's graph before pooling; images one at a time."""
    if isinstance(network, ImageGraph):
        return torch.cat([network.run(image) for image in inputs.split(1)])
    return network.run(inputs)


def _merge(onnx: Any, first: Any, second: Any, links: list[tuple[str, str]]) -> Any:
    """Two graphs as one: outputs of the first are inputs of the second."""
    first.ir_version = second.ir_version = max(first.ir_version, second.ir_version)
    return onnx.compose.merge_models(first, second, io_map=links)


def _rename(graph: Any, names: dict[str, str]) -> None:
    """Rename values of a graph, in place."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
