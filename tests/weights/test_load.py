"""prolip.load: finding, telling formats apart, tokenizers, and sentences for what is wrong."""

import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import prolip
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import train_word_level
from tests.golden import FIXTURES

RELEASE = FIXTURES / "models" / "b16_tiny"


def test_what_does_not_exist():
    with pytest.raises(
        FileNotFoundError,
        match=r"/nowhere/at/all.*owner/name",
    ):
        prolip.load("/nowhere/at/all")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        prolip.load("nowhere")


def test_a_run_that_is_not_there_is_no_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("prolip.weights.hub.fetch", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(FileNotFoundError, match=r"runs.*miniatrue"):
        prolip.load("runs/miniatrue")


def test_an_empty_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="found nothing"):
        prolip.load(tmp_path)


def test_a_revision_is_for_the_hub(tmp_path):
    with pytest.raises(ValueError, match="only a hub id has a revision"):
        prolip.load(tmp_path, revision="main")


def test_weights_cut_into_several_files(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="several files"):
        prolip.load(tmp_path)


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_a_pickle_never_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(RELEASE / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Evil()}))
    with pytest.raises(ValueError, match="holds more than tensors"):
        prolip.load(tmp_path)
    torch.save({"state_dict": {"x": Evil()}}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds more than tensors"):
        prolip.load(tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([torch.zeros(2)], "holds a list"),
        ({"a": 1}, "no named tensors"),
        ({"state_dict": [1]}, "its state_dict is a list"),
    ],
)
def test_files_without_tensors(tmp_path, content, sentence):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=sentence):
        prolip.load(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_openais_original_files_are_named(tmp_path):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="TorchScript"):
        prolip.load(tmp_path)


@pytest.mark.parametrize("device", ["cuda:77", "nowhere"])
def test_a_device_that_is_not_there(device):
    with pytest.raises(ValueError, match=f"'{device}'"):
        prolip.load(RELEASE, device=device)


@pytest.mark.parametrize("length", [0, 3, 1000, -10])
def test_a_truncated_torch_file(tmp_path, length):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.save(load_file(RELEASE / "model.safetensors"), tmp_path / "pytorch_model.bin")
    whole = (tmp_path / "pytorch_model.bin").read_bytes()
    (tmp_path / "pytorch_model.bin").write_bytes(whole[:length])
    with pytest.raises(
        ValueError, match=r"pytorch_model.bin \([\d,]+ bytes\) is damaged, incomplete, or holds more"
    ):
        prolip.load(tmp_path)


@pytest.mark.parametrize("length", [0, 7, 3000, -10])
def test_a_truncated_safetensors_file(tmp_path, length):
    folder = shutil.copytree(RELEASE, tmp_path / "copy")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="is damaged, incomplete or no safetensors file"):
        prolip.load(folder)


def test_a_file_alone_with_its_config_beside(tmp_path):
    model = prolip.load(RELEASE / "model.safetensors", device="cpu")
    assert model.config == prolip.load(RELEASE, device="cpu").config


def test_metadata_in_the_header_is_fine(tmp_path):
    folder = shutil.copytree(RELEASE, tmp_path / "copy")
    save_file(
        load_file(folder / "model.safetensors"),
        folder / "model.safetensors",
        metadata={"format": "pt", "x": "y"},
    )
    assert prolip.load(folder, device="cpu").dtype == torch.float32


def test_half_precision_weights_of_others(tmp_path):
    folder = shutil.copytree(RELEASE, tmp_path / "copy")
    save_file(
        {k: v.half() for k, v in load_file(folder / "model.safetensors").items()},
        folder / "model.safetensors",
    )
    assert prolip.load(folder, device="cpu").dtype == torch.float16
    assert prolip.load(folder, device="cpu", dtype=torch.float32).dtype == torch.float32


# -- tokenizers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def words(tmp_path):
    """A folder with a tokenizer only: word level, 'end' around every text as SigLIP's has."""
    from tokenizers import processors

    core = train_word_level(["a red circle"], context_length=16).copy_backend()
    core.post_processor = processors.TemplateProcessing(single="$A [MASK]", special_tokens=[("[MASK]", 1)])
    folder = tmp_path / "words"
    folder.mkdir()
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"pad_token": "[MASK]", "eos_token": {"content": "[MASK]"}})
    )
    return folder


def test_without_a_tokenizer_it_loads_and_says_so_when_asked(monkeypatch):
    model = prolip.load(RELEASE, device="cpu")
    assert model.tokenizer is None
    assert model.embed_images(torch.zeros(3, 8, 8, dtype=torch.uint8)).shape == (1, 64)
    with pytest.raises(
        ValueError,
        match=r"this model has no tokenizer \(.*\): put tokenizer.json .* such as timm/ViT-B-16-SigLIP",
    ):
        model.embed_texts(["a"])


@pytest.mark.parametrize("form", ["folder", "file", "in the model's folder"])
def test_a_tokenizer_can_be_given(words, form, tmp_path):
    if form == "in the model's folder":
        folder = shutil.copytree(RELEASE, tmp_path / "copy")
        for path in words.iterdir():
            shutil.copy(path, folder)
        model = prolip.load(folder, device="cpu")
    else:
        given = words / "tokenizer.json" if form == "file" else words
        model = prolip.load(RELEASE, device="cpu", tokenizer=given)
    ids = model.tokenize(["a red circle", ""])
    assert ids.shape == (2, 16)  # attended padding: the whole context
    assert (ids[1] == 1).all()
    assert model.embed_texts(["a red circle"]).shape == (1, 64)
    assert model.save(tmp_path / "saved")
    assert torch.equal(prolip.load(tmp_path / "saved", device="cpu").tokenize(["a red circle", ""]), ids)


def test_a_tokenizer_object_keeps_its_ids(nano, tokenizer, tmp_path):
    nano.save(tmp_path)
    model = prolip.load(tmp_path, tokenizer=tokenizer, device="cpu")
    assert isinstance(model.tokenizer, Tokenizer)
    assert model.config.text.tokenizer.pad_id == tokenizer.config.pad_id


def test_a_tokenizer_without_the_end_that_a_tower_reads_is_refused(tokenizer):
    with pytest.raises(ValueError, match="end_id"):
        prolip.load(FIXTURES / "open_clip" / "clip", tokenizer=tokenizer, device="cpu")


def with_names(folder, names, extra=()):
    """The word tokenizer with more tokens and the names of special ones."""
    from tokenizers import Tokenizer as Core

    core = Core.from_file(str(folder / "tokenizer.json"))
    core.add_special_tokens(list(extra))
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return core


def test_the_mask_is_looked_up_by_name(words):
    core = with_names(words, {"mask_token": "<hidden>"}, ["<hidden>", "<extra_id_99>"])
    model = prolip.load(RELEASE, device="cpu", tokenizer=words)
    assert model.config.text.tokenizer.mask_id == core.token_to_id("<hidden>")
    with_names(words, {})
    model = prolip.load(RELEASE, device="cpu", tokenizer=words / "tokenizer.json")
    assert model.config.text.tokenizer.mask_id == core.token_to_id(
        "<extra_id_99>"
    )  # [MASK] is this one's end


def test_a_mask_beyond_the_table_is_none_of_the_models(words):
    with_names(words, {"mask_token": "<hidden>"}, [*(f"<{i}>" for i in range(600)), "<hidden>"])
    assert prolip.load(RELEASE, device="cpu", tokenizer=words).config.text.tokenizer.mask_id is None


def test_padding_is_the_formats_own(words):
    with_names(words, {"pad_token": "red"})
    assert prolip.load(RELEASE, device="cpu", tokenizer=words).config.text.tokenizer.pad_id == 1


def test_why_there_is_no_tokenizer_is_not_saved(tmp_path):
    model = prolip.load(RELEASE, device="cpu")
    assert model.tokenizer_error
    assert "cache" not in (model.save(tmp_path) / "config.json").read_text()


def test_names_that_are_no_hub_ids():
    for name in ("./some/thing", ".hidden/model", "a/b/c"):
        with pytest.raises(FileNotFoundError, match="no folder or file"):
            prolip.load(name)


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no tokenizer"):
        prolip.load(RELEASE, tokenizer=tmp_path)
