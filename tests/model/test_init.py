"""Fresh weights have the spreads that RELEASE-FORMAT 1.3 records."""

import math
from dataclasses import replace

import pytest
import torch

from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.preprocessing.tokenizer import TokenizerConfig
from tests.model.test_prolip import full_of_nan

TOKENS = TokenizerConfig(vocab_size=2000, context_length=32, pad_id=0)
W, LAYERS = 256, 4


@pytest.fixture(scope="module")
def state():
    return ProLIP(get_config("small", TOKENS)).init_weights(torch.Generator().manual_seed(0)).state_dict()


def uniform(bound):
    return bound / math.sqrt(3)


IMAGE = {
    "class_token": W**-0.5,
    "uncertainty_token": W**-0.5,
    "positions": W**-0.5,
    "mean.weight": W**-0.5,
    "log_var.weight": W**-0.5,
    "stem.0.weight": uniform((3 * 16**2) ** -0.5),
    "blocks.1.attention.qkv.weight": uniform(math.sqrt(6 / (4 * W))),
    "blocks.1.attention.out.weight": uniform(W**-0.5),
    "blocks.1.mlp.up.weight": uniform(W**-0.5),
    "blocks.1.mlp.down.weight": uniform((4 * W) ** -0.5),
}
TEXT = {
    "tokens.weight": 0.02,
    "class_token": 0.01,
    "uncertainty_token": 0.01,
    "positions": 0.01,
    "mean.weight": W**-0.5,
    "log_var.weight": W**-0.5,
    "blocks.1.attention.qkv.weight": W**-0.5,
    "blocks.1.attention.out.weight": (2 * LAYERS * W) ** -0.5,
    "blocks.1.mlp.up.weight": (2 * W) ** -0.5,
    "blocks.1.mlp.down.weight": (2 * LAYERS * W) ** -0.5,
}


@pytest.mark.parametrize("name", [f"image.{name}" for name in IMAGE] + [f"text.{name}" for name in TEXT])
def test_standard_deviations_of_new_weights(name, state):
    side, rest = name.split(".", maxsplit=1)
    wanted = (IMAGE if side == "image" else TEXT)[rest]
    values = state[name]
    assert values.std().item() == pytest.approx(wanted, rel=4 / math.sqrt(values.numel()) + 0.01)
    assert values.mean().item() == pytest.approx(0.0, abs=5 * wanted / math.sqrt(values.numel()))


def test_norms_are_the_identity_and_biases_zero(state):
    for name, values in state.items():
        if ".norm" in name:
            assert (values == float(name.endswith("weight"))).all(), name
        elif name.endswith("log_var.bias"):
            assert (values == -10.0).all(), name
        elif name.endswith(".bias"):
            assert (values == 0).all(), name


def test_log_var_starts_at_the_configs_value():
    for kind in ("token", "multihead"):
        config = get_config("miniature", TOKENS).with_uncertainty(kind)
        state = ProLIP(config).init_weights(torch.Generator().manual_seed(0)).state_dict()
        biases = {name: values for name, values in state.items() if name.endswith("log_var.bias")}
        assert set(biases) == (
            {"image.log_var.bias", "text.log_var.bias"} if kind == "token" else {"log_var.bias"}
        )
        assert all((values == -7.5).all() for values in biases.values())


def test_the_releases_text_head_starts_there_too():
    config = get_config("nano", TOKENS)
    text = replace(
        config.text,
        uncertainty="mean",
        padding="attended",
        tokenizer=replace(config.text.tokenizer, pad_to="context"),
    )
    state = ProLIP(replace(config, text=text)).init_weights(torch.Generator().manual_seed(0)).state_dict()
    assert (state["text.log_var.bias"] == -10.0).all()
    assert state["text.log_var.weight"].std().item() == pytest.approx(32**-0.5, rel=0.1)


def test_attention_pooling_starts_too(generator, monkeypatch):
    config = get_config("nano", TOKENS).with_uncertainty("none")
    image = replace(config.image, pooling="attention", projection=False)
    monkeypatch.setattr(ProLIP, "to_empty", full_of_nan)
    state = ProLIP(replace(config, image=image)).init_weights(generator).state_dict()
    assert all(values.isfinite().all() for values in state.values())
    assert state["image.pool.probe"].std().item() == pytest.approx(32**-0.5, rel=0.5)
