"""transformers' CLIP and SigLIP: the library itself is the reference, where it can be imported."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import prolip
from prolip.weights.formats import huggingface
from prolip.weights.load import open_model

transformers = pytest.importorskip("transformers")

TEXT = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
    "max_position_embeddings": 10,
}  # fmt: skip
VISION = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 6, "image_size": 26,
    "patch_size": 8,
}  # fmt: skip


def build(kind, folder, **text):
    """A random model of transformers, written by its own save_pretrained."""
    if kind == "clip":
        config = transformers.CLIPConfig(
            text_config={**TEXT, "bos_token_id": 62, "eos_token_id": 63, "pad_token_id": 1, **text},
            vision_config=VISION,
            projection_dim=24,
        )
        model = transformers.CLIPModel(config)
    else:
        config = transformers.SiglipConfig(
            text_config={**TEXT, "projection_size": 48, **text}, vision_config=VISION
        )
        model = transformers.SiglipModel(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.25 * torch.randn(p.shape, generator=generator))
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture
def batch(generator):
    ids = torch.randint(2, 62, (3, 10), generator=generator)
    ids[:, 9] = 63
    ids[1, 4:] = 63
    return torch.randn(3, 3, 26, 26, generator=generator), ids


def features(model, pixels, ids):
    """Before normalisation."""
    outputs = model.get_image_features(pixel_values=pixels), model.get_text_features(input_ids=ids)
    return [out if isinstance(out, torch.Tensor) else out.pooler_output for out in outputs]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@torch.no_grad()
def test_features_are_transformers(kind, tmp_path, batch):
    theirs = build(kind, tmp_path)
    ours = prolip.load(tmp_path, device="cpu")
    for (found, _), wanted in zip(
        (ours.image(batch[0]), ours.text(batch[1])), features(theirs, *batch), strict=True
    ):
        assert wanted.abs().max() > 0.1
        torch.testing.assert_close(found, wanted, rtol=0, atol=3e-6)


@torch.no_grad()
def test_old_configs_with_the_wrong_end_token(tmp_path, batch):
    """Configs before 2023 say eos_token_id 2; transformers then pools at the largest id."""
    theirs = build("clip", tmp_path, eos_token_id=2)
    ours = prolip.load(tmp_path, device="cpu")
    torch.testing.assert_close(ours.text(batch[1])[0], features(theirs, *batch)[1], rtol=0, atol=3e-6)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_every_tensor_is_accounted_for(kind, tmp_path):
    theirs = build(kind, tmp_path)
    loaded = open_model(tmp_path)
    assert loaded.format == "transformers"
    assert loaded.report.unused == loaded.report.initialized == ()
    assert sum(p.numel() for p in loaded.model.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert loaded.model.config.contrastive_loss == ("softmax" if kind == "clip" else "sigmoid")


def test_probabilities_are_siglips(tmp_path, batch):
    theirs = build("siglip", tmp_path)
    ours = prolip.load(tmp_path, device="cpu")
    with torch.no_grad():
        logits = theirs(pixel_values=batch[0], input_ids=batch[1]).logits_per_image
        found = ours.match_probability_matrix(ours.encode_image(batch[0]), ours.encode_text(batch[1]))
    torch.testing.assert_close(found, logits.sigmoid(), rtol=1e-4, atol=1e-6)


def test_position_ids_are_unused(tmp_path):
    build("clip", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["text_model.embeddings.position_ids"] = torch.arange(10)[None]
    tensors["vision_model.embeddings.position_ids"] = torch.arange(10)[None]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    left = dict(open_model(tmp_path).report.unused)
    assert left == {
        f"{t}_model.embeddings.position_ids": "0, 1, 2, ...: not a weight" for t in ("text", "vision")
    }


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_read_config_applies_the_defaults_of_transformers(kind, tmp_path):
    """google/siglip-base-patch16-224's config.json says hardly more than the model_type."""
    kinds = {
        "clip": (transformers.CLIPConfig, transformers.CLIPModel),
        "siglip": (transformers.SiglipConfig, transformers.SiglipModel),
    }
    config, model = kinds[kind]
    with torch.device("meta"):
        wanted = {name: p.shape for name, p in model(config()).named_parameters()}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": kind, "text_config": {}, "vision_config": {}})
    )
    from prolip.weights.formats.files import ForeignModel

    source = ForeignModel(
        path=tmp_path,
        config=json.loads((tmp_path / "config.json").read_text()),
        tensors={name: torch.empty(shape, device="meta") for name, shape in wanted.items()},
    )
    ours = huggingface.FORMAT.read_config(source)
    shapes = {name for rule in huggingface.FORMAT.make_rules(source, ours) for name in rule.theirs}
    assert shapes == set(wanted)
    from prolip.model.prolip import ProLIP
    from prolip.weights.formats.rules import apply_rules

    tensors, _ = apply_rules(huggingface.FORMAT.make_rules(source, ours), source.tensors, {}, "test")
    assert {k: v.shape for k, v in tensors.items()} == {
        k: v.shape for k, v in ProLIP(ours).state_dict().items()
    }


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ("CLIPTextConfig", huggingface.CLIP_TEXT),
        ("CLIPVisionConfig", huggingface.CLIP_VISION),
        ("SiglipTextConfig", huggingface.SIGLIP_TEXT),
        ("SiglipVisionConfig", huggingface.SIGLIP_VISION),
    ],
)
def test_defaults_equal_those_of_transformers(config, ours):
    theirs = getattr(transformers, config)()
    assert {name: getattr(theirs, name) for name in ours} == ours


def test_ids_of_clips_tokens(tmp_path):
    build("clip", tmp_path)
    tokens = prolip.load(tmp_path, device="cpu").config.text.tokenizer
    assert (tokens.start_id, tokens.end_id, tokens.pad_id, tokens.pad_to) == (62, 63, 63, "longest")
    build("clip", tmp_path, bos_token_id=0, eos_token_id=2)  # the old configs' mistake
    assert prolip.load(tmp_path, device="cpu").config.text.tokenizer.start_id == 62


def test_ids_and_pixels_of_siglip(tmp_path):
    build("siglip", tmp_path)
    config = prolip.load(tmp_path, device="cpu").config
    tokens, pixels = config.text.tokenizer, config.image.preprocessing
    assert (tokens.pad_id, tokens.end_id, tokens.pad_to, tokens.cleaning) == (1, 1, "context", "canonicalize")
    assert (pixels.mean, pixels.std, pixels.resize_mode) == ((0.5,) * 3, (0.5,) * 3, "squash")


def edited(folder, edit):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def test_text_config_dict_overrides_text_config(tmp_path):
    """`text_config_dict` wins over `text_config`."""
    build("clip", tmp_path)
    edited(tmp_path, lambda c: c.update(text_config_dict={"layer_norm_eps": 1e-3}))
    assert prolip.load(tmp_path, device="cpu").config.text.blocks.norm_eps == 1e-3


@pytest.mark.parametrize(
    ("kind", "edit", "message"),
    [
        ("siglip", lambda c: c["vision_config"].update(vision_use_head=False), "without its pooling head"),
        ("clip", lambda c: c.update(quantization_config={"bits": 8}), "quantized weights are not supported"),
    ],
)
def test_unsupported_models_are_refused(kind, edit, message, tmp_path):
    build(kind, tmp_path)
    edited(tmp_path, edit)
    with pytest.raises(ValueError, match=message):
        prolip.load(tmp_path)


def test_a_processor_of_transformers_5(tmp_path):
    build("clip", tmp_path)
    values = {"image_mean": [0.1] * 3, "image_std": [0.2] * 3, "resample": 2, "size": {"shortest_edge": 26}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": values}))
    rules = prolip.load(tmp_path, device="cpu").config.image.preprocessing
    assert (rules.mean, rules.std, rules.interpolation, rules.resize_mode) == (
        (0.1,) * 3,
        (0.2,) * 3,
        "bilinear",
        "shortest",
    )


@pytest.mark.parametrize(
    ("values", "fit", "resampling"),
    [
        (
            {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_center_crop": True, "resample": 3},
            "shortest",
            "bicubic",
        ),
        ({"image_mean": [0.1] * 3, "size": {"height": 26, "width": 26}, "resample": 2}, "squash", "bilinear"),
    ],
)
def test_preprocessing_is_read(values, fit, resampling, tmp_path):
    build("clip", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    rules = prolip.load(tmp_path, device="cpu").config.image.preprocessing
    assert (rules.resize_mode, rules.interpolation, rules.size) == (fit, resampling, 26)
    assert rules.mean == tuple(values["image_mean"])


def test_unsupported_preprocessing_is_refused(tmp_path):
    build("clip", tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"]["hidden_act"] = "relu"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{tmp_path}: .*hidden_act 'relu' is not supported"):
        prolip.load(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"resample": 0}))
    config["vision_config"]["hidden_act"] = "gelu"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{tmp_path}: .*resample 0 is not supported"):
        prolip.load(tmp_path)
    config["model_type"] = "bert"
    path.write_text(json.dumps(config))
    with pytest.raises(
        ValueError,
        match=r"is not in a known format \(prolip, prolip-release, transformers, open_clip\)",
    ):
        prolip.load(tmp_path)
