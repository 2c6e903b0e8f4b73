"""Our own folder: what is saved is loaded, and what is damaged is named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import prolip
from prolip.model import store
from prolip.model.prolip import ProLIP


def same(a, b):
    assert a.config == b.config
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[name]), name


@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_bit_for_bit(nano, tmp_path, uncertainty):
    model = ProLIP(nano.config.with_uncertainty(uncertainty), nano.tokenizer).start(
        torch.Generator().manual_seed(3)
    )
    model.origin = {"format": "somewhere"}
    assert model.save(tmp_path / "a" / "model") == tmp_path / "a" / "model"
    loaded = prolip.load(tmp_path / "a" / "model", device="cpu")
    same(model, loaded)
    assert loaded.origin == {"format": "somewhere"}
    assert not loaded.training
    assert all(p.requires_grad for p in loaded.parameters())
    assert torch.equal(loaded.tokenize("a red thing"), model.tokenize("a red thing"))
    assert {path.name for path in (tmp_path / "a" / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


def test_half_precision_stays_half(nano, tmp_path):
    nano.to(torch.bfloat16).save(tmp_path)
    loaded = prolip.load(tmp_path, device="cpu")
    assert loaded.dtype == torch.bfloat16
    same(nano, loaded)
    assert prolip.load(tmp_path, device="cpu", dtype=torch.float32).dtype == torch.float32


def test_saving_again_replaces(nano, tmp_path):
    nano.save(tmp_path)
    with torch.no_grad():
        nano.bias.fill_(-3.0)
    nano.save(tmp_path)
    assert prolip.load(tmp_path).bias == -3.0


def test_a_model_without_tokenizer_leaves_no_old_one(nano, tmp_path):
    nano.save(tmp_path)
    ProLIP(nano.config).start(torch.Generator().manual_seed(0)).save(tmp_path)
    assert prolip.load(tmp_path).tokenizer is None


def test_a_failed_save_leaves_the_old_model(nano, tmp_path, monkeypatch):
    nano.save(tmp_path)
    wanted = prolip.load(tmp_path)

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(store, "save_file", full)
    with torch.no_grad():
        nano.bias.fill_(7.0)
    with pytest.raises(OSError, match="No space"):
        nano.save(tmp_path)
    same(prolip.load(tmp_path), wanted)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_unfinished_folder_has_no_config(nano, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "save_file", lambda *a, **k: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        nano.save(tmp_path / "new")
    assert not (tmp_path / "new" / "config.json").exists()


def test_a_model_without_tokenizer_into_a_new_folder(nano, tmp_path):
    ProLIP(nano.config).start(torch.Generator().manual_seed(0)).save(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"config.json", "model.safetensors"}


def test_tensors_that_do_not_lie_in_order(nano, tmp_path):
    with torch.no_grad():
        nano.image.mean.weight = torch.nn.Parameter(nano.image.mean.weight.T.contiguous().T)
    assert not nano.image.mean.weight.is_contiguous()
    nano.save(tmp_path)
    same(nano, prolip.load(tmp_path, device="cpu"))


def test_the_weights_say_whose_they_are(saved):
    from safetensors import safe_open

    with safe_open(saved / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_saving_over_a_file_is_refused(nano, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file; a model is saved into a folder"):
        nano.save(tmp_path / "file")


@pytest.fixture
def saved(nano, tmp_path):
    return nano.save(tmp_path / "model")


@pytest.mark.parametrize("length", [0, 5, 8, 200, -1, -1000])
def test_truncated_weights(saved, length):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(
        ValueError, match=r"model.safetensors \([\d,]+ bytes\) is damaged, incomplete or no safetensors file"
    ):
        prolip.load(saved)


def change(saved, edit):
    tensors = load_file(saved / "model.safetensors")
    edit(tensors)
    save_file(tensors, saved / "model.safetensors")


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda t: t.pop("text.positions"), r"1 tensors are missing \(text.positions\)"),
        (lambda t: t.update(more=torch.zeros(1)), r"1 are unknown \(more\)"),
        (
            lambda t: t.update({"text.positions": torch.zeros(3, 32)}),
            r"1 have another shape \(text.positions is \(3, 32\), not \(18, 32\)\)",
        ),
        (
            lambda t: t["image.positions"].fill_(torch.nan),
            "image.positions holds values that are not finite numbers",
        ),
        (lambda t: t.update(bias=torch.tensor(1)), "bias holds values that are not finite numbers"),
    ],
)
def test_weights_that_do_not_fit(saved, edit, sentence):
    change(saved, edit)
    with pytest.raises(ValueError, match=sentence):
        prolip.load(saved)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "config.json is not JSON"),
        ("[1]", "config.json must hold a JSON object, not a list"),
        ('{"format": "prolip", "version": 2}', "has version 2; this prolip reads 1: update prolip"),
        ('{"format": "prolip"}', "has version None; this prolip reads 1"),
        ('{"format": "prolip", "version": 1}', r"config.json: config: .*missing"),
        (
            '{"format": "prolip", "version": 1, "model": {"embed": 1}}',
            r"config.json: config has unknown keys \['embed'\]",
        ),
    ],
)
def test_damaged_config(saved, text, sentence):
    (saved / "config.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        prolip.load(saved)


def test_missing_files(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"model.safetensors is missing: without it there are no weights"
    ):
        prolip.load(saved)
    (saved / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="is no model that we know"):
        prolip.load(saved)


def test_a_damaged_tokenizer_is_named(saved):
    (saved / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        prolip.load(saved)


def test_the_config_can_be_read_by_people(saved):
    content = json.loads((saved / "config.json").read_text())
    assert content["format"] == "prolip"
    tokens = content["model"]["text"]["tokens"]
    assert (tokens["pad_id"], tokens["mask_id"]) == (0, 1)
    assert content["model"]["image"]["pixels"]["size"] == 32
