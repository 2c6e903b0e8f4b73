"""`prolip convert`: what it writes, what it prints, what it refuses."""

import filecmp
import json

import pytest

import prolip
from prolip import cli
from tests.golden import FIXTURES

RELEASE = FIXTURES / "models" / "b16_tiny"
LONG = FIXTURES / "models" / "long_tiny"
SIGLIP = FIXTURES / "open_clip" / "siglip"


def convert(*args):
    cli.main(["convert", *(str(a) for a in args)])


def test_there_and_back(tmp_path, capsys):
    convert(RELEASE, tmp_path / "ours")
    printed = capsys.readouterr().out
    assert "prolip-release -> " in printed
    assert "loaded     71 tensors" in printed
    assert "made new   0\nleft over  0\n" in printed
    convert(tmp_path / "ours", tmp_path / "theirs", "--to", "release")
    for name in ("config.json", "model.safetensors"):
        assert filecmp.cmp(RELEASE / name, tmp_path / "theirs" / name, shallow=False)


def test_probabilistic(tmp_path, capsys):
    convert(SIGLIP, tmp_path / "new", "--to", "probabilistic", "--seed", 3, "--image-size", 64)
    printed = capsys.readouterr().out
    assert "made new   10\n           image.class_token\n" in printed
    assert "left over  13\n           attention pooling: [CLS] takes its place: image.pool.kv.bias" in printed
    model = prolip.load(tmp_path / "new", device="cpu")
    assert not model.config.deterministic
    assert model.config.image.pixels.size == 64
    assert model.origin["format"] == "open_clip"


def test_json(tmp_path, capsys):
    convert(LONG, tmp_path / "new", "--context-length", 300, "--json")
    content = json.loads(capsys.readouterr().out)
    assert content["from"] == "prolip-release"
    assert content["left_over"] == {}
    assert len(content["loaded"]) == 71
    assert prolip.load(tmp_path / "new", device="cpu").config.text.tokens.context_length == 300


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "something").write_text("precious")
    with pytest.raises(SystemExit):
        convert(RELEASE, tmp_path)
    assert "exists and is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "something").read_text() == "precious"


def test_the_release_can_not_hold_it(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        convert(SIGLIP, tmp_path / "out", "--to", "release")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(
        "prolip: the release can't hold this model: its text log-variances"
    )
    assert not (tmp_path / "out").exists()


def test_a_bad_source_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        convert(tmp_path / "nowhere", tmp_path / "out")
    assert stopped.value.code == 2
    assert "there is no folder or file" in capsys.readouterr().err
