"""Encoders that are ONNX graphs."""

import shutil

import numpy as np
import pytest
import torch

from prolip.weights.encoders import open_image_encoder, open_text_encoder
from tests.weights.encoders import tiny

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
CAPTIONS = ["a red circle above the star", "blue", "", "a small green square"]


def load(name):
    raise AssertionError(name)


@pytest.fixture(scope="module")
def image_graph(tmp_path_factory):
    return tiny.write_image_graph(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def text_graph(tmp_path_factory):
    return tiny.write_text_graph(tmp_path_factory.mktemp("text"))


def run(path, **inputs):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {name: value.numpy() for name, value in inputs.items()})[0])


def test_image_features_are_the_pooled_map(image_graph, generator):
    encoder = open_image_encoder(image_graph, load)
    pixels = torch.randn(3, 3, tiny.SIZE, tiny.SIZE, generator=generator)
    maps = run(image_graph, pixels=pixels)
    cells = maps.unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5)).flatten(2)
    expected = torch.cat([maps.mean((2, 3)), cells.amax(2)], dim=1)
    torch.testing.assert_close(encoder.encode(pixels), expected, rtol=0, atol=1e-5)
    assert encoder.config.dim == expected.shape[1]
    assert encoder.preprocessing.mean == (0.5, 0.5, 0.5)


def test_text_features_do_not_depend_on_padding(text_graph):
    encoder = open_text_encoder(text_graph, load)
    together = encoder.encode(encoder.tokenizer(CAPTIONS))
    for row, caption in enumerate(CAPTIONS):
        ids = encoder.tokenizer([caption])  # of the empty text one [PAD]
        tokens = run(text_graph, input_ids=ids, attention_mask=torch.ones_like(ids))[0]
        expected = torch.cat([tokens.mean(0), tokens.amax(0)])
        torch.testing.assert_close(together[row], expected, rtol=0, atol=1e-5)


def test_digest_changes_with_graph_preprocessing_and_tokenizer(image_graph, text_graph, tmp_path):
    image = open_image_encoder(image_graph, load).config.digest
    moved = shutil.copytree(image_graph.parent, tmp_path / "moved")
    assert open_image_encoder(moved / image_graph.name, load).config.digest == image
    settings = moved / "preprocessor_config.json"
    settings.write_text(settings.read_text().replace("0.5, 0.5", "0.5, 0.4"))
    assert open_image_encoder(moved / image_graph.name, load).config.digest != image
    other = shutil.copytree(text_graph.parent, tmp_path / "text")
    text = open_text_encoder(text_graph, load).config.digest
    assert open_text_encoder(other / text_graph.name, load).config.digest == text
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"red"', '"rot"'))
    assert open_text_encoder(other / text_graph.name, load).config.digest != text


def make_graph(path, shape, output, op, output_kind=None):
    """A graph of one node; returns its path."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node(op, ["x"], ["y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", output_kind or kind, output)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def test_a_graph_of_vectors_is_not_pooled(tmp_path, image_graph):
    (tmp_path / "preprocessor_config.json").write_text(
        '{"size": {"height": 8, "width": 8}, "image_mean": [0, 0, 0]}'
    )
    graph = make_graph(tmp_path / "flat.onnx", [None, 3, 8, 8], [None, 192], op="Flatten")
    encoder = open_image_encoder(graph, load)
    pixels = torch.arange(2 * 192.0).reshape(2, 3, 8, 8)
    assert torch.equal(encoder.encode(pixels), pixels.flatten(1))


def test_a_graph_whose_output_is_no_feature_is_refused(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"height": 8, "width": 8}}')
    graph = make_graph(
        tmp_path / "x.onnx", [None, 3, 8, 8], None, op="Shape", output_kind=onnx.TensorProto.INT64
    )
    with pytest.raises(ValueError, match="features are"):
        open_image_encoder(graph, load)


def test_an_image_graph_needs_its_preprocessing(image_graph, tmp_path):
    shutil.copy(image_graph, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"preprocessor_config\.json next to it"):
        open_image_encoder(tmp_path / image_graph.name, load)


def test_a_text_graph_needs_its_tokenizer(text_graph, tmp_path):
    shutil.copy(text_graph, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json next to it"):
        open_text_encoder(tmp_path / text_graph.name, load)


def test_missing_and_damaged_graphs_are_refused(image_graph, text_graph, tmp_path):
    for graph, open_encoder in ((image_graph, open_image_encoder), (text_graph, open_text_encoder)):
        copy = shutil.copytree(graph.parent, tmp_path / graph.stem) / graph.name
        copy.write_bytes(copy.read_bytes()[:300])
        with pytest.raises(ValueError, match="can't be opened as an ONNX graph"):
            open_encoder(copy, load)
        copy.unlink()
        with pytest.raises(FileNotFoundError, match=graph.name):
            open_encoder(copy, load)


def test_a_text_graph_as_image_encoder_is_refused(text_graph, image_graph, tmp_path):
    shutil.copy(image_graph.parent / "preprocessor_config.json", text_graph.parent)
    with pytest.raises(ValueError, match=r"one input of shape \(B, 3, S, S\)"):
        open_image_encoder(text_graph, load)


def test_an_image_graph_as_text_encoder_is_refused(text_graph, image_graph, tmp_path):
    shutil.copytree(image_graph.parent, tmp_path, dirs_exist_ok=True)
    shutil.copy(text_graph.parent / "tokenizer.json", tmp_path)
    with pytest.raises(ValueError, match="input_ids"):
        open_text_encoder(tmp_path / image_graph.name, load)


def test_weights_next_to_the_graph_enter_the_digest(tmp_path, image_graph):
    """Large graphs keep their weights in a second file."""
    shutil.copy(image_graph.parent / "preprocessor_config.json", tmp_path)
    model = onnx.load(str(image_graph))
    path = tmp_path / "large.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="large.onnx.data", size_threshold=0)
    first = open_image_encoder(path, load)
    data = tmp_path / "large.onnx.data"
    values = np.frombuffer(data.read_bytes(), np.float32).copy()
    data.write_bytes((values + 1).tobytes())
    assert open_image_encoder(path, load).config.digest != first.config.digest
    assert data in first.files
