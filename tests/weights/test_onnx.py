"""ONNX graphs against torch, by onnxruntime."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import prolip
from prolip.measures.match import LogitParameters
from prolip.model.create import create
from prolip.weights import onnx
from tests.golden import FIXTURES

pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow


def run(path, values):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [
        torch.from_numpy(out) for out in session.run(None, {session.get_inputs()[0].name: values.numpy()})
    ]


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """The model `nano`, the folder of its export, and the differences from torch. (An export takes seconds.)"""
    model = create("nano", tokenizer, seed=0).eval()
    folder = tmp_path_factory.mktemp("onnx")
    return model, folder, prolip.export_onnx(model, folder)


def test_export_onnx_takes_any_batch_size_and_length(exported, generator):
    nano, folder, differences = exported
    assert set(differences) == {
        f"{tower} {output}" for tower in ("image", "text") for output in ("mean", "log_var")
    }
    assert all(0 <= value < 1e-4 for value in differences.values())
    for count in (1, 7):
        pixels = torch.randn(count, 3, 32, 32, generator=generator)
        with torch.no_grad():
            expected = nano.encode_image(pixels)
        mean, log_var = run(folder / "image.onnx", pixels)
        torch.testing.assert_close(mean, expected.mean, rtol=0, atol=1e-5)
        torch.testing.assert_close(log_var, expected.log_var, rtol=0, atol=1e-4)
    for texts in (["a thing"], ["a red circle above a blue star", "", "a thing"]):
        expected = nano.embed_texts(texts)
        mean, log_var = run(folder / "text.onnx", nano.tokenize(texts))
        torch.testing.assert_close(mean, expected.mean, rtol=0, atol=1e-5)
        torch.testing.assert_close(log_var, expected.log_var, rtol=0, atol=1e-4)
    content = json.loads((folder / "config.json").read_text())
    assert content["format"] == "prolip-onnx"
    assert LogitParameters(**content["logit_parameters"]) == nano.logit_parameters
    assert content["model"]["image"]["preprocessing"]["size"] == 32
    assert {p.name for p in folder.iterdir()} == {
        "image.onnx",
        "text.onnx",
        "config.json",
        "tokenizer.json",
        "preprocessor_config.json",
    }


def test_export_onnx_of_an_isotropic_model_has_a_log_var_per_dimension(likelihood_nano, tmp_path, generator):
    """The graph returns a Gaussian as any other model's: one width, D times."""
    prolip.export_onnx(likelihood_nano, tmp_path)
    for count in (1, 5):
        pixels = torch.randn(count, 3, 32, 32, generator=generator)
        mean, log_var = run(tmp_path / "image.onnx", pixels)
        with torch.no_grad():
            expected = likelihood_nano.encode_image(pixels)
        assert log_var.shape == mean.shape == (count, 32)
        torch.testing.assert_close(log_var, expected.log_var, rtol=0, atol=1e-4)
        assert (log_var == log_var[:, :1]).all()
    texts = ["a thing", "a red circle above a blue star"]
    _, log_var = run(tmp_path / "text.onnx", likelihood_nano.tokenize(texts))
    torch.testing.assert_close(log_var, likelihood_nano.embed_texts(texts).log_var, rtol=0, atol=1e-4)
    content = json.loads((tmp_path / "config.json").read_text())["model"]
    assert (content["contrastive_loss"], content["image"]["isotropic"]) == ("likelihood", True)


class Session:
    """An onnxruntime that errs by a given amount, and only where a batch has several rows."""

    def __init__(self, graph, error):
        self.graph, self.error = graph, error

    def get_inputs(self):
        return [type("Input", (), {"name": "x"})]

    def run(self, _, values):
        mean, log_var = self.graph(torch.from_numpy(values["x"]))
        mean = mean + (self.error if len(mean) > 1 else 0.0)
        return [mean.detach().numpy(), log_var.detach().numpy()]


@pytest.mark.parametrize("error", [0.0, 1e-4, float("nan")])
def test_verify_compares_with_tolerance(error, nano, monkeypatch):
    graph, inputs = onnx.TowerGraph(nano, "text"), onnx._make_ids(nano)
    fake = type("Runtime", (), {"InferenceSession": lambda *args, **more: Session(graph, error)})
    monkeypatch.setattr(onnx, "import_extra", lambda *args: fake)
    if error == 0.0:
        assert onnx._compare_with_torch(graph, inputs, Path("text.onnx"), onnx.TOLERANCE) == {
            "mean": 0.0,
            "log_var": 0.0,
        }
    else:
        with pytest.raises(ValueError, match="mean differs from torch by"):
            onnx._compare_with_torch(graph, inputs, Path("text.onnx"), onnx.TOLERANCE)


def test_max_difference_of_equal_infinities_is_zero():
    a = torch.tensor([-torch.inf, 1.0])
    assert onnx._max_difference(a, a) == 0.0
    assert onnx._max_difference(a, torch.tensor([-torch.inf, 1.5])) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models/b16_tiny", "open_clip/clip", "open_clip/siglip"])
def test_export_onnx_of_other_forward_passes(name, tmp_path, monkeypatch):
    """The first one's weights are stored next to the graph, as those of large models."""
    if name == "models/b16_tiny":
        monkeypatch.setattr(onnx, "MAX_EMBEDDED_BYTES", 1000)
    model = prolip.load(FIXTURES / name, device="cpu")
    (tmp_path / "tokenizer.json").write_text("of an older export")
    prolip.export_onnx(model, tmp_path)
    if model.tokenizer is None:
        assert not (tmp_path / "tokenizer.json").exists()
    else:
        assert (tmp_path / "tokenizer.json").read_text() != "of an older export"
    assert (tmp_path / "image.onnx.data").exists() == (name == "models/b16_tiny")
    size = model.config.image.preprocessing.size
    mean, log_var = run(tmp_path / "image.onnx", torch.zeros(2, 3, size, size))
    with torch.no_grad():
        expected = model.encode_image(torch.zeros(2, 3, size, size))
    torch.testing.assert_close(mean, expected.mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(log_var, expected.log_var, rtol=0, atol=1e-4)


def test_export_onnx_rejects_a_graph_that_differs(nano, exported, tmp_path, monkeypatch):
    """The graph of other weights stands for a wrong export."""
    with torch.no_grad():
        nano.image.log_var.bias.add_(0.01)
    monkeypatch.setattr(
        onnx,
        "_export_tower",
        lambda graph, inputs, axes, path: Path(shutil.copy(exported[1] / path.name, path)),
    )
    with pytest.raises(ValueError, match=r"image.onnx: log_var differs from torch by 0.01, more than 0.0001"):
        prolip.export_onnx(nano, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_export_onnx_requires_float32(nano, tmp_path):
    with pytest.raises(
        ValueError, match=r"ONNX export takes a float32 model on the CPU, not torch.float64 on cpu"
    ):
        prolip.export_onnx(nano.double(), tmp_path)


def test_export_onnx_without_the_extra_raises(nano, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.setattr(
        "prolip.extras.import_module", lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name=name))
    )
    with pytest.raises(ImportError, match=r"needs onnx\. .*\[onnx\]"):
        prolip.export_onnx(nano, tmp_path)
