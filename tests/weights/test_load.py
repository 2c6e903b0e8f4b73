"""prolip.load: finding models, shipped models, formats, tokenizers, and errors."""

import json
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import prolip
from prolip.model.create import create
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import train_word_level
from prolip.weights import hub, load
from tests.golden import FIXTURES

RELEASE = FIXTURES / "models" / "b16_tiny"


def test_load_of_missing_path_raises():
    with pytest.raises(
        FileNotFoundError,
        match=r"no folder or file /nowhere/at/all\. .*owner/name",
    ):
        prolip.load("/nowhere/at/all")
    with pytest.raises(FileNotFoundError, match="no folder or file nowhere"):
        prolip.load("nowhere")


def test_missing_run_is_not_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("prolip.weights.hub.fetch", lambda *_: pytest.fail("the hub was called"))
    with pytest.raises(FileNotFoundError, match=r"folder runs exists, .*no miniatrue in it"):
        prolip.load("runs/miniatrue")


def test_load_of_empty_folder_raises(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"expected open_clip_config.json with .* or config.json with .*, found nothing",
    ):
        prolip.load(tmp_path)


def test_revision_requires_a_hub_id(tmp_path):
    with pytest.raises(ValueError, match="only a hub id has a revision"):
        prolip.load(tmp_path, revision="main")


def test_sharded_weights_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="sharded into several files"):
        prolip.load(tmp_path)


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def test_load_never_runs_a_pickle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(RELEASE / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Evil()}))
    with pytest.raises(ValueError, match="besides tensors"):
        prolip.load(tmp_path)
    torch.save({"state_dict": {"x": Evil()}}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="besides tensors"):
        prolip.load(tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(2)], "holds a list, not named tensors"),
        ({"a": 1}, "has no named tensors"),
        ({"state_dict": [1]}, "its state_dict is a list"),
    ],
)
def test_files_without_tensors(tmp_path, content, message):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=message):
        prolip.load(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_archives_are_refused(tmp_path):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="is a TorchScript archive, as OpenAI's original files are"):
        prolip.load(tmp_path)


@pytest.mark.parametrize("device", ["cuda:77", "nowhere"])
def test_unavailable_device_raises(device):
    with pytest.raises(ValueError, match=f"device '{device}' is not available"):
        prolip.load(RELEASE, device=device)


@pytest.mark.parametrize("length", [0, 3, 1000, -10])
def test_a_truncated_torch_file(tmp_path, length):
    shutil.copy(RELEASE / "config.json", tmp_path)
    torch.save(load_file(RELEASE / "model.safetensors"), tmp_path / "pytorch_model.bin")
    whole = (tmp_path / "pytorch_model.bin").read_bytes()
    (tmp_path / "pytorch_model.bin").write_bytes(whole[:length])
    with pytest.raises(ValueError, match=r"pytorch_model.bin \([\d,]+ bytes\) .*damaged or incomplete"):
        prolip.load(tmp_path)


@pytest.mark.parametrize("length", [0, 7, 3000, -10])
def test_a_truncated_safetensors_file(tmp_path, length):
    folder = shutil.copytree(RELEASE, tmp_path / "copy")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="is damaged, incomplete or no safetensors file"):
        prolip.load(folder)


def test_load_of_file_finds_its_config(tmp_path):
    model = prolip.load(RELEASE / "model.safetensors", device="cpu")
    assert model.config == prolip.load(RELEASE, device="cpu").config


def test_metadata_in_the_safetensors_header_is_ignored(tmp_path):
    folder = shutil.copytree(RELEASE, tmp_path / "copy")
    save_file(
        load_file(folder / "model.safetensors"),
        folder / "model.safetensors",
        metadata={"format": "pt", "x": "y"},
    )
    assert prolip.load(folder, device="cpu").dtype == torch.float32


def test_load_keeps_half_precision(tmp_path):
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


def test_model_without_tokenizer_embeds_images_only(monkeypatch):
    model = prolip.load(RELEASE, device="cpu")
    assert model.tokenizer is None
    assert model.embed_images(torch.zeros(3, 8, 8, dtype=torch.uint8)).shape == (1, 64)
    with pytest.raises(
        ValueError,
        match=r"this model has no tokenizer \(.*\): put tokenizer.json .* such as timm/ViT-B-16-SigLIP",
    ):
        model.embed_texts(["a"])


@pytest.mark.parametrize("form", ["folder", "file", "in the model's folder"])
def test_load_takes_a_tokenizer(words, form, tmp_path):
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
    assert model.save_pretrained(tmp_path / "saved")
    assert torch.equal(prolip.load(tmp_path / "saved", device="cpu").tokenize(["a red circle", ""]), ids)


def test_a_tokenizer_object_keeps_its_ids(nano, tokenizer, tmp_path):
    nano.save_pretrained(tmp_path)
    model = prolip.load(tmp_path, tokenizer=tokenizer, device="cpu")
    assert isinstance(model.tokenizer, Tokenizer)
    assert model.config.text.tokenizer.pad_id == tokenizer.config.pad_id


def test_tokenizer_without_needed_end_id_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r'pooling "end" needs tokenizer.end_id'):
        prolip.load(FIXTURES / "open_clip" / "clip", tokenizer=tokenizer, device="cpu")


def with_names(folder, names, extra=()):
    """The word tokenizer with more tokens and the names of special ones."""
    from tokenizers import Tokenizer as Core

    core = Core.from_file(str(folder / "tokenizer.json"))
    core.add_special_tokens(list(extra))
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return core


def test_mask_id_is_looked_up_by_name(words):
    core = with_names(words, {"mask_token": "<hidden>"}, ["<hidden>", "<extra_id_99>"])
    model = prolip.load(RELEASE, device="cpu", tokenizer=words)
    assert model.config.text.tokenizer.mask_id == core.token_to_id("<hidden>")
    with_names(words, {})
    model = prolip.load(RELEASE, device="cpu", tokenizer=words / "tokenizer.json")
    assert model.config.text.tokenizer.mask_id == core.token_to_id(
        "<extra_id_99>"
    )  # [MASK] is this one's end


def test_mask_id_outside_the_vocabulary_is_not_used(words):
    with_names(words, {"mask_token": "<hidden>"}, [*(f"<{i}>" for i in range(600)), "<hidden>"])
    assert prolip.load(RELEASE, device="cpu", tokenizer=words).config.text.tokenizer.mask_id is None


def test_pad_id_is_that_of_the_format(words):
    with_names(words, {"pad_token": "red"})
    assert prolip.load(RELEASE, device="cpu", tokenizer=words).config.text.tokenizer.pad_id == 1


def test_tokenizer_error_is_not_saved(tmp_path):
    model = prolip.load(RELEASE, device="cpu")
    assert model.tokenizer_error
    assert "cache" not in (model.save_pretrained(tmp_path) / "config.json").read_text()


def test_invalid_hub_ids_are_not_fetched():
    for name in ("./some/thing", ".hidden/model", "a/b/c"):
        with pytest.raises(FileNotFoundError, match=f"no folder or file {re.escape(name)}"):
            prolip.load(name)


def test_tokenizer_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no tokenizer"):
        prolip.load(RELEASE, tokenizer=tmp_path)


# -- ProLIP.from_pretrained -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["scenes-tiny", RELEASE, FIXTURES / "open_clip" / "clip"], ids=["shipped", "release", "open_clip"]
)
def test_from_pretrained_loads_what_load_loads(name):
    model, wanted = prolip.ProLIP.from_pretrained(name, device="cpu"), prolip.load(name, device="cpu")
    assert type(model) is prolip.ProLIP
    assert model.config == wanted.config
    assert not model.training
    assert torch.equal(weights(model), weights(wanted))


def test_from_pretrained_reads_what_save_pretrained_wrote(nano, tmp_path):
    model = prolip.ProLIP.from_pretrained(nano.save_pretrained(tmp_path / "model"), device="cpu")
    assert torch.equal(weights(model), weights(nano))
    assert torch.equal(model.embed_texts("a thing").mean, nano.embed_texts("a thing").mean)


def test_from_pretrained_passes_dtype_device_and_revision(nano, tmp_path):
    folder = nano.save_pretrained(tmp_path)
    assert prolip.ProLIP.from_pretrained(folder, device="cpu", dtype=torch.bfloat16).dtype == torch.bfloat16
    assert prolip.ProLIP.from_pretrained(folder, device="meta").device == torch.device("meta")
    with pytest.raises(ValueError, match="only a hub id has a revision"):
        prolip.ProLIP.from_pretrained(folder, revision="main")


def test_from_pretrained_refuses_subclasses(nano, tmp_path):
    class Larger(prolip.ProLIP):
        pass

    with pytest.raises(TypeError, match=r"not a Larger: use Larger\.from_tensors"):
        Larger.from_pretrained("scenes-tiny")
    model = prolip.ProLIP.from_pretrained("scenes-tiny", device="cpu")
    assert isinstance(Larger.from_tensors(model.config, model.state_dict(), "scenes-tiny"), Larger)


# -- shipped models ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(nano, tmp_path, monkeypatch):
    """A package with two models, one of them complete, and an empty working directory."""
    nano.save_pretrained(tmp_path / "package" / "tiny")
    (tmp_path / "package" / "another").mkdir()
    (tmp_path / "package" / "notes.txt").write_text("")
    (tmp_path / "working_directory").mkdir()
    monkeypatch.chdir(tmp_path / "working_directory")
    monkeypatch.setattr(load, "SHIPPED_FOLDER", tmp_path / "package")
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("the hub was called"))
    return nano


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_list_shipped_models(tiny):
    assert load.list_shipped_models() == ["another", "tiny"]
    for name in ("notes.txt", "nothing", "tiny/", "TINY"):
        with pytest.raises(FileNotFoundError, match=f"There is no folder or file {name}\\. "):
            load.find_model(name)
    for name in ("", ".", ".."):  # local folders, not those of the package
        assert load.find_model(name) == Path(name)


def test_list_shipped_models_of_missing_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "SHIPPED_FOLDER", tmp_path / "nowhere")
    assert load.list_shipped_models() == []
    with pytest.raises(FileNotFoundError, match="There is no folder or file tiny"):
        load.find_model("tiny")


def test_shipped_model_loads_by_name(tiny):
    assert load.find_model("tiny") == load.SHIPPED_FOLDER / "tiny"
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(tiny))


def test_local_folder_wins_over_shipped_model(tiny, tokenizer, tmp_path):
    own = create("nano", tokenizer, seed=5)
    own.save_pretrained(tmp_path / "working_directory" / "tiny")
    assert torch.equal(weights(prolip.load("tiny", device="cpu")), weights(own))
    assert not torch.equal(weights(own), weights(tiny))


def test_unknown_name_lists_shipped_models(tiny):
    with pytest.raises(FileNotFoundError, match="There is no folder or file tinny") as error:
        prolip.load("tinny")
    assert "another, tiny" in str(error.value)


def test_every_shipped_model_is_a_prolip_folder():
    for name in load.list_shipped_models():
        assert (load.SHIPPED_FOLDER / name / "config.json").is_file()
        assert load.find_model(name) == load.SHIPPED_FOLDER / name
