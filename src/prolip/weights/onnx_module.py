"""Export of a torch module as an ONNX graph, without the exporter's log and warnings."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch import Tensor, nn

from prolip.extras import import_extra

AXIS_NAMES = ("batch", "length")
"""Names of the dynamic axes of an exported graph: 0 and 1 of its input, 0 of its outputs."""


def export_module(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    names: tuple[Sequence[str], Sequence[str]],
    axes: Sequence[int],
    *,
    external_data: bool = False,
    opset: int | None = None,
) -> Path:
    """Export a module in eval mode; its mode is restored.

    Args:
        module: The module.
        inputs: Inputs that the exporter traces.
        path: The file. External data go to a second file next to it.
        names: Names of the inputs and of the outputs.
        axes: Axes of the inputs whose lengths may differ when the graph is run.
        external_data: Whether weights are stored in a second file.
        opset: Version of the operators; None: the exporter's default.

    Returns:
        path.
    """
    level, training = logging.getLogger("torch.onnx").level, module.training
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of torchvision, which it doesn't need
    dynamic = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
    shapes = tuple({axis: dim for axis, dim in dynamic.items() if axis < value.ndim} for value in inputs)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(), inputs, path, dynamo=True, dynamic_shapes=shapes, verbose=False,
                input_names=list(names[0]), output_names=list(names[1]), external_data=external_data,
                opset_version=opset,
            )  # fmt: skip
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
        module.train(training)
    return path


def tidy_graph(path: Path, axes: Sequence[int]) -> None:
    """Name the dynamic axes of a graph's input and outputs by `AXIS_NAMES`, whatever the exporter called them.

    Also list the standard operators once: merged graphs list them as "" and as "ai.onnx", which onnxruntime's
    quantization refuses.

    Args:
        path: The file, with one input; it is written again. Weights in a second file stay where they are.
        axes: Dynamic axes of the input. Of the outputs, (B, D), axis 0 is dynamic.
    """
    onnx = import_extra("onnx", "onnx")
    content = onnx.load(str(path), load_external_data=False)
    graph = content.graph
    del graph.value_info[
        :
    ]  # shapes of values in between, which have the exporter's names; nothing needs them
    for axis in axes:
        graph.input[0].type.tensor_type.shape.dim[axis].dim_param = AXIS_NAMES[axis]
    for value in graph.output:
        value.type.tensor_type.shape.dim[0].dim_param = AXIS_NAMES[0]
    versions = {entry.domain.replace("ai.onnx", ""): entry.version for entry in content.opset_import}
    del content.opset_import[:]
    content.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in versions.items())
    onnx.save(content, str(path))
