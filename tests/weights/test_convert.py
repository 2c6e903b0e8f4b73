"""`prolip convert`: what it writes, what it prints, what it refuses."""

import filecmp
import json
import shutil

import pytest
import torch

import prolip
from prolip import cli
from tests.golden import FIXTURES, altered
from tests.weights.formats.test_release import clip_words

RELEASE = FIXTURES / "models" / "b16_tiny"
LONG = FIXTURES / "models" / "long_tiny"
SIGLIP = FIXTURES / "open_clip" / "siglip"


def convert(model, out, *args):
    cli.main(["convert", str(model), "--out", str(out), *(str(a) for a in args)])


def test_convert_to_prolip_and_back_to_release(tmp_path, capsys):
    convert(RELEASE, tmp_path / "ours")
    printed = capsys.readouterr().out
    assert "from the format prolip-release" in printed
    assert "loaded       71 tensors" in printed
    assert "initialized  0\nunused       0\n" in printed
    convert(tmp_path / "ours", tmp_path / "theirs", "--to", "release")
    for name in ("config.json", "model.safetensors"):
        assert filecmp.cmp(RELEASE / name, tmp_path / "theirs" / name, shallow=False)


def test_convert_to_probabilistic_reports_tensors(tmp_path, capsys):
    convert(SIGLIP, tmp_path / "new", "--to", "probabilistic", "--seed", 3, "--image-size", 64)
    printed = capsys.readouterr().out
    assert "initialized  10\n             image.class_token\n" in printed
    assert (
        "unused       13\n             attention pooling, which [CLS] replaces: image.pool.kv.bias" in printed
    )
    model = prolip.load(tmp_path / "new", device="cpu")
    assert not model.config.deterministic
    assert model.config.image.preprocessing.size == 64
    assert model.origin["format"] == "open_clip"


def test_convert_to_likelihood_has_the_means_of_the_probabilistic_model(tmp_path):
    for target in ("probabilistic", "likelihood"):
        convert(SIGLIP, tmp_path / target, "--to", target, "--seed", 3)
    paper, ours = (prolip.load(tmp_path / target, device="cpu") for target in ("probabilistic", "likelihood"))
    assert (paper.config.contrastive_loss, ours.config.contrastive_loss) == ("sigmoid", "likelihood")
    assert (paper.config.image.isotropic, ours.config.image.isotropic) == (False, True)
    size = ours.config.image.preprocessing.size
    pixels = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(paper.encode_image(pixels).mean, ours.encode_image(pixels).mean)


def test_convert_resizes_an_isotropic_model_which_keeps_its_width(tmp_path):
    """The patches' positions change, and nothing of the heads: a model with constant widths has them at any size."""
    convert(SIGLIP, tmp_path / "likelihood", "--to", "likelihood")
    convert(tmp_path / "likelihood", tmp_path / "larger", "--image-size", 64)
    small, large = (prolip.load(tmp_path / name, device="cpu") for name in ("likelihood", "larger"))
    assert (small.config.init, small.config.gamma) == (large.config.init, large.config.gamma)
    assert large.config.image.preprocessing.size == 64
    size = small.config.image.preprocessing.size
    with torch.no_grad():
        before = small.encode_image(torch.zeros(1, 3, size, size))
        after = large.encode_image(torch.zeros(1, 3, 64, 64))
    assert torch.equal(before.uncertainty, after.uncertainty)


def test_convert_refuses_an_isotropic_model_as_release(tmp_path, capsys):
    convert(SIGLIP, tmp_path / "likelihood", "--to", "likelihood")
    with pytest.raises(SystemExit):
        convert(tmp_path / "likelihood", tmp_path / "release", "--to", "release")
    assert "The release can't represent this model" in capsys.readouterr().err
    assert not (tmp_path / "release").exists()


def test_convert_prints_json(tmp_path, capsys):
    convert(LONG, tmp_path / "new", "--context-length", 300, "--json")
    content = json.loads(capsys.readouterr().out)
    assert content["format"] == "prolip-release"
    assert content["unused"] == {}
    assert len(content["loaded"]) == 71
    assert prolip.load(tmp_path / "new", device="cpu").config.text.tokenizer.context_length == 300


def test_convert_reports_resized_tensors(tmp_path, capsys):
    convert(LONG, tmp_path / "new", "--context-length", 300, "--image-size", 32)
    printed = capsys.readouterr().out
    assert "resized      image.positions, text.positions\n" in printed
    assert "No tokenizer was found (hub repository timm/ViT-B-16-SigLIP is not in the cache" in printed


def test_convert_reports_all_unused_tensors(tmp_path, capsys):
    """Theirs that have no place, and ours that the probabilistic model doesn't need."""
    source = altered(SIGLIP, tmp_path / "source", lambda t: t.update({"text.attn_mask": torch.zeros(1)}))
    convert(source, tmp_path / "new", "--to", "probabilistic", "--json")
    content = json.loads(capsys.readouterr().out)
    assert content["unused"]["text.attn_mask"] == "causal mask, which is computed"
    assert "image.pool.probe" in content["unused"]
    assert "image.class_token" in content["initialized"]


def test_convert_seed_determines_new_weights(tmp_path):
    models = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        convert(SIGLIP, tmp_path / name, "--to", "probabilistic", "--seed", seed)
        models.append(prolip.load(tmp_path / name, device="cpu").image.class_token)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_a_file_with_a_config_and_a_tokenizer(tmp_path, nano, capsys):
    clip = FIXTURES / "open_clip" / "clip"
    shutil.copy(clip / "open_clip_model.safetensors", tmp_path / "weights.safetensors")
    words = clip_words(tmp_path / "words", 64)
    convert(
        tmp_path / "weights.safetensors",
        tmp_path / "new",
        "--model-config",
        clip / "open_clip_config.json",
        "--tokenizer",
        words,
    )
    assert "no tokenizer" not in capsys.readouterr().out
    assert prolip.load(tmp_path / "new", device="cpu").tokenize("a cat").tolist() == [[62, 1, 2, 63]]


def test_a_revision_is_for_the_hub(tmp_path, capsys):
    with pytest.raises(SystemExit):
        convert(RELEASE, tmp_path / "out", "--revision", "v2")
    assert "only a hub id has a revision" in capsys.readouterr().err


def test_convert_does_not_overwrite_files(tmp_path, capsys):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SystemExit):
        convert(RELEASE, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_convert_does_not_overwrite_folders(tmp_path, capsys):
    (tmp_path / "something").write_text("precious")
    with pytest.raises(SystemExit):
        convert(RELEASE, tmp_path)
    assert "exists and is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "something").read_text() == "precious"


def test_convert_rejects_models_that_the_release_can_not_represent(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        convert(SIGLIP, tmp_path / "out", "--to", "release")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(
        "prolip: The release can't represent this model: its text log-variances"
    )
    assert not (tmp_path / "out").exists()


def test_convert_of_missing_source_prints_one_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        convert(tmp_path / "nowhere", tmp_path / "out")
    assert stopped.value.code == 2
    assert "no folder or file" in capsys.readouterr().err


def test_convert_refuses_int8_of_other_targets(tmp_path, capsys):
    with pytest.raises(SystemExit):
        convert(RELEASE, tmp_path / "out", "--int8")
    assert 'int8 is for "onnx"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_convert_to_sentence_transformers_adds_two_files(tmp_path):
    convert("scenes-tiny", tmp_path / "out", "--to", "sentence-transformers")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "words.txt", "modules.json",
        "config_sentence_transformers.json",
    }  # fmt: skip


@pytest.mark.slow
def test_convert_to_onnx_takes_half_precision_and_int8(nano, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    nano.half().save_pretrained(tmp_path / "half")
    convert(tmp_path / "half", tmp_path / "graphs", "--to", "onnx", "--int8")
    assert "text int8 mean" in capsys.readouterr().out
    assert (tmp_path / "graphs" / "image.int8.onnx").exists()
