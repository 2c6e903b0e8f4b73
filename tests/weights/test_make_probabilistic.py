"""CLIP and SigLIP made probabilistic: what was trained is kept, what is new is named, nothing vanishes."""

import pytest
import tokenizers
import torch
from safetensors.torch import load_file
from tokenizers import models, processors

import prolip
from prolip.losses.contrastive import ppcl
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import LIKELIHOOD_HEADS, NewHeads, make_probabilistic
from tests.golden import FIXTURES

NEW = {
    "clip": {"logit_bias", "logit_scale", "image.uncertainty_token"},
    "siglip": {"image.class_token", "image.mean.weight", "image.uncertainty_token"},
}
COMMON = {f"{side}.log_var.{kind}" for side in ("image", "text") for kind in ("weight", "bias")} | {
    "text.uncertainty_token",
    "image.positions (of added tokens)",
    "text.positions (of added tokens)",
}


@pytest.fixture(params=["clip", "siglip"])
def pair(request, generator):
    old = open_model(FIXTURES / "open_clip" / request.param).model
    new, account = make_probabilistic(old, generator)
    return request.param, old, new, account


def test_make_probabilistic_reports_all_tensors(pair):
    kind, old, new, account = pair
    assert set(account.initialized) == NEW[kind] | COMMON
    left = dict(account.unused)
    if kind == "clip":
        assert set(left) == {"logit_scale"}
    else:
        assert set(left) == {name for name in old.state_dict() if name.startswith("image.pool.")}
        assert set(left.values()) == {"attention pooling, which [CLS] replaces"}
    assert set(account.loaded) | (
        set(account.initialized) - {n for n in account.initialized if " " in n}
    ) == set(new.state_dict())
    assert set(account.loaded).isdisjoint(account.initialized)


def test_trained_tensors_are_untouched(pair):
    kind, old, new, account = pair
    before, after = old.state_dict(), new.state_dict()
    partly = {"image.positions", "text.positions", "text.tokens.weight", "text.class_token"}
    for name in set(account.loaded) - partly:
        assert torch.equal(before[name], after[name]), name
    added = old.config.image.num_added_tokens
    assert torch.equal(after["image.positions"][2:], before["image.positions"][added:])
    if kind == "clip":
        assert torch.equal(after["image.positions"][0], before["image.positions"][0])
    fresh = ProLIP(new.config).init_weights(torch.Generator().manual_seed(0)).state_dict()
    assert torch.equal(after["image.positions"][added:2], fresh["image.positions"][added:2])
    assert torch.equal(after["text.positions"][-2], fresh["text.positions"][-2])
    if kind == "siglip":  # [CLS] takes the position that SigLIP read
        assert torch.equal(after["text.positions"][-1], before["text.positions"][-1])
    assert torch.equal(after["text.positions"][:-2], before["text.positions"])
    assert torch.equal(after["text.tokens.weight"], before["text.tokens.weight"])
    assert torch.equal(
        after["text.class_token"], before["text.tokens.weight"][old.config.text.tokenizer.end_id]
    )


def test_make_probabilistic_gives_the_papers_architecture(pair):
    kind, _, new, _ = pair
    config = new.config
    assert config.image.uncertainty == config.text.uncertainty == "token"
    assert config.image.pooling == config.text.pooling == "class"
    assert not config.text.causal
    assert config.text.padding == ("masked" if kind == "clip" else "attended")
    assert config.contrastive_loss == "sigmoid"
    if kind == "clip":
        assert new.temperature.scale.item() == pytest.approx(10.0)
        assert new.logit_bias.item() == -10.0
        assert (
            config.text.tokenizer.pad_id == config.text.tokenizer.end_id
        )  # 0 is a word of CLIP's, and would be masked


def test_probabilistic_model_starts_with_small_variance_and_trains(pair):
    kind, _, new, _ = pair
    io = load_file(FIXTURES / "open_clip" / kind / "io.safetensors")
    images, texts = new(io["pixels"], io["ids"])
    for z in (images, texts):
        z.check()
        assert z.log_var.mean().item() == pytest.approx(-10.0, abs=1.0)
    ppcl(images, texts, new.temperature).backward()
    for name, p in new.named_parameters():
        if not name.startswith("text.tokens"):
            assert p.grad is not None, name
            assert p.grad.abs().max() > 0, name


@torch.no_grad()
def test_siglips_text_features_barely_move(generator):
    """[CLS] takes over embedding and position of the token that SigLIP read: only [UNC], one more token to attend to,
    and the doubled last token are new."""
    golden = FIXTURES / "open_clip" / "siglip"
    old = open_model(golden).model
    new, _ = make_probabilistic(old, generator)
    ids = load_file(golden / "io.safetensors")["ids"]
    ids[:, -1] = old.config.text.tokenizer.end_id
    cosine = (old.encode_text(ids).mean * new.encode_text(ids).mean).sum(-1)
    assert cosine.min() > 0.9


def test_a_mask_token_is_added_with_its_row(generator):
    model = open_model(FIXTURES / "open_clip" / "siglip").model
    core = tokenizers.Tokenizer(models.WordLevel({"a": 0, "</s>": 1, "b": 2}, unk_token="a"))
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    model.set_tokenizer(Tokenizer(core, model.config.text.tokenizer))
    new, account = make_probabilistic(model, generator)
    assert new.config.text.tokenizer.mask_id == 64
    assert "text.tokens.weight (its last 1 rows)" in account.initialized
    assert new.tokenizer.config == new.config.text.tokenizer
    assert new.text.tokens.weight.shape[0] == 65
    assert torch.equal(new.text.tokens.weight[:64], model.text.tokens.weight)


def test_t5s_mask_is_taken_where_there_is_one(generator):
    """SigLIP's vocabulary: <extra_id_99> is the first id after the pieces, and the release masks with it."""
    model = open_model(FIXTURES / "open_clip" / "siglip").model
    words = {
        "a": 0,
        "</s>": 1,
        "b": 2,
        **{f"w{i}": i for i in range(3, 64)},
        "<extra_id_99>": 64,
        "<extra_id_98>": 65,
    }
    core = tokenizers.Tokenizer(models.WordLevel(words, unk_token="a"))
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    model.set_tokenizer(Tokenizer(core, model.config.text.tokenizer))
    new, _ = make_probabilistic(model, generator)
    assert new.config.text.tokenizer.mask_id == 64
    assert new.text.tokens.weight.shape[0] == 65


def test_half_precision_stays_half(generator):
    new, _ = make_probabilistic(open_model(FIXTURES / "open_clip" / "clip").model.half(), generator)
    assert {p.dtype for p in new.parameters()} == {torch.float16}


def test_make_probabilistic_does_not_change_the_model(generator):
    old = open_model(FIXTURES / "open_clip" / "clip").model
    new, _ = make_probabilistic(old, generator)
    before = old.image.norm_post.weight.clone()
    with torch.no_grad():
        new.image.norm_post.weight.add_(1.0)
    assert torch.equal(old.image.norm_post.weight, before)


def test_make_probabilistic_seed_determines_new_weights():
    old = open_model(FIXTURES / "open_clip" / "clip").model
    a, b, c = (make_probabilistic(old, torch.Generator().manual_seed(s))[0] for s in (0, 0, 1))
    assert torch.equal(a.image.log_var.weight, b.image.log_var.weight)
    assert not torch.equal(a.image.log_var.weight, c.image.log_var.weight)


def test_a_probabilistic_model_is_refused(nano, generator):
    with pytest.raises(ValueError, match="already has uncertainty"):
        make_probabilistic(nano, generator)


def test_it_can_be_saved_and_loaded(pair, tmp_path):
    _, _, new, _ = pair
    other = prolip.load(new.save_pretrained(tmp_path), device="cpu")
    assert other.config == new.config
    assert torch.equal(other.image.positions, new.image.positions)


# -- one width per sample, and the likelihood --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@torch.no_grad()
def test_likelihood_heads_start_with_the_means_of_the_papers_heads(kind):
    golden = FIXTURES / "open_clip" / kind
    old, io = open_model(golden).model, load_file(golden / "io.safetensors")
    diagonal, one_width, likelihood = (
        make_probabilistic(old, torch.Generator().manual_seed(4), heads)[0](io["pixels"], io["ids"])
        for heads in (None, NewHeads(isotropic=True), LIKELIHOOD_HEADS)
    )
    for a, b, c in zip(diagonal, one_width, likelihood, strict=True):
        assert torch.equal(a.mean, b.mean)
        assert torch.equal(a.mean, c.mean)
        assert not torch.equal(a.log_var, c.log_var)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@torch.no_grad()
def test_likelihood_model_of_a_trained_one_starts_where_its_formula_says(kind, generator):
    """One log-variance, a trace of 0.26, and a perfect match of probability one half."""
    golden = FIXTURES / "open_clip" / kind
    new, account = make_probabilistic(open_model(golden).model, generator, LIKELIHOOD_HEADS)
    assert new.config.contrastive_loss == "likelihood"
    assert {"logit_scale", "logit_bias"} <= set(account.initialized)
    assert new.image.log_var.out_features == new.text.log_var.out_features == 1
    images, _ = new(load_file(golden / "io.safetensors")["pixels"])
    torch.testing.assert_close(images.uncertainty, torch.full((len(images),), 0.26), rtol=1e-5, atol=0)
    half = torch.full((len(images),), 0.5)
    torch.testing.assert_close(new.match_probability(images, images), half, rtol=0, atol=1e-3)


def test_temperature_of_siglip_is_kept_for_sigmoids_alone(generator):
    """The unit of a likelihood's scale is another."""
    old = open_model(FIXTURES / "open_clip" / "siglip").model
    kept, _ = make_probabilistic(old, generator, NewHeads(isotropic=True))
    new, account = make_probabilistic(old, generator, LIKELIHOOD_HEADS)
    assert torch.equal(kept.logit_scale, old.logit_scale)
    assert not torch.equal(new.logit_scale, old.logit_scale)
    assert {"logit_scale", "logit_bias"} <= set(dict(account.unused))


def test_new_heads_have_no_softmax():
    with pytest.raises(ValueError, match='"sigmoid" or "likelihood"'):
        NewHeads(contrastive_loss="softmax")
