"""Configs: to JSON and back, and a message for everything that is unknown or impossible."""

import json
from dataclasses import replace

import pytest

from prolip.model.config import ImageConfig, InitConfig, ModelConfig, TextConfig, TransformerConfig
from prolip.model.sizes import SIZES, get_config
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig

TOKENS = TokenizerConfig(vocab_size=100, context_length=16, pad_id=0, mask_id=1, end_id=3, pad_to="context")
BLOCKS = TransformerConfig(width=32, layers=2, heads=4, mlp_width=64)


@pytest.mark.parametrize("name", SIZES)
def test_config_survives_json(name):
    config = get_config(name, TOKENS)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def changed(config, path, value):
    """The dict of a config with one value changed, or removed if the value is `...`."""
    content = json.loads(json.dumps(config.to_dict()))
    *parents, last = path.split(".")
    place = content
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("embed_dim", 0, "embed_dim must be a whole number of at least 1"),
        ("embed_dim", True, "embed_dim must be a whole number"),
        ("embed_dim", ..., "embed_dim"),
        ("imagee", {}, r"config has unknown keys \['imagee'\]"),
        ("image.blocks.head", 3, r"config.image.blocks has unknown keys \['head'\]"),
        ("image.blocks", 7, "config.image.blocks must be an object with named values, not int"),
        ("image.blocks.heads", 5, "config.image.blocks: width 32 is not a multiple of 5 heads"),
        ("image.blocks.norm_eps", 0.0, "norm_eps 0.0 must be between 0 and 1"),
        ("image.blocks.norm_eps", 1.5, "norm_eps 1.5 must be between 0 and 1"),
        ("text.blocks.mlp_width", 0, "mlp_width must be a whole number"),
        ("image.patch_size", 0, "patch_size must be a whole number"),
        ("text.padding", "maybe", "padding 'maybe' is not one of"),
        ("text.causal", 1, "causal must be true or false"),
        ("init.log_var", float("nan"), "log_var finite"),
        ("init.scale", float("inf"), "scale must be positive"),
        ("image.blocks.activation", "relu", "activation 'relu' is not one of"),
        ("image.patch_size", 64, "image size 32 is smaller than patch_size 64"),
        ("image.patch_bias", "yes", "patch_bias must be true or false"),
        ("image.uncertainty", "mean", 'uncertainty "mean" is for text towers'),
        ("image.pooling", "attention", '"attention" has no'),
        ("image.stem", "mlp", 'stem "mlp" has biases'),
        ("image.projection", "no", "projection must be true or false"),
        ("text.uncertainty", "multihead", "for both towers"),
        ("text.pooling", "last", 'uncertainty "token" needs the pooling "class"'),
        ("text.padding", "attended", "padded to the context length"),
        ("text.tokenizer.pad_id", 100, "pad_id must be a whole number from 0"),
        ("contrastive_loss", "cosine", "contrastive_loss 'cosine' is not one of"),
        ("init.scale", 0.0, "scale must be positive"),
    ],
)
def test_invalid_values_are_named_with_their_field(path, value, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_dict(changed(get_config("nano", TOKENS), path, value))


def image(**changes):
    return ImageConfig(preprocessing=ImagePreprocessing(size=32), patch_size=8, blocks=BLOCKS, **changes)


def text(**changes):
    return TextConfig(tokenizer=TOKENS, blocks=BLOCKS, **changes)


def test_a_tower_without_projection_has_the_width_of_the_embedding():
    with pytest.raises(
        ValueError, match="image tower has no projection, so its width 32 must equal embed_dim 16"
    ):
        ModelConfig(embed_dim=16, image=image(projection=False), text=text())
    assert ModelConfig(embed_dim=32, image=image(projection=False), text=text())


def test_a_patch_may_fill_the_image():
    assert ImageConfig(preprocessing=ImagePreprocessing(size=8), patch_size=8, blocks=BLOCKS).num_patches == 1


def test_pooling_requirements():
    with pytest.raises(ValueError, match="class_norm"):
        image(pooling="attention", uncertainty="none", class_norm="twice")
    with pytest.raises(ValueError, match="end_id"):
        TextConfig(
            tokenizer=replace(TOKENS, end_id=None),
            blocks=BLOCKS,
            pooling="end",
            uncertainty="none",
            padding="attended",
        )
    with pytest.raises(ValueError, match='padding must be "attended"'):
        text(pooling="last", uncertainty="none")
    with pytest.raises(ValueError, match="needs the projections"):
        ModelConfig(
            embed_dim=32,
            image=image(projection=False, uncertainty="multihead"),
            text=text(uncertainty="multihead"),
        )


def test_text_tower_requirements():
    with pytest.raises(ValueError, match="text tower has no projection, so its width 32"):
        ModelConfig(embed_dim=16, image=image(), text=text(projection=False))
    with pytest.raises(ValueError, match="needs the projections"):
        ModelConfig(
            embed_dim=32,
            image=image(uncertainty="multihead"),
            text=text(projection=False, uncertainty="multihead"),
        )
    mixed = ModelConfig(embed_dim=16, image=image(uncertainty="none"), text=text())
    assert not mixed.deterministic


def test_another_source_of_variances():
    config = get_config("nano", TOKENS)
    assert config.with_uncertainty("none").deterministic
    assert not config.deterministic
    assert config.with_uncertainty("multihead").image.uncertainty == "multihead"


def test_init_config_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        InitConfig(logit_bias=float("nan"))
