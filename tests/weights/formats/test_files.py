"""What a foreign model brings along: the right pair of files, prefixes, preprocessing."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import prolip
from prolip.weights.formats.files import read_foreign_model
from tests.golden import FIXTURES

CLIP = FIXTURES / "open_clip" / "clip"


@pytest.mark.parametrize(
    "name",
    ["open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"],
)
def test_names_of_weights(name, tmp_path):
    shutil.copy(CLIP / "open_clip_config.json", tmp_path)
    tensors = load_file(CLIP / "open_clip_model.safetensors")
    (save_file if name.endswith("safetensors") else torch.save)(tensors, tmp_path / name)
    assert prolip.load(tmp_path, device="cpu").config.text.pooling == "end"


def test_a_folder_with_two_models_keeps_each_config_with_its_weights(tmp_path):
    """As laion's repositories: open_clip's files and transformers' side by side."""
    for file in CLIP.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip"}))
    save_file({"some": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert "visual.proj" in read_foreign_model(tmp_path).tensors
    (tmp_path / "open_clip_model.safetensors").unlink()
    assert set(read_foreign_model(tmp_path).tensors) == {"some"}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_ddp_and_compile(prefix, tmp_path):
    shutil.copy(CLIP / "open_clip_config.json", tmp_path)
    tensors = {
        prefix + name: value for name, value in load_file(CLIP / "open_clip_model.safetensors").items()
    }
    torch.save({**tensors, 7: torch.zeros(1)}, tmp_path / "open_clip_pytorch_model.bin")
    assert "visual.proj" in read_foreign_model(tmp_path).tensors


def test_duplicate_tensor_names_are_refused(tmp_path):
    shutil.copy(CLIP / "open_clip_config.json", tmp_path)
    tensors = load_file(CLIP / "open_clip_model.safetensors")
    tensors["module.visual.proj"] = torch.ones_like(tensors["visual.proj"])
    save_file(tensors, tmp_path / "open_clip_model.safetensors")
    with pytest.raises(ValueError, match=r"has the tensor visual.proj twice"):
        prolip.load(tmp_path)


def test_preprocessing_old_and_new(tmp_path):
    """transformers 4 wrote preprocessor_config.json, 5 writes processor_config.json with the image processor inside."""
    for file in CLIP.iterdir():
        shutil.copy(file, tmp_path)
    assert read_foreign_model(tmp_path).preprocessing == {}
    (tmp_path / "processor_config.json").write_text(
        json.dumps({"image_processor": {"resample": 2}, "other": 1})
    )
    assert read_foreign_model(tmp_path).preprocessing == {"resample": 2}
    assert read_foreign_model(tmp_path / "open_clip_model.safetensors").preprocessing == {"resample": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"resample": 3}))
    assert read_foreign_model(tmp_path).preprocessing == {"resample": 3}


def test_given_config_is_used(tmp_path):
    config = json.loads((CLIP / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["head_width"] = 16
    (tmp_path / "other.json").write_text(json.dumps(config))
    model = prolip.load(CLIP / "open_clip_model.safetensors", config=tmp_path / "other.json", device="cpu")
    assert model.config.image.blocks.heads == 2
    assert prolip.load(CLIP / "open_clip_model.safetensors", device="cpu").config.image.blocks.heads == 4


def test_prolip_folder_takes_no_other_config(nano, tmp_path):
    nano.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"has its own config\.json"):
        prolip.load(tmp_path / "model", config=tmp_path / "x.json")


@pytest.mark.parametrize("seed", range(8))
def test_damaged_torch_files_raise_value_error(seed, tmp_path):
    generator = torch.Generator().manual_seed(seed)
    shutil.copy(CLIP / "open_clip_config.json", tmp_path)
    path = tmp_path / "open_clip_pytorch_model.bin"
    torch.save(
        load_file(CLIP / "open_clip_model.safetensors"), path, _use_new_zipfile_serialization=seed % 2 == 0
    )
    data = bytearray(path.read_bytes())
    for position in torch.randint(0, len(data), (300,), generator=generator).tolist():
        data[position] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"open_clip_pytorch_model.bin"):
        prolip.load(tmp_path)
