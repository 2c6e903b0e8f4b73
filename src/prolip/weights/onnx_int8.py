"""Dynamic int8 quantization of an ONNX graph: weights of matrix products as int8, activations as the graph runs."""

from __future__ import annotations

import logging
from pathlib import Path

from prolip.extras import import_extra

QUANTIZED = "MatMul"
"""The operators whose weights become int8: those of the blocks. The heads (Gemm) stay float32: they are small, and
log-variances suffer most. So do convolutions: onnxruntime runs a dynamically quantized one more slowly than a float."""


def quantize_graph(path: Path, out: Path, *, external_data: bool) -> bool:
    """Write a graph with int8 weights, one scale per output channel.

    Args:
        path: The float32 graph.
        out: The file to write.
        external_data: Whether weights go to a second file next to it.

    Returns:
        Whether there is such a graph: False if it has no matrix product with a constant weight, as a convolutional
        network; no file is written then.
    """
    onnx = import_extra("onnx", "onnx")
    quantization = import_extra("onnxruntime.quantization", "onnx")
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises to optimize the graph before, which changes nothing here
    try:
        quantization.quantize_dynamic(
            str(path), str(out), op_types_to_quantize=[QUANTIZED], per_channel=True,
            weight_type=quantization.QuantType.QInt8, use_external_data_format=external_data,
        )  # fmt: skip
    finally:
        logger.setLevel(level)
    nodes = onnx.load(str(out), load_external_data=False).graph.node
    if any(node.op_type == "MatMulInteger" for node in nodes):
        return True
    for file in (out, Path(f"{out}.data")):
        file.unlink(missing_ok=True)
    return False
