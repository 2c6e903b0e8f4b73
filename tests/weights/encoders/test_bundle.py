"""Model folders that hold their encoders."""

import shutil

import pytest
import torch

import prolip
from prolip.adaptation import AdaptConfig, Encoders, adapt_encoders
from prolip.weights.encoders import open_image_encoder, open_text_encoder
from tests.adaptation.pictures import Pictures, draw
from tests.weights.encoders import tiny

FAST = AdaptConfig(
    dim=8, batch_size=16, epochs=1.0, image_views=1, text_crops=1, components=8, progress=False, bundle=True
)
TEXTS = ["a red circle", "the blue star", ""]


def load(name):
    return prolip.load(name, device="cpu")


def open_encoders(image, text):
    return Encoders(open_image_encoder(image, load), open_text_encoder(text, load))


def adapt_and_move(encoders, tmp_path, *gone):
    """A bundled model whose folder was moved, and whose original encoders are gone; and the model in memory."""
    model = adapt_encoders(encoders, Pictures(60), tmp_path / "out", FAST)
    expected = model.embed_images([draw(0), draw(1)]), model.embed_texts(TEXTS)
    moved = shutil.move(tmp_path / "out" / "model", tmp_path / "elsewhere")
    for folder in gone:
        shutil.rmtree(folder)
    return load(moved), moved, expected


def require_equal(model, expected):
    for a, b in zip(
        (model.embed_images([draw(0), draw(1)]), model.embed_texts(TEXTS)), expected, strict=True
    ):
        torch.testing.assert_close(a.mean, b.mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(a.log_var, b.log_var, rtol=0, atol=1e-5)


def test_graphs(tmp_path):
    pytest.importorskip("onnxruntime")
    image, text = tiny.write_image_graph(tmp_path / "image"), tiny.write_text_graph(tmp_path / "text")
    model, moved, expected = adapt_and_move(open_encoders(image, text), tmp_path, image.parent, text.parent)
    require_equal(model, expected)
    encoder = model.config.image.encoder
    assert (encoder.name, encoder.is_bundled) == ("encoders/image/image.onnx", True)
    (moved / "encoders" / "text" / "text.onnx.data").write_bytes(b"\0" * 4 * 1000)
    with pytest.raises(ValueError, match=r"meaningless|ONNX"):
        load(moved)


def test_folders_of_transformers_keep_their_license(tmp_path):
    pytest.importorskip("transformers")
    from prolip.weights.encoders.huggingface import open_image_folder

    image, text = tiny.write_vit(tmp_path / "vit"), tiny.write_bert(tmp_path / "bert")
    encoders = Encoders(open_image_folder(image, license="apache-2.0"), open_text_encoder(text, load))
    model, _, expected = adapt_and_move(encoders, tmp_path, image, text)
    require_equal(model, expected)
    assert model.config.image.encoder.license == "apache-2.0"
    assert model.config.image.encoder.name == "encoders/image"


def test_towers_of_a_finished_model_share_a_copy(nano, tmp_path):
    folder = str(nano.save_pretrained(tmp_path / "nano"))
    model, moved, expected = adapt_and_move(open_encoders(folder, folder), tmp_path, tmp_path / "nano")
    require_equal(model, expected)
    assert len(list((moved / "encoders").iterdir())) == 1


def test_python_objects_are_refused_before_the_work(tmp_path):
    with pytest.raises(ValueError, match="python:cells has no files"):
        adapt_encoders(
            Encoders.from_objects(tiny.Images(), tiny.Texts()), Pictures(60), tmp_path / "out", FAST
        )
    assert not (tmp_path / "out").exists()


def test_a_finished_run_can_be_bundled_later(nano_path, tmp_path):
    from dataclasses import replace

    encoders = open_encoders(nano_path, nano_path)
    adapt_encoders(encoders, Pictures(60), tmp_path / "out", replace(FAST, bundle=False))
    assert not (tmp_path / "out" / "model" / "encoders").exists()
    adapt_encoders(encoders, Pictures(60), tmp_path / "out", FAST)
    assert load(tmp_path / "out").config.text.encoder.is_bundled
