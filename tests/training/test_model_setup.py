import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers, processors

from prolip import scenes
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.model.resize import resize_model
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.training.config import ModelSpec
from prolip.training.model_setup import make_model
from prolip.weights.load import open_model

SIGLIP = Path(__file__).parents[1] / "fixtures" / "open_clip" / "siglip"


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_fresh_model_is_that_of_create():
    model = make_model(ModelSpec(size="nano", tokenizer="scenes"), seed=5)
    assert same(model, create("nano", scenes.make_tokenizer(16), seed=5))
    assert not same(model, make_model(ModelSpec(size="nano", tokenizer="scenes"), seed=6))
    assert model.config.text.tokenizer.context_length == 16
    assert model.tokenizer.config == model.config.text.tokenizer
    assert model.dtype == torch.float32


def test_choices_of_a_fresh_model():
    choice = ModelSpec(
        size="nano",
        tokenizer="scenes",
        uncertainty="multihead",
        init_scale=7.0,
        init_logit_bias=-3.0,
        image_size=48,
    )
    model = make_model(choice, 0)
    assert model.config.image.uncertainty == model.config.text.uncertainty == "multihead"
    assert model.encode_image(torch.zeros(1, 3, 48, 48)).shape == (1, 32)
    assert math.isclose(model.temperature.scale.item(), 7.0, rel_tol=1e-6)
    assert model.logit_bias.item() == -3.0
    softmax = make_model(
        ModelSpec(size="nano", tokenizer="scenes", uncertainty="none", contrastive_loss="softmax"), 0
    )
    assert softmax.logit_bias is None
    assert softmax.config.deterministic


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"size": "nano"}, "need a tokenizer: set --model.tokenizer"),
        ({"size": "huge", "tokenizer": "scenes"}, "size 'huge'"),
        (
            {"size": "nano", "tokenizer": "scenes", "contrastive_loss": "softmax", "init_logit_bias": 1.0},
            "no bias",
        ),
        ({"size": "nano", "tokenizer": "scenes", "uncertainty": "mean"}, "text towers"),
        (
            {"size": "nano", "tokenizer": "scenes", "image_size": 44},
            "image_size 44 .* patch size 8.* 48",
        ),
        ({"pretrained": "x", "uncertainty": "none"}, "model.uncertainty applies to new weights"),
        ({"pretrained": "x", "contrastive_loss": "softmax"}, "model.contrastive_loss applies to new weights"),
    ],
)
def test_choices_that_cannot_be(choice, message):
    with pytest.raises(ValueError, match=message):
        make_model(ModelSpec(**choice), 0)


def test_a_tokenizer_that_is_nowhere():
    with pytest.raises(OSError, match="no/where"):
        make_model(ModelSpec(size="nano", tokenizer="no/where"), 0)


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        make_model(ModelSpec(size="nano", tokenizer=str(tmp_path)), 0)


def t5(path):
    """As SigLIP's: pad, end and the mask by T5's names; nothing before a text, the end after it."""
    vocab = {word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", "a", "star", "<extra_id_99>"])}
    core = Core(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_99>"])
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    core.save(str(path / "tokenizer.json"))
    (path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "</s>", "eos_token": "</s>"}))


def test_the_rules_of_a_tokenizer_like_the_papers(tmp_path):
    t5(tmp_path)
    for name in (tmp_path, tmp_path / "tokenizer.json"):
        model = make_model(ModelSpec(size="nano", tokenizer=str(name)), 0)
        assert model.config.text.tokenizer == TokenizerConfig(
            vocab_size=6, context_length=16, pad_id=1, mask_id=5, end_id=1, cleaning="canonicalize"
        )
    assert model.tokenize(["A star!"]).tolist() == [[3, 4, 1]]


def test_the_rules_of_clips_tokenizer(tmp_path):
    """open_clip names no padding and pads with 0, which is the word "!": the end token it must be."""
    words = ["!", "a</w>", "<|startoftext|>", "<|endoftext|>"]
    core = Core(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="!"))
    core.add_special_tokens(words[2:])
    core.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[(words[2], 2), (words[3], 3)]
    )
    core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "!"}))
    rules = make_model(ModelSpec(size="nano", tokenizer=str(tmp_path)), 0).config.text.tokenizer
    assert (rules.start_id, rules.end_id, rules.pad_id, rules.cleaning) == (2, 3, 3, "lower")
    assert rules.mask_id == 4  # a new one
    assert rules.vocab_size == 5


def test_the_tokenizer_of_one_of_our_models(nano, tmp_path):
    nano.save_pretrained(tmp_path / "run" / "model")
    for folder in ("run/model", "run"):
        model = make_model(ModelSpec(size="miniature", tokenizer=str(tmp_path / folder)), 0)
        assert (model.config.text.tokenizer.pad_id, model.config.text.tokenizer.mask_id) == (0, 1)
        assert model.config.text.tokenizer.context_length == 32
        assert torch.equal(model.tokenize(["a small star"]), nano.tokenize(["a small star"]))


def test_going_on_from_a_model_and_from_a_run(nano, tmp_path):
    nano.save_pretrained(tmp_path / "run" / "model")
    for folder in ("run/model", "run"):
        model = make_model(ModelSpec(pretrained=str(tmp_path / folder)), seed=9)
        assert same(model, nano)
        assert all(parameter.requires_grad for parameter in model.parameters())
        assert model.tokenizer is not None


def test_going_on_with_another_size_and_temperature(nano, tmp_path):
    nano.to(torch.bfloat16).save_pretrained(tmp_path)
    model = make_model(
        ModelSpec(pretrained=str(tmp_path), image_size=64, init_scale=5.0, init_logit_bias=2.0), 0
    )
    expected = resize_model(nano.float(), image_size=64)
    assert model.dtype == torch.float32
    assert torch.equal(model.image.positions, expected.image.positions)
    assert math.isclose(model.logit_scale.exp().item(), 5.0, rel_tol=1e-6)
    assert model.logit_bias.item() == 2.0


def test_a_deterministic_start_becomes_probabilistic(tmp_path):
    t5(tmp_path)
    start = str(SIGLIP)
    before = open_model(start).model
    assert before.config.deterministic
    choice = ModelSpec(pretrained=start, tokenizer=str(tmp_path), image_size=48, context_length=6)
    model, again, other = (make_model(choice, seed) for seed in (1, 1, 2))
    assert not model.config.deterministic
    assert model.config.text.tokenizer.mask_id == 5
    assert model.config.text.tokenizer.context_length == model.tokenizer.config.context_length == 6
    assert torch.equal(model.text.positions[:6], before.text.positions[:6])
    assert torch.equal(model.logit_bias, before.logit_bias)
    assert model.encode_image(torch.zeros(1, 3, 48, 48)).uncertainty.item() > 0
    assert same(model, again)
    assert not torch.equal(model.image.uncertainty_token, other.image.uncertainty_token)


def test_a_start_without_a_tokenizer(nano, tmp_path):
    nano.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    with pytest.raises(ValueError, match=r"has no tokenizer.*set --model\.tokenizer"):
        make_model(ModelSpec(pretrained=str(tmp_path)), 0)
    given = make_model(ModelSpec(pretrained=str(tmp_path), tokenizer=str(tmp_path / "elsewhere.json")), 0)
    assert torch.equal(given.tokenize(["a thing"]), nano.tokenize(["a thing"]))


def test_a_start_with_a_softmax_has_no_bias_to_set(tmp_path):
    choice = ModelSpec(size="nano", tokenizer="scenes", contrastive_loss="softmax")
    make_model(choice, 0).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no logit bias"):
        make_model(ModelSpec(pretrained=str(tmp_path), init_logit_bias=1.0), 0)


def test_a_start_has_whole_patches(nano, tmp_path):
    nano.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"model\.image_size 44 is not a multiple of the patch size 8"):
        make_model(ModelSpec(pretrained=str(tmp_path), image_size=44), 0)
    assert (
        make_model(ModelSpec(pretrained=str(tmp_path), image_size=48), 0).config.image.preprocessing.size
        == 48
    )


def test_a_size_of_its_own_is_left_alone(tmp_path):
    """SigLIP has images of 384 pixels and patches of 14."""
    model = create("nano", scenes.make_tokenizer(16))
    image = replace(model.config.image, preprocessing=replace(model.config.image.preprocessing, size=36))
    ProLIP(replace(model.config, image=image), model.tokenizer).init_weights(
        torch.Generator()
    ).save_pretrained(tmp_path)
    assert make_model(ModelSpec(pretrained=str(tmp_path), image_size=36), 0).config.image == image


def test_a_run_that_has_no_model_yet(nano, tmp_path, monkeypatch):
    run, step = tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-000000005"
    step.mkdir(parents=True)
    (run / "config.json").write_text('{"format": "prolip-run"}')
    monkeypatch.chdir(run / "checkpoints")
    for start in (run, step, Path(step.name)):
        with pytest.raises(ValueError, match=f"prolip export {start} --out OUT"):
            make_model(ModelSpec(pretrained=str(start)), 0)
    nano.save_pretrained(run / "model")
    for start in (run, run / "model"):
        assert same(make_model(ModelSpec(pretrained=str(start)), 0), nano)


def test_padding_that_a_tokenizer_was_saved_with_is_not_its_end(tmp_path):
    t5(tmp_path)
    core = Core.from_file(str(tmp_path / "tokenizer.json"))
    core.enable_padding(length=8, pad_id=0, pad_token="<pad>")
    core.save(str(tmp_path / "tokenizer.json"))
    assert make_model(ModelSpec(size="nano", tokenizer=str(tmp_path)), 0).config.text.tokenizer.end_id == 1


def test_a_mask_that_is_the_end_is_no_mask(tmp_path):
    t5(tmp_path)
    names = {"pad_token": "</s>", "eos_token": "</s>", "mask_token": "</s>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names))
    rules = make_model(ModelSpec(size="nano", tokenizer=str(tmp_path)), 0).config.text.tokenizer
    assert rules.mask_id not in (None, rules.end_id, rules.pad_id)
