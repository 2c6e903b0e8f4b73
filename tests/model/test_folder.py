"""Tests of the model folder: round trips, atomic saves, damaged files."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrize

import prolip
from prolip.model import folder as model_folder
from prolip.model.prolip import ProLIP


def assert_same(a, b):
    assert a.config == b.config
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[name]), name


@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_save_and_load_are_bit_exact(nano, tmp_path, uncertainty):
    model = ProLIP(nano.config.with_uncertainty(uncertainty), nano.tokenizer).init_weights(
        torch.Generator().manual_seed(3)
    )
    model.origin = {"format": "somewhere"}
    assert model.save_pretrained(tmp_path / "a" / "model") == tmp_path / "a" / "model"
    loaded = prolip.load(tmp_path / "a" / "model", device="cpu")
    assert_same(model, loaded)
    assert loaded.origin == {"format": "somewhere"}
    assert not loaded.training
    assert all(p.requires_grad for p in loaded.parameters())
    assert torch.equal(loaded.tokenize("a red thing"), model.tokenize("a red thing"))
    assert {path.name for path in (tmp_path / "a" / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


def test_training_words_are_saved_and_an_old_record_is_removed(nano, tmp_path):
    nano.training_words = frozenset({"a", "red", "circle"})
    nano.save_pretrained(tmp_path)
    assert (tmp_path / "words.txt").read_text() == "a\ncircle\nred\n"
    loaded = prolip.load(tmp_path, device="cpu")
    assert loaded.training_words == {"a", "circle", "red"}
    assert loaded.find_unknown_words("a blue circle, a Blue dog") == ["blue", "dog"]
    loaded.training_words = None
    assert loaded.find_unknown_words("a blue circle") == [], "what the model met is unknown"
    loaded.save_pretrained(tmp_path)
    assert not (tmp_path / "words.txt").exists()
    assert prolip.load(tmp_path, device="cpu").training_words is None


def test_save_keeps_half_precision(nano, tmp_path):
    nano.to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = prolip.load(tmp_path, device="cpu")
    assert loaded.dtype == torch.bfloat16
    assert_same(nano, loaded)
    assert prolip.load(tmp_path, device="cpu", dtype=torch.float32).dtype == torch.float32


def test_save_replaces_an_older_model(nano, tmp_path):
    nano.save_pretrained(tmp_path)
    with torch.no_grad():
        nano.logit_bias.fill_(-3.0)
    nano.save_pretrained(tmp_path)
    assert prolip.load(tmp_path).logit_bias == -3.0


def test_save_without_tokenizer_removes_an_old_tokenizer(nano, tmp_path):
    nano.save_pretrained(tmp_path)
    ProLIP(nano.config).init_weights(torch.Generator().manual_seed(0)).save_pretrained(tmp_path)
    assert prolip.load(tmp_path).tokenizer is None


def test_failed_save_leaves_the_old_model(nano, tmp_path, monkeypatch):
    nano.save_pretrained(tmp_path)
    expected = prolip.load(tmp_path)

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(model_folder, "save_file", full)
    with torch.no_grad():
        nano.logit_bias.fill_(7.0)
    with pytest.raises(OSError, match="No space"):
        nano.save_pretrained(tmp_path)
    assert_same(prolip.load(tmp_path), expected)
    assert len(list(tmp_path.iterdir())) == 3


def test_load_rejects_files_of_two_saves(nano, tmp_path, monkeypatch):
    """Killed between weights and config, over an older model of the same shape."""
    nano.save_pretrained(tmp_path)
    with torch.no_grad():
        nano.image.positions.add_(1.0)
    monkeypatch.setattr(model_folder, "write_json", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        nano.save_pretrained(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"config.json and model.safetensors are of different saves"):
        prolip.load(tmp_path)
    nano.save_pretrained(tmp_path)
    assert_same(nano, prolip.load(tmp_path, device="cpu"))


def test_save_is_deterministic(nano, tmp_path):
    for name in ("a", "b"):
        nano.save_pretrained(tmp_path / name)
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_loaded_model_does_not_depend_on_the_file(saved):
    model = prolip.load(saved, device="cpu")
    before = model.image.positions.clone()
    weights = saved / "model.safetensors"
    with open(weights, "r+b") as file:
        file.seek(2000)
        file.write(bytes(weights.stat().st_size - 2000))
    assert torch.equal(model.image.positions, before)


def test_save_rejects_parameters_that_the_config_does_not_describe(nano, tmp_path):
    layer = nano.text.blocks[0].mlp.up
    parametrize.register_parametrization(layer, "weight", torch.nn.Identity())
    with pytest.raises(
        ValueError, match=r"the config doesn't describe text.blocks.0.mlp.up.parametrizations"
    ):
        nano.save_pretrained(tmp_path / "out")
    parametrize.remove_parametrizations(layer, "weight")
    assert_same(nano, prolip.load(nano.save_pretrained(tmp_path / "out"), device="cpu"))


def test_save_rejects_nan(nano, tmp_path):
    with torch.no_grad():
        nano.logit_bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"the model: logit_bias holds NaN or infinity"):
        nano.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_save_raises_oserror_on_a_full_disk(nano, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(model_folder, "save_file", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/out/model.safetensors'"):
        nano.save_pretrained(tmp_path / "out")


def test_load_promotes_mixed_precision_to_the_widest_dtype(saved):
    change(saved, lambda t: t.update({k: v.half() for k, v in t.items() if ".blocks." in k}))
    model = prolip.load(saved, device="cpu")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.embed_texts("a thing").shape == (1, 32)


def test_load_rejects_8_bit_floats(saved):
    change(saved, lambda t: t.update({"image.positions": t["image.positions"].to(torch.float8_e4m3fn)}))
    with pytest.raises(ValueError, match=r"image.positions is torch.float8_e4m3fn"):
        prolip.load(saved)
    with pytest.raises(ValueError, match=r"dtype torch.complex64 is not one of torch.float16"):
        prolip.load(saved, dtype=torch.complex64)


def test_save_is_thread_safe(nano, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: nano.save_pretrained(tmp_path / "out"), range(8)))
    assert_same(nano, prolip.load(tmp_path / "out", device="cpu"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.blocks.layers", 10**9),
        ("text.tokenizer.context_length", 10**18),
        ("image.preprocessing.size", 10**6),
    ],
)
def test_load_rejects_huge_sizes(saved, path, value):
    content = json.loads((saved / "config.json").read_text())
    *parents, last = path.split(".")
    values = content["model"]
    for parent in parents:
        values = values[parent]
    values[last] = value
    (saved / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{last} must be at most"):
        prolip.load(saved)


def test_unfinished_folder_has_no_config(nano, tmp_path, monkeypatch):
    monkeypatch.setattr(model_folder, "save_file", lambda *a, **k: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        nano.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new" / "config.json").exists()


def test_save_without_tokenizer(nano, tmp_path):
    ProLIP(nano.config).init_weights(torch.Generator().manual_seed(0)).save_pretrained(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"config.json", "model.safetensors"}


def test_save_accepts_non_contiguous_tensors(nano, tmp_path):
    with torch.no_grad():
        nano.image.mean.weight = torch.nn.Parameter(nano.image.mean.weight.T.contiguous().T)
    assert not nano.image.mean.weight.is_contiguous()
    nano.save_pretrained(tmp_path)
    assert_same(nano, prolip.load(tmp_path, device="cpu"))


def test_weights_file_holds_the_digest_of_the_config(saved):
    from safetensors import safe_open

    with safe_open(saved / "model.safetensors", "pt") as file:
        assert file.metadata() == {"weights": json.loads((saved / "config.json").read_text())["weights"]}


def test_save_rejects_a_file_path(nano, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"is a file, but .* choose another path"):
        nano.save_pretrained(tmp_path / "file")


@pytest.fixture
def saved(nano, tmp_path):
    return nano.save_pretrained(tmp_path / "model")


@pytest.mark.parametrize("length", [0, 5, 8, 200, -1, -1000])
def test_load_rejects_truncated_weights(saved, length):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(
        ValueError, match=r"model.safetensors \([\d,]+ bytes\) is damaged, incomplete or no safetensors file"
    ):
        prolip.load(saved)


def change(saved, edit):
    """Change the weights as another program would that writes the fingerprint, too."""
    tensors = load_file(saved / "model.safetensors")
    edit(tensors)
    digest = model_folder.compute_digest(tensors)
    save_file(tensors, saved / "model.safetensors", metadata={"weights": digest})
    content = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**content, "weights": digest}))


def find_change(saved, weights, expected):
    """Load a folder with other bytes as its weights: what happens, None if all is well."""
    (saved / "model.safetensors").write_bytes(weights)
    try:
        loaded = ProLIP.from_folder(saved).state_dict()
    except ValueError as error:
        return None if "model.safetensors" in str(error) or str(saved) in str(error) else f"unclear: {error}"
    same = all(torch.equal(value, expected[name]) for name, value in loaded.items())
    return None if same and loaded.keys() == expected.keys() else "other weights were loaded"


def test_any_flipped_bit_of_the_weights_is_an_error_or_harmless(saved):
    """The law: whatever bit is flipped, in the header or in the numbers, no other tensor is ever loaded."""
    expected = ProLIP.from_folder(saved).state_dict()
    content = (saved / "model.safetensors").read_bytes()
    header_end = 8 + int.from_bytes(content[:8], "little")
    draw = random.Random(0)
    positions = [*range(8), *draw.sample(range(8, header_end), 150)]
    positions += draw.sample(range(header_end, len(content)), 150)
    for position in positions:
        changed = bytearray(content)
        changed[position] ^= 1 << draw.randrange(8)
        assert find_change(saved, changed, expected) is None, position


def test_any_inserted_or_removed_byte_of_the_weights_is_an_error(saved):
    expected = ProLIP.from_folder(saved).state_dict()
    content = (saved / "model.safetensors").read_bytes()
    draw = random.Random(1)
    for position in draw.sample(range(len(content)), 20):
        assert find_change(saved, content[:position] + content[position + 1 :], expected) is None
        assert find_change(saved, content[:position] + b"1" + content[position:], expected) is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_load_refuses_a_folder_without_fingerprint(saved, name):
    if name == "config.json":
        content = json.loads((saved / name).read_text())
        del content["weights"]
        (saved / name).write_text(json.dumps(content))
    else:
        save_file(load_file(saved / name), saved / name)
    with pytest.raises(ValueError, match=rf"{name} has no fingerprint .* verify=False"):
        prolip.load(saved)
    assert ProLIP.from_folder(saved, verify=False).config.embed_dim == 32


def test_verify_false_loads_changed_weights(saved):
    tensors = load_file(saved / "model.safetensors")
    fingerprint = {"weights": model_folder.compute_digest(tensors)}
    tensors["logit_bias"] += 1.0
    save_file(tensors, saved / "model.safetensors", metadata=fingerprint)
    with pytest.raises(ValueError, match=r"model.safetensors is damaged or was changed"):
        prolip.load(saved)
    assert ProLIP.from_folder(saved, verify=False).logit_bias == tensors["logit_bias"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop("text.positions"), r"1 tensors are missing \(text.positions\)"),
        (lambda t: t.update(more=torch.zeros(1)), r"1 are unknown \(more\)"),
        (
            lambda t: t.update({"text.positions": torch.zeros(3, 32)}),
            r"1 have another shape \(text.positions is \(3, 32\), not \(18, 32\)\)",
        ),
        (
            lambda t: t["image.positions"].fill_(torch.nan),
            r"image.positions .*NaN or infinity",
        ),
        (
            lambda t: t.update(logit_bias=torch.tensor(1)),
            r"logit_bias is torch\.int64",
        ),
    ],
)
def test_load_rejects_weights_that_do_not_fit_the_config(saved, edit, message):
    change(saved, edit)
    with pytest.raises(ValueError, match=message):
        prolip.load(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[" * 200_000, "config.json is not JSON"),
        ("[1]", "config.json must hold a JSON object, not list"),
        ('{"format": "prolip", "version": 3}', "version 3; this prolip reads version 2. Update prolip"),
        ('{"format": "prolip"}', "version None; this prolip reads version 2"),
        ('{"format": "prolip", "version": 1}', "version 1; this prolip reads version 2. Convert or train"),
        ('{"format": "prolip", "version": 2}', r"config.json: config: .*missing"),
        (
            '{"format": "prolip", "version": 2, "model": {"embed": 1}}',
            r"config.json: config has unknown keys \['embed'\]",
        ),
    ],
)
def test_load_rejects_a_damaged_config(saved, text, message):
    (saved / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        prolip.load(saved)


def test_load_names_missing_files(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model.safetensors is missing"):
        prolip.load(saved)
    (saved / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="is not a model in a known format"):
        prolip.load(saved)


def test_load_names_a_damaged_tokenizer(saved):
    (saved / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        prolip.load(saved)


def test_config_json_holds_readable_values(saved):
    content = json.loads((saved / "config.json").read_text())
    assert content["format"] == "prolip"
    tokens = content["model"]["text"]["tokenizer"]
    assert (tokens["pad_id"], tokens["mask_id"]) == (0, 1)
    assert content["model"]["image"]["preprocessing"]["size"] == 32
