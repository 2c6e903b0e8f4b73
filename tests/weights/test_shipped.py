"""Shipped models: found by name, after local folders and before the hub."""

import pytest
import torch

import prolip
from prolip.model.create import create
from prolip.weights import hub, load


@pytest.fixture
def tiny(nano, tmp_path, monkeypatch):
    """A package with two models, one of them complete, and an empty working directory."""
    nano.save(tmp_path / "package" / "tiny")
    (tmp_path / "package" / "another").mkdir()
    (tmp_path / "package" / "notes.txt").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(load, "SHIPPED_FOLDER", tmp_path / "package")
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("the hub was called"))
    return nano


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_list_shipped_models(tiny):
    assert load.list_shipped_models() == ["another", "tiny"]


def test_list_shipped_models_of_missing_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "SHIPPED_FOLDER", tmp_path / "nowhere")
    assert load.list_shipped_models() == []


def test_shipped_model_loads_by_name(tiny):
    assert load.find_model("tiny") == load.SHIPPED_FOLDER / "tiny"
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(tiny))


def test_local_folder_wins_over_shipped_model(tiny, tokenizer, tmp_path):
    own = create("nano", tokenizer, seed=5)
    own.save(tmp_path / "here" / "tiny")
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(own))
    assert not torch.equal(weights(own), weights(tiny))


def test_unknown_name_lists_shipped_models(tiny):
    with pytest.raises(FileNotFoundError, match="tinny") as error:
        prolip.load("tinny")
    assert "another, tiny" in str(error.value)


def test_every_shipped_model_is_a_prolip_folder():
    for name in load.list_shipped_models():
        assert (load.SHIPPED_FOLDER / name / "config.json").is_file()
        assert load.find_model(name) == load.SHIPPED_FOLDER / name
