"""open_clip's CLIP and SigLIP: golden outputs of open_clip 3.3.0 and timm 1.0.30 on random weights."""

import json

import pytest
import torch
from safetensors.torch import load_file

import prolip
from prolip.model.config import TransformerConfig
from prolip.weights.formats import open_clip
from prolip.weights.load import open_model
from tests.golden import FIXTURES, altered

GOLDEN = ("clip", "clip_quickgelu", "siglip", "siglip2")


@pytest.fixture(params=GOLDEN)
def golden(request):
    return FIXTURES / "open_clip" / request.param


@torch.no_grad()
def test_features_are_open_clips(golden):
    io, model = load_file(golden / "io.safetensors"), prolip.load(golden, device="cpu")
    torch.testing.assert_close(model.image(io["pixels"])[0], io["image"], rtol=0, atol=2e-6)
    torch.testing.assert_close(model.text(io["ids"])[0], io["text"], rtol=0, atol=2e-6)
    z = model.encode_image(io["pixels"])
    torch.testing.assert_close(z.mean, torch.nn.functional.normalize(io["image"], dim=-1), rtol=0, atol=1e-6)
    assert (z.uncertainty == 0).all()


def test_every_tensor_is_accounted_for(golden):
    loaded = open_model(golden)
    assert loaded.format == "open_clip"
    assert loaded.report.unused == loaded.report.initialized == ()
    count = sum(t.numel() for t in load_file(golden / "open_clip_model.safetensors").values())
    assert sum(p.numel() for p in loaded.model.parameters()) == count


def test_read_config_of_each_model():
    clip, quick, siglip, siglip2 = (open_model(FIXTURES / "open_clip" / name).model.config for name in GOLDEN)
    assert (clip.image.blocks.activation, quick.image.blocks.activation) == ("gelu", "quick_gelu")
    assert (siglip.image.blocks.activation, siglip2.image.blocks.activation) == ("gelu", "gelu_tanh")
    assert clip.contrastive_loss == "softmax"
    assert siglip.contrastive_loss == "sigmoid"
    assert clip.image.preprocessing.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert (siglip.image.preprocessing.mean, siglip.image.preprocessing.resize_mode) == (
        (0.5, 0.5, 0.5),
        "squash",
    )
    assert (clip.text.tokenizer.start_id, clip.text.tokenizer.end_id, clip.text.tokenizer.pad_id) == (
        62,
        63,
        0,
    )
    assert (siglip.text.tokenizer.pad_id, siglip.text.tokenizer.pad_to) == (1, "context")
    assert siglip.image.blocks.heads == 12  # not in the tensors: timm's name says it
    assert siglip2.image.blocks.heads == 16


def test_save_and_load_keep_the_outputs(golden, tmp_path):
    io, model = load_file(golden / "io.safetensors"), prolip.load(golden, device="cpu")
    other = prolip.load(model.save_pretrained(tmp_path), device="cpu")
    assert other.config == model.config
    assert torch.equal(other.encode_text(io["ids"]).mean, model.encode_text(io["ids"]).mean)


def test_openais_extra_scalars_are_unused_with_a_reason(tmp_path):
    def add(tensors):
        tensors.update(context_length=torch.tensor(10), attn_mask=torch.zeros(10, 10))

    account = open_model(altered(FIXTURES / "open_clip" / "clip", tmp_path / "altered", add)).report
    assert dict(account.unused) == {
        "context_length": "scalar of OpenAI's files that is in the config, too",
        "attn_mask": "causal mask, which is computed",
    }


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("clip", lambda t: t.pop("ln_final.bias"), r"1 tensors are missing: ln_final\.bias"),
        ("clip", lambda t: t.update(extra=torch.zeros(1)), "1 tensors are not known in this format: extra"),
        (
            "siglip",
            lambda t: t.pop("visual.trunk.attn_pool.q.bias"),
            "missing: visual.trunk.attn_pool.q.bias",
        ),
        (
            "siglip",
            lambda t: t.update({"visual.trunk.pos_embed": torch.zeros(1, 9, 48)}),
            r"visual.trunk.pos_embed \(1, 9, 48\) can't be converted to image.positions",
        ),
    ],
)
def test_unfit_tensors_are_refused(name, edit, message, tmp_path):
    folder = altered(FIXTURES / "open_clip" / name, tmp_path / "altered", edit)
    with pytest.raises(ValueError, match=message):
        prolip.load(folder)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "clip",
            lambda c: c["vision_cfg"].update(layers=[3, 4, 6, 3]),
            "a ResNet, but only ViTs are supported",
        ),
        ("clip", lambda c: c["vision_cfg"].update(ls_init_value=0.1), "unknown settings: ls_init_value"),
        ("clip", lambda c: c["text_cfg"].update(hf_model_name="roberta"), "unknown settings: hf_model_name"),
        ("clip", lambda c: c["text_cfg"].update(pool_type="first"), "pool_type 'first' is not supported"),
        ("clip", lambda c: c.pop("vision_cfg"), "must have vision_cfg and text_cfg"),
        ("clip", lambda c: c["vision_cfg"].update(head_width=5), "not a multiple"),
        ("clip", lambda c: c["vision_cfg"].update(head_width=0), "its config is not valid"),
        (
            "clip",
            lambda c: c["vision_cfg"].update(mlp_ratio=float("inf")),
            "its config is not valid",
        ),
        ("clip", lambda c: c["text_cfg"].update(embed_cls=True), "embed_cls"),
        ("clip", lambda c: c["text_cfg"].update(no_causal_mask=True), "padded to the context length"),
        (
            "siglip",
            lambda c: c["vision_cfg"].update(timm_model_name="vit_base_patch16_siglip_gap_224"),
            "only SigLIP's ViTs",
        ),
        (
            "siglip",
            lambda c: c["vision_cfg"].update(timm_model_name="vit_base_patch16_224"),
            "only SigLIP's ViTs",
        ),
    ],
)
def test_unsupported_configs_are_refused(name, edit, message, tmp_path):
    folder = altered(
        FIXTURES / "open_clip" / name, tmp_path / "altered", edit_config=lambda c: edit(c["model_cfg"])
    )
    with pytest.raises(ValueError, match=message):
        prolip.load(folder)


@pytest.mark.parametrize(
    ("preprocess", "message"),
    [
        ({"resize_mode": "longest"}, "resize_mode 'longest'"),
        ({"interpolation": "random"}, "interpolation 'random'"),
    ],
)
def test_unsupported_preprocessing_is_refused(preprocess, message, tmp_path):
    folder = altered(
        FIXTURES / "open_clip" / "clip",
        tmp_path / "altered",
        edit_config=lambda c: c.update(preprocess_cfg=preprocess),
    )
    with pytest.raises(ValueError, match=message):
        prolip.load(folder)


def test_openais_weights_need_quick_gelu(tmp_path):
    def add(tensors):
        tensors.update(input_resolution=torch.tensor(24))

    folder = altered(FIXTURES / "open_clip" / "clip", tmp_path / "altered", add)
    with pytest.raises(ValueError, match="these are OpenAI's own weights"):
        prolip.load(folder)
    quick = altered(FIXTURES / "open_clip" / "clip_quickgelu", tmp_path / "quick", add)
    assert dict(open_model(quick).report.unused) == {
        "input_resolution": "scalar of OpenAI's files that is in the config, too"
    }


def test_unset_unknown_settings_are_accepted(tmp_path):
    edit = {"attentional_pool": False, "ls_init_value": None}
    folder = altered(
        FIXTURES / "open_clip" / "clip",
        tmp_path / "altered",
        edit_config=lambda c: c["model_cfg"]["vision_cfg"].update(edit),
    )
    assert prolip.load(folder, device="cpu").config.image.pooling == "class"


def test_norms_and_defaults_of_the_config():
    values = {"vision_cfg": {"norm_kwargs": {"eps": 1e-6}}, "text_cfg": {}}
    assert open_clip.parse_clip_image_config(values["vision_cfg"], values, {}).blocks.norm_eps == 1e-6
    assert open_clip.parse_clip_image_config({}, values, {}).blocks == TransformerConfig(
        width=768, layers=12, heads=12, mlp_width=3072
    )
    assert open_clip.parse_text_blocks({}, values) == TransformerConfig(
        width=512, layers=12, heads=8, mlp_width=2048
    )
    assert (
        open_clip.make_siglip_tokenizer_config(32000, 64).pad_id,
        open_clip.make_siglip_tokenizer_config(256000, 64).pad_id,
    ) == (1, 0)


@pytest.mark.parametrize(
    ("name", "heads", "activation"),
    [
        ("vit_base_patch16_siglip_384", 12, "gelu"),
        ("vit_base_patch32_siglip_256", 12, "gelu_tanh"),
        ("vit_large_patch16_siglip_256", 16, "gelu"),
        ("vit_large_patch16_siglip_512", 16, "gelu_tanh"),
        ("vit_so400m_patch14_siglip_384", 16, "gelu"),
        ("vit_so400m_patch16_siglip_512", 16, "gelu_tanh"),
        ("vit_giantopt_patch16_siglip_256", 16, "gelu_tanh"),
    ],
)
def test_timms_names(name, heads, activation, tmp_path):
    """Heads and activations as in timm 1.0.30. (The tiny fixture's width fits both numbers of heads.)"""
    folder = altered(
        FIXTURES / "open_clip" / "siglip",
        tmp_path / "altered",
        edit_config=lambda c: c["model_cfg"]["vision_cfg"].update(timm_model_name=name),
    )
    blocks = open_model(folder).model.config.image.blocks
    assert (blocks.heads, blocks.activation) == (heads, activation)


def test_siglip_without_preprocessing_is_squashed_to_halves(tmp_path):
    folder = altered(
        FIXTURES / "open_clip" / "siglip", tmp_path / "altered", edit_config=lambda c: c.pop("preprocess_cfg")
    )
    pixels = open_model(folder).model.config.image.preprocessing
    assert (pixels.mean, pixels.resize_mode) == ((0.5, 0.5, 0.5), "squash")


def test_cleaning_and_the_name_of_the_tokenizer(tmp_path):
    clip, siglip = (open_model(FIXTURES / "open_clip" / name).model for name in ("clip", "siglip"))
    assert (clip.config.text.tokenizer.cleaning, siglip.config.text.tokenizer.cleaning) == (
        "lower",
        "canonicalize",
    )
    folder = altered(
        FIXTURES / "open_clip" / "siglip",
        tmp_path / "altered",
        edit_config=lambda c: c["model_cfg"]["text_cfg"].update(hf_tokenizer_name="me/words"),
    )
    assert open_model(folder).model.origin["tokenizer"] == "me/words"


def test_half_precision_means_are_of_unit_length():
    """No projection, so no Head, stands between SigLIP's image tower and the embedding."""
    golden = FIXTURES / "open_clip" / "siglip"
    model = prolip.load(golden, device="cpu", dtype=torch.bfloat16)
    z = model.encode_image(load_file(golden / "io.safetensors")["pixels"])
    assert z.mean.dtype == torch.float32
    torch.testing.assert_close(z.mean.norm(dim=-1), torch.ones(len(z)))


def test_a_training_checkpoint_of_open_clip(tmp_path):
    """A .pt with epoch, optimizer and DDP's `module.`; its config lies elsewhere, as a bare model config."""
    golden = FIXTURES / "open_clip" / "clip"
    tensors = {f"module.{k}": v for k, v in load_file(golden / "open_clip_model.safetensors").items()}
    torch.save(
        {"epoch": 3, "name": "run", "state_dict": tensors, "optimizer": {"state": {}}},
        tmp_path / "epoch_3.pt",
    )
    with pytest.raises(FileNotFoundError, match="there is no config in its folder"):
        prolip.load(tmp_path / "epoch_3.pt")
    config = json.loads((golden / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "ViT.json").write_text(json.dumps(config))
    model = open_model(tmp_path / "epoch_3.pt", config=tmp_path / "ViT.json").model
    io = load_file(golden / "io.safetensors")
    torch.testing.assert_close(model.image(io["pixels"])[0], io["image"], rtol=0, atol=2e-6)
