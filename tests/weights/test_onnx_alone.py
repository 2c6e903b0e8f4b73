"""The folder of an ONNX export in a process without prolip and torch: the snippets of docs/weights.md."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import prolip
from prolip.preprocessing.images import ImagePreprocessing, preprocess
from prolip.weights.formats.preprocessing import from_transformers, to_transformers
from prolip.weights.load import load

pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

DOCS = Path(__file__).parents[2] / "docs" / "weights.md"
BLOCK = "import sys\nsys.modules.update(dict.fromkeys(['prolip', 'torch', 'ftfy', 'transformers']))\n"
"""None in sys.modules: importing the module raises."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model, folder = load("scenes-tiny", device="cpu"), tmp_path_factory.mktemp("alone")
    return model, folder, prolip.export_onnx(model, folder / "graphs", int8=True)


def find_snippets():
    snippets = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return [snippet for snippet in snippets if "InferenceSession" in snippet]


@pytest.mark.slow
def test_snippets_of_the_docs_need_no_prolip(exported):
    model, folder, _ = exported
    text, image = find_snippets()
    assert len([line for line in text.splitlines() if line]) <= 8
    save = "numpy.savez('out.npz', **{n: globals()[n] for n in "
    save += "('text_mean', 'text_log_var', 'image_mean', 'image_log_var')})\n"
    subprocess.run([sys.executable, "-c", BLOCK + text + image + save], check=True, cwd=folder, env={})
    out = np.load(folder / "out.npz")
    names: dict[str, list[str]] = {}
    exec(next(line for line in text.splitlines() if line.startswith("texts = ")), names)
    for modality, z in (
        ("text", model.embed_texts(names["texts"])),
        ("image", model.embed_images(folder / "photo.png")),
    ):
        np.testing.assert_allclose(out[f"{modality}_mean"], z.mean, atol=1e-5)
        np.testing.assert_allclose(out[f"{modality}_log_var"], z.log_var, atol=1e-4)


@pytest.mark.slow
def test_logit_snippet_of_the_docs_is_that_of_a_likelihood_model(exported):
    model, folder, _ = exported
    (snippet,) = re.findall(r"^```python\n(logit = .*?)^assert", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    Image.new("RGB", (64, 48), "red").save(folder / "red.png")
    z = {
        "image": model.embed_images(folder / "red.png"),
        "text": model.embed_texts(["a red thing", "two things"]),
    }
    values = {
        f"{name}_{field}": getattr(z[name], field).numpy() for name in z for field in ("mean", "log_var")
    }
    np.savez(folder / "z.npz", **values)
    load_values = "import numpy, json\nglobals().update(numpy.load('z.npz'))\n"
    code = BLOCK + load_values + snippet + "\nnumpy.save('match.npy', match)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, env={})
    expected = model.match_probability_matrix(z["image"], z["text"])
    np.testing.assert_allclose(np.load(folder / "match.npy"), expected, atol=1e-4)


@pytest.mark.slow
def test_inputs_outputs_and_axes_have_names(exported):
    _, folder, _ = exported
    for tower, name, shape in (
        ("image", "pixels", ["batch", 3, 48, 48]),
        ("text", "ids", ["batch", "length"]),
    ):
        for suffix in (".onnx", ".int8.onnx"):
            session = runtime.InferenceSession(str(folder / "graphs" / f"{tower}{suffix}"))
            (found,) = session.get_inputs()
            assert (found.name, found.shape) == (name, shape)
            outputs = {output.name: output.shape for output in session.get_outputs()}
            assert outputs == {"mean": ["batch", 64], "log_var": ["batch", 64]}


@pytest.mark.slow
def test_int8_graphs_are_smaller_and_nearly_the_same(exported):
    model, folder, differences = exported
    texts = ["a red circle", "a blue star above a green square", "a thing", ""]
    expected = model.embed_texts(texts)
    session = runtime.InferenceSession(str(folder / "graphs" / "text.int8.onnx"))
    mean, log_var = session.run(None, {"ids": model.tokenize(texts).numpy()})
    assert ((mean * expected.mean.numpy()).sum(1) > 0.995).all()
    np.testing.assert_allclose(log_var, expected.log_var, atol=0.1)
    assert 1e-5 < differences["text int8 mean"] < 0.1
    sizes = [(folder / "graphs" / f"text{kind}.onnx").stat().st_size for kind in (".int8", "")]
    assert sizes[0] < 0.8 * sizes[1]
    assert set(differences) >= {"image mean", "image int8 mean", "image int8 log_var"}


@pytest.mark.slow
def test_export_without_int8_removes_older_int8_graphs(nano, tmp_path):
    for tower in ("image", "text"):
        (tmp_path / f"{tower}.int8.onnx").write_bytes(b"of an earlier export")
    prolip.export_onnx(nano, tmp_path)
    assert not list(tmp_path.glob("*.int8.onnx"))


PREPROCESSINGS = [
    ImagePreprocessing(size=48),
    ImagePreprocessing(size=32, resize_mode="squash", interpolation="bilinear", mean=(0.5, 0.5, 0.5)),
]


@pytest.mark.parametrize("preprocessing", PREPROCESSINGS)
def test_preprocessor_config_is_what_from_transformers_reads(preprocessing):
    content = json.loads(json.dumps(to_transformers(preprocessing)))
    other = ImagePreprocessing(size=preprocessing.size, mean=(0.1, 0.1, 0.1))
    assert from_transformers(content, preprocessing.size, other) == preprocessing


@pytest.mark.parametrize("preprocessing", PREPROCESSINGS)
@pytest.mark.parametrize("size", [(48, 48), (100, 77), (480, 640), (30, 45)])
def test_image_processors_of_transformers_give_our_pixels(preprocessing, size, tmp_path):
    """The margins of these crops are even: with an odd one the processor may cut a pixel beside ours."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(to_transformers(preprocessing)))
    processor = transformers.AutoImageProcessor.from_pretrained(str(tmp_path))
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (*size, 3), dtype=np.uint8))
    pixels = torch.from_numpy(np.asarray(processor(image, return_tensors="np")["pixel_values"][0]))
    torch.testing.assert_close(pixels, preprocess(image, preprocessing), rtol=0, atol=2e-6)
