"""Models that come with the package: found by their name, behind what lies here and before the hub."""

import pytest
import torch

import prolip
from prolip.model.create import create
from prolip.weights import hub, load, shipped


@pytest.fixture
def tiny(nano, tmp_path, monkeypatch):
    """A package with two models, of which one is whole; and an empty folder to stand in."""
    nano.save(tmp_path / "package" / "tiny")
    (tmp_path / "package" / "another").mkdir()
    (tmp_path / "package" / "notes.txt").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("the hub was asked"))
    return nano


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_names_are_those_of_the_folders(tiny):
    assert shipped.names() == ["another", "tiny"]
    assert shipped.folder("tiny") == shipped.FOLDER / "tiny"
    for name in ("notes.txt", "nothing", "", ".", "..", "tiny/", "TINY"):
        assert shipped.folder(name) is None


def test_a_package_without_models_has_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nowhere")
    assert shipped.names() == []
    assert shipped.folder("tiny") is None


def test_a_model_of_the_package_loads_by_its_name(tiny):
    assert load.find("tiny") == shipped.FOLDER / "tiny"
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(tiny))


def test_a_folder_here_of_the_same_name_wins(tiny, tokenizer, tmp_path):
    own = create("nano", tokenizer, seed=5)
    own.save(tmp_path / "here" / "tiny")
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(own))
    assert not torch.equal(weights(own), weights(tiny))


def test_an_unknown_name_is_told_what_there_is(tiny):
    with pytest.raises(FileNotFoundError, match="there is no folder or file tinny; ") as error:
        prolip.load("tinny")
    assert "another, tiny" in str(error.value)


def test_every_model_of_the_package_is_a_folder_of_ours():
    """However many there are."""
    for name in shipped.names():
        assert (shipped.FOLDER / name / "config.json").is_file()
        assert load.find(name) == shipped.FOLDER / name
