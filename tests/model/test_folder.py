"""Our own folder: what is saved is loaded, and what is damaged is named."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrize

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


def test_parts_of_two_saves_are_no_model(nano, tmp_path, monkeypatch):
    """Killed between weights and config, over an older model of the same shape: weights of one, words of the other."""
    nano.save(tmp_path)
    with torch.no_grad():
        nano.image.positions.add_(1.0)
    monkeypatch.setattr(store, "write_json", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        nano.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"config.json and model.safetensors are of different saves"):
        prolip.load(tmp_path)
    nano.save(tmp_path)
    same(nano, prolip.load(tmp_path, device="cpu"))


def test_saving_the_same_twice_gives_the_same_bytes(nano, tmp_path):
    for name in ("a", "b"):
        nano.save(tmp_path / name)
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_overwriting_the_file_leaves_a_loaded_model_alone(saved):
    model = prolip.load(saved, device="cpu")
    before = model.image.positions.clone()
    weights = saved / "model.safetensors"
    with open(weights, "r+b") as file:
        file.seek(2000)
        file.write(bytes(weights.stat().st_size - 2000))
    assert torch.equal(model.image.positions, before)


def test_what_a_config_does_not_describe_is_not_saved_silently(nano, tmp_path):
    layer = nano.text.blocks[0].mlp.up
    parametrize.register_parametrization(layer, "weight", torch.nn.Identity())
    with pytest.raises(
        ValueError, match=r"the config doesn't describe text.blocks.0.mlp.up.parametrizations"
    ):
        nano.save(tmp_path / "out")
    parametrize.remove_parametrizations(layer, "weight")
    same(nano, prolip.load(nano.save(tmp_path / "out"), device="cpu"))


def test_nan_is_not_saved(nano, tmp_path):
    with torch.no_grad():
        nano.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"the model: bias .* not finite numbers"):
        nano.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_an_oserror(nano, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(store, "save_file", full)
    with pytest.raises(OSError, match="can't take the weights: No space left on device"):
        nano.save(tmp_path / "out")


def test_mixed_precision_weights_get_the_widest_type(saved):
    change(saved, lambda t: t.update({k: v.half() for k, v in t.items() if ".blocks." in k}))
    model = prolip.load(saved, device="cpu")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.embed_texts("a thing").shape == (1, 32)


def test_eight_bits_are_too_few(saved):
    change(saved, lambda t: t.update({"image.positions": t["image.positions"].to(torch.float8_e4m3fn)}))
    with pytest.raises(ValueError, match=r"image.positions \(torch.float8_e4m3fn\) holds no weights"):
        prolip.load(saved)
    with pytest.raises(ValueError, match=r"dtype torch.complex64 is not one of torch.float16"):
        prolip.load(saved, dtype=torch.complex64)


def test_two_threads_may_save_at_once(nano, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: nano.save(tmp_path / "out"), range(8)))
    same(nano, prolip.load(tmp_path / "out", device="cpu"))


@pytest.mark.parametrize(
    ("path", "value"),
    [("image.blocks.layers", 10**9), ("text.tokens.context_length", 10**18), ("image.pixels.size", 10**6)],
)
def test_sizes_that_no_memory_can_hold(saved, path, value):
    content = json.loads((saved / "config.json").read_text())
    *parents, last = path.split(".")
    place = content["model"]
    for parent in parents:
        place = place[parent]
    place[last] = value
    (saved / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{last} must be at most"):
        prolip.load(saved)


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
        assert file.metadata() == {"weights": json.loads((saved / "config.json").read_text())["weights"]}


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
            r"image.positions .* weights that are not finite numbers",
        ),
        (lambda t: t.update(bias=torch.tensor(1)), r"bias .* weights that are not finite numbers"),
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
        ("[" * 200_000, "config.json is not JSON"),
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
