"""The public release: its outputs, its quirks, and the way there and back, bit for bit."""

import filecmp
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import prolip
from prolip.model.prolip import ProLIP
from prolip.weights.formats import release
from prolip.weights.load import open_model
from tests.golden import FIXTURES, altered

GOLDEN = ("b16_tiny", "long_tiny")


@pytest.fixture(params=GOLDEN)
def golden(request):
    return FIXTURES / "models" / request.param


@pytest.fixture
def io(golden):
    return load_file(golden / "io.safetensors")


def close(z, io, name, kind):
    """Bounds that every wrong reading we know of breaks (RELEASE-FORMAT section 0)."""
    torch.testing.assert_close(z.mean, io[f"{name}.{kind}_mean"], rtol=0, atol=2e-6)
    torch.testing.assert_close(z.log_var, io[f"{name}.{kind}_std"], rtol=0, atol=2e-5)


@torch.no_grad()
def test_outputs_of_the_released_code(golden, io):
    model = prolip.load(golden, device="cpu")
    close(model.encode_image(io["in.image"]), io, "out", "image")
    close(model.encode_text(io["in.text"]), io, "out", "text")
    close(model.encode_text(io["short.text"]), io, "short", "text")
    torch.testing.assert_close(model.image(io["in.image"])[0], io["out.image_mean_raw"], rtol=0, atol=2e-5)
    torch.testing.assert_close(model.text(io["in.text"])[0], io["out.text_mean_raw"], rtol=0, atol=2e-5)
    torch.testing.assert_close(model.temperature.scale, io["out.logit_scale"].squeeze(), rtol=1e-6, atol=0)
    assert model.temperature.logit_bias == io["out.logit_bias"].squeeze()


@torch.no_grad()
@pytest.mark.parametrize("kept", [75, 50, 25])
def test_masked_images_of_the_released_code(golden, io, kept):
    model = prolip.load(golden, device="cpu")
    keep = io[f"masked{kept}.keep_idx"].expand(5, -1)
    close(model.encode_image(io["in.image"], keep), io, f"masked{kept}", "image")


@torch.no_grad()
def test_float64_outputs(golden, io):
    exact = load_file(golden / "io_f64.safetensors")
    model = prolip.load(golden, device="cpu", dtype=torch.float64)
    for kind, z in (
        ("image", model.encode_image(io["in.image"].double())),
        ("text", model.encode_text(io["in.text"])),
    ):
        torch.testing.assert_close(z.mean, exact[f"{kind}_mean"], rtol=0, atol=1e-10)
        torch.testing.assert_close(z.log_var, exact[f"{kind}_std"], rtol=0, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize(
    "wrong",
    [
        lambda c: replace(c, image=replace(c.image, class_norm="once")),
        lambda c: replace(c, image=replace(c.image, blocks=replace(c.image.blocks, norm_eps=1e-6))),
        lambda c: replace(c, text=replace(c.text, blocks=replace(c.text.blocks, norm_eps=1e-5))),
        lambda c: replace(c, image=replace(c.image, blocks=replace(c.image.blocks, activation="gelu_tanh"))),
        lambda c: replace(c, text=replace(c.text, uncertainty="token")),
        lambda c: replace(c, text=replace(c.text, padding="masked")),
    ],
    ids=[
        "one last norm",
        "eps of the image",
        "eps of the text",
        "tanh",
        "log-variance of [UNC]",
        "padding masked",
    ],
)
def test_tolerances_detect_wrong_forward_passes(wrong):
    golden = FIXTURES / "models" / "b16_tiny"
    io, model = load_file(golden / "io.safetensors"), prolip.load(golden, device="cpu")
    other = ProLIP.from_tensors(wrong(model.config), model.state_dict(), "test")
    images, texts = other.encode_image(io["in.image"]), other.encode_text(io["in.text"])
    with pytest.raises(AssertionError):
        close(images, io, "out", "image") or close(texts, io, "out", "text")


def test_convert_and_export_are_bit_exact(golden, tmp_path):
    prolip.load(golden, device="cpu").save_pretrained(tmp_path / "ours")
    release.export_release(prolip.load(tmp_path / "ours", device="cpu"), tmp_path / "theirs")
    for name in ("config.json", "model.safetensors"):
        assert filecmp.cmp(golden / name, tmp_path / "theirs" / name, shallow=False)


def test_every_tensor_is_accounted_for(golden):
    loaded = open_model(golden)
    assert loaded.format == "prolip-release"
    assert loaded.report.unused == ()
    assert loaded.report.initialized == ()
    assert len(loaded.report.loaded) == len(load_file(golden / "model.safetensors"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t.pop("visual.ln_post.bias"),
            "read as prolip-release: 1 tensors are missing: visual.ln_post.bias",
        ),
        (lambda t: t.pop("text.unc_emb"), "read as prolip-release: 1 tensors are missing: text.unc_emb"),
        (
            lambda t: t.update({"visual.more": torch.zeros(2)}),
            "visual.more",
        ),
        (
            lambda t: t.update({"visual.positional_embedding": torch.zeros(18, 32)}),
            r"image.positions is \(18, 32\), not \(18, 64\)",
        ),
    ],
)
def test_missing_tensors_raise(tmp_path, edit, message):
    folder = altered(FIXTURES / "models" / "b16_tiny", tmp_path / "altered", edit)
    with pytest.raises(ValueError, match=message):
        prolip.load(folder)


def test_a_coca_is_not_called_a_release_checkpoint(tmp_path):
    """CoCa of open_clip has text.cls_emb as the release has, and nothing of its uncertainty."""

    def make_coca(tensors):
        for name in [name for name in tensors if "unc" in name]:
            del tensors[name]
        tensors["text_decoder.text_projection"] = torch.zeros(2, 2)

    def edit_config(config):
        config["multimodal_cfg"] = {"width": 64}
        for name in ("vision_cfg", "text_cfg"):
            config[name].pop("embed_unc", None)

    folder = altered(FIXTURES / "models" / "b16_tiny", tmp_path / "altered", make_coca, edit_config)
    with pytest.raises(ValueError, match="CoCa") as caught:
        prolip.load(folder)
    assert "tensors are missing" not in str(caught.value)
    assert "for the format prolip-release" not in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.pop("embed_dim"), "embed_dim is missing"),
        (lambda c: c.update(strange=3), "unknown settings: strange"),
        (lambda c: c["vision_cfg"].update(ls_init_value=0.1), "unknown settings: ls_init_value"),
        (lambda c: c["text_cfg"].update(no_causal_mask=False), "was never released"),
        (lambda c: c["vision_cfg"].update(pool_type="avg"), "was never released"),
        (lambda c: c["text_cfg"].update(embed_unc=False), "was never released"),
        (lambda c: c["text_cfg"].update(embed_cls=False), "was never released"),
        (lambda c: c["vision_cfg"].update(width="wide"), "its config is not valid|integer|whole number"),
    ],
)
def test_unsupported_configs_are_refused(tmp_path, edit, message):
    folder = altered(FIXTURES / "models" / "b16_tiny", tmp_path / "altered", edit_config=edit)
    with pytest.raises(ValueError, match=message):
        prolip.load(folder)


def test_absent_keys_take_the_releases_defaults():
    config = release.parse_config({"embed_dim": 768, "vision_cfg": {}, "text_cfg": {}})
    assert config.image.uncertainty == "none"  # embed_unc defaults to false in the image tower
    assert config.contrastive_loss == "softmax"  # no init_logit_bias: the parameter doesn't exist
    assert config.text.tokenizer.vocab_size == 32100
    assert config.text.blocks.norm_eps == config.image.blocks.norm_eps == 1e-5
    assert (config.text.blocks.width, config.text.blocks.heads, config.text.blocks.layers) == (768, 12, 12)


def test_the_published_ids_of_siglips_vocabulary():
    tokens = release.parse_config(
        {"embed_dim": 768, "vision_cfg": {}, "text_cfg": {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP"}}
    ).text.tokenizer
    assert (tokens.pad_id, tokens.mask_id, tokens.end_id, tokens.pad_to) == (1, 32000, 1, "context")
    assert tokens.cleaning == "canonicalize"


def test_sizes_of_the_published_configs():
    """The hub lists config.json of B/16 with 631 bytes and of H/14 with 519: what their kwargs dump to."""
    b16 = {
        "embed_dim": 768, "init_logit_bias": -10,
        "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 16, "embed_unc": True,
                       "init_unc_bias": -10},
        "text_cfg": {
            "context_length": 64, "vocab_size": 32100, "hf_tokenizer_name": "timm/ViT-B-16-SigLIP",
            "tokenizer_kwargs": {"clean": "canonicalize"}, "width": 768, "heads": 12, "layers": 12, "pool_type": "last",
            "no_causal_mask": True, "proj_bias": True, "norm_kwargs": {"eps": 1e-6}, "embed_cls": True,
            "embed_unc": True, "init_unc_bias": -10,
        },
    }  # fmt: skip
    assert len(json.dumps(b16, sort_keys=True, indent=2)) == 631
    model = ProLIP(release.parse_config(b16))
    model.origin = {"format": release.NAME, "config": b16}
    assert release.make_release_config(model) == b16
    model.origin = {"tokenizer": "timm/ViT-B-16-SigLIP"}  # made anew, it says the same
    assert release.parse_config(release.make_release_config(model)) == model.config


def tiny(vision=None, text=None, **more):
    """Kwargs of a small model of the release."""
    return {
        "embed_dim": 32,
        "init_logit_bias": -10,
        "vision_cfg": {
            "width": 32, "head_width": 8, "layers": 1, "image_size": 32, "patch_size": 16, "embed_unc": True,
            **(vision or {}),
        },
        "text_cfg": {
            "width": 32, "heads": 4, "layers": 1, "context_length": 8, "vocab_size": 100,
            "hf_tokenizer_name": "timm/ViT-B-16-SigLIP", **(text or {}),
        },
        **more,
    }  # fmt: skip


VARIANTS = {
    "plain": tiny(),
    "H/14's": tiny(text={"hf_tokenizer_name": None}, quick_gelu=True),
    "no bias of the projection": tiny(text={"proj_bias": False}),
    "no norm before the blocks": tiny(vision={"no_ln_pre": True}),
    "no bias of the logits": tiny(init_logit_bias=None),
    "deterministic images": tiny(vision={"embed_unc": False}),
    "tanh": tiny(
        vision={"act_kwargs": {"approximate": "tanh"}}, text={"act_kwargs": {"approximate": "tanh"}}
    ),
    "eps": tiny(text={"norm_kwargs": {"eps": 1e-6}}),
    "uneven MLP": tiny(vision={"mlp_ratio": 3.7362}, text={"mlp_ratio": 100 / 32}),
    "another start": tiny(vision={"init_unc_bias": -7}, text={"init_unc_bias": -7}),
    "other cleaning": tiny(text={"tokenizer_kwargs": {"clean": "lower"}}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_export_inverts_load_for_every_variant(name, tmp_path, generator):
    """Written with the config it came with, and with one made anew: either says the same, and loads."""
    config = release.parse_config(VARIANTS[name])
    model = ProLIP(config).init_weights(generator)
    for origin in ({"format": release.NAME, "config": VARIANTS[name]}, {"tokenizer": "timm/ViT-B-16-SigLIP"}):
        model.origin = origin
        folder = release.export_release(model, tmp_path / str(len(origin)))
        again = prolip.load(folder, device="cpu")
        assert again.config == config
        for key, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[key]), key
    if name == "H/14's":
        assert (
            config.text.tokenizer.start_id,
            config.text.tokenizer.end_id,
            config.text.tokenizer.pad_id,
        ) == (
            98,
            99,
            0,
        )
        assert "hf_tokenizer_name" not in release.make_release_config(model)["text_cfg"]
    if name == "no bias of the logits":
        assert "logit_bias" not in load_file(folder / "model.safetensors")
    if name == "plain":
        assert config.text.tokenizer.mask_id is None  # 32000 is of the full vocabulary only


def test_a_half_precision_model_is_written_in_float32(tmp_path, generator):
    model = ProLIP(release.parse_config(tiny())).init_weights(generator).to(torch.bfloat16)
    model.origin = {"tokenizer": "timm/ViT-B-16-SigLIP"}
    release.export_release(model, tmp_path)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}


def test_export_of_zero_init_bias_keeps_the_logit_bias():
    """init_logit_bias 0 would mean that there is none."""
    config = release.parse_config(tiny())
    model = ProLIP(replace(config, init=replace(config.init, logit_bias=0.0)))
    model.origin = {"tokenizer": "timm/ViT-B-16-SigLIP"}
    assert release.make_release_config(model)["init_logit_bias"] == -10.0


def test_a_tokenizer_needs_a_name_there(tmp_path, generator):
    model = ProLIP(release.parse_config(tiny())).init_weights(generator)
    with pytest.raises(ValueError, match="names its tokenizer by a hub id, and this model has none"):
        release.export_release(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def clip_words(folder, size=100):
    """A tokenizer in the manner of transformers' CLIP: start and end around a text, padding with the end."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    start, end = "<|startoftext|>", "<|endoftext|>"
    words = {"!": 0, "a": 1, "cat": 2, "dog": 3, start: size - 2, end: size - 1}
    core = Tokenizer(models.WordLevel(words, unk_token="a"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, size - 2), (end, size - 1)]
    )
    folder.mkdir()
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"pad_token": end, "bos_token": start, "eos_token": end})
    )
    return folder


def test_h14_pads_with_zero_whatever_its_tokenizer_says(tmp_path, generator):
    """It attends to padding, so another pad id would be another text; CLIP tokenizers of transformers name the end."""
    values = tiny(text={"hf_tokenizer_name": None, "norm_kwargs": {"eps": 1e-5}}, quick_gelu=True)
    model = ProLIP(release.parse_config(values)).init_weights(generator)
    model.origin = {"format": release.NAME, "config": values}
    folder = release.export_release(model, tmp_path / "h14")
    loaded = prolip.load(folder, tokenizer=clip_words(tmp_path / "words"), device="cpu")
    assert loaded.tokenize("a cat").tolist() == [[98, 1, 2, 99, 0, 0, 0, 0]]
    assert loaded.config.text.blocks.activation == "quick_gelu"
    with torch.no_grad():
        wanted = model.encode_text(torch.tensor([[98, 1, 2, 99, 0, 0, 0, 0]]))
    torch.testing.assert_close(loaded.embed_texts("a cat").mean, wanted.mean)


def test_which_tokenizer_to_look_for():
    from prolip.weights.formats.files import ForeignModel

    for text, vocabulary, wanted in (
        ({"hf_tokenizer_name": "some/one"}, 100, "some/one"),
        ({"hf_tokenizer_name": None}, 49408, "openai/clip-vit-base-patch32"),
        ({"hf_tokenizer_name": None}, 100, None),
    ):
        values = tiny(text={**text, "vocab_size": vocabulary})
        source = ForeignModel(path=FIXTURES, config=values, tensors={})
        assert release.FORMAT.tokenizer_name(source, release.parse_config(values)) == wanted


def test_a_stretched_model_is_exported_with_its_new_length(tmp_path):
    model = prolip.load(FIXTURES / "models" / "long_tiny", device="cpu", context_length=300)
    release.export_release(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["text_cfg"]["context_length"] == 300
    again = prolip.load(tmp_path, device="cpu")
    assert again.config.text.blocks == model.config.text.blocks
    assert torch.equal(again.text.positions, model.text.positions)


def test_uneven_mlp_widths_survive_the_ratio():
    """The release computes int(width * ratio)."""
    config = release.parse_config(
        {
            "embed_dim": 1152,
            "init_logit_bias": -10,
            "vision_cfg": {"width": 1152, "head_width": 72, "mlp_ratio": 3.7362},
            "text_cfg": {"width": 1152, "heads": 16, "mlp_ratio": 3.7362},
        }
    )
    model = ProLIP(config)
    assert config.image.blocks.mlp_width == 4304
    assert release.parse_config(release.make_release_config(model)) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda i, t: (i, replace(t, uncertainty="token")),
            "text log-variances don't come from the projected mean",
        ),
        (lambda i, t: (replace(i, class_norm="once"), t), "applies the last norm of the image tower once"),
        (lambda i, t: (i, replace(t, padding="masked")), "it masks padding"),
        (lambda i, t: (i, replace(t, causal=True)), "its text tower is causal"),
        (lambda i, t: (replace(i, patch_bias=True), t), "its patches have a bias"),
        (lambda i, t: (replace(i, projection=False), t), "a tower has no projection"),
        (lambda i, t: (i, replace(t, projection=False)), "a tower has no projection"),
        (lambda i, t: (replace(i, blocks=replace(i.blocks, norm_eps=1e-6)), t), "norm_eps"),
        (lambda i, t: (replace(i, blocks=replace(i.blocks, activation="quick_gelu")), t), "mix QuickGELU"),
        (
            lambda i, t: (replace(i, preprocessing=replace(i.preprocessing, resize_mode="squash")), t),
            "not resized and normalized",
        ),
    ],
)
def test_export_release_rejects_other_forward_passes(change, message, tmp_path):
    config = open_model(FIXTURES / "models" / "b16_tiny").model.config
    image, text = change(config.image, config.text)
    model = ProLIP(replace(config, image=image, text=text)).init_weights(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=f"The release can't represent this model: .*{message}"):
        release.export_release(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_our_own_models_are_refused_with_a_reason(nano, tmp_path):
    with pytest.raises(ValueError, match="The release can't represent this model: its text log-variances"):
        release.export_release(nano, tmp_path)


RELEASED_B16 = "SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B"
CATS = "A couple of cats laying on top of a pink blanket."


@pytest.fixture
def known_picture():
    """COCO val2017 39769."""
    from urllib.request import urlopen

    with urlopen("http://images.cocodataset.org/val2017/000000039769.jpg") as answer:
        return answer.read()


@pytest.mark.hub
def test_released_b16_on_a_known_image(known_picture):
    """SPEC section 8."""
    model = prolip.load(RELEASED_B16, device="cpu")
    image, text = model.embed_images(known_picture), model.embed_texts(CATS)
    assert image.uncertainty.item() == pytest.approx(0.0145, abs=1e-4)
    assert text.uncertainty.item() == pytest.approx(0.0419, abs=1e-4)
    assert (image.mean @ text.mean.T).item() == pytest.approx(0.2314, abs=2e-4)


@pytest.mark.hub
def test_the_released_b16_on_all_three_captions(known_picture):
    """SPEC has the numbers of three captions but not the words of the last two. These are from memory of the release's
    example: should this test alone fail, doubt them first."""
    model = prolip.load(RELEASED_B16, device="cpu")
    image = model.embed_images(known_picture)
    texts = model.embed_texts([CATS, "A man walks through a flooded road during a rainstorm", "photo"])
    torch.testing.assert_close(
        image.mean @ texts.mean.T, torch.tensor([[0.2314, -0.2199, 0.1002]]), rtol=0, atol=2e-4
    )
    torch.testing.assert_close(texts.uncertainty, torch.tensor([0.0419, 0.0398, 0.0599]), rtol=0, atol=1e-4)
