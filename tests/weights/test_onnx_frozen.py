"""ONNX export of models with frozen encoders, against `embed_*`."""

import pytest
import torch

from prolip.adaptation import AdaptConfig, Encoders, adapt_encoders
from prolip.weights import onnx
from prolip.weights.encoders import open_image_encoder, open_text_encoder
from prolip.weights.load import load
from tests.adaptation.pictures import Pictures, describe, draw
from tests.weights.encoders import tiny

pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
FAST = AdaptConfig(
    dim=8, batch_size=16, epochs=2.0, image_views=1, text_crops=1, components=8, progress=False
)
TEXTS = [text for i in range(9) for text in describe(i)] + ["", "red", "one unknown word"]


def make_encoders(kind, folder):
    if kind == "graph":
        image, text = tiny.write_image_graph(folder / "image"), tiny.write_text_graph(folder / "text")
    elif kind == "transformers":
        pytest.importorskip("transformers")
        image, text = tiny.write_vit(folder / "vit"), tiny.write_bert(folder / "bert")
    elif kind == "resnet":
        pytest.importorskip("transformers")
        image, text = tiny.write_resnet(folder / "resnet"), tiny.write_text_graph(folder / "text")
    else:
        return Encoders.from_objects(tiny.Images(), tiny.Texts())
    return Encoders(open_image_encoder(image, load), open_text_encoder(text, load))


def run(path, name, values):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == [name]
    assert [entry.name for entry in session.get_outputs()] == ["mean", "log_var"]
    return [torch.from_numpy(value) for value in session.run(None, {name: values.numpy()})]


def require_close(outputs, z):
    torch.testing.assert_close(outputs[0], z.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(outputs[1], z.log_var, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["graph", "transformers", "resnet"])
def test_graphs_agree_with_the_model(kind, tmp_path):
    model = adapt_encoders(make_encoders(kind, tmp_path), Pictures(60), tmp_path / "out", FAST)
    differences = onnx.export_onnx(model, tmp_path / "onnx")
    assert all(value < 1e-4 for value in differences.values())
    for count in (1, 5):
        images = [draw(i) for i in range(count)]
        pixels = torch.stack([model.preprocess(image) for image in images])
        require_close(run(tmp_path / "onnx" / "image.onnx", "pixels", pixels), model.embed_images(images))
    for texts in (TEXTS, TEXTS[:1], ["red"]):
        outputs = run(tmp_path / "onnx" / "text.onnx", "ids", model.tokenize(texts))
        require_close(outputs, model.embed_texts(texts))


def test_of_python_objects_the_heads_are_exported(tmp_path):
    model = adapt_encoders(make_encoders("object", tmp_path), Pictures(60), tmp_path / "out", FAST)
    onnx.export_onnx(model, tmp_path / "onnx")
    features = torch.from_numpy(tiny.Texts().encode(TEXTS)).float()
    require_close(run(tmp_path / "onnx" / "text.onnx", "features", features), model.embed_texts(TEXTS))
