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
