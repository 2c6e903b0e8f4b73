"""Towers with frozen encoders: configs, feature map, heads, attaching."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import gelu, normalize

from prolip.model.config import InitConfig, ModelConfig
from prolip.model.frozen_config import EncoderConfig, FrozenImageConfig, FrozenTextConfig, HeadConfig
from prolip.model.frozen_tower import FrozenTower
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing
from prolip.preprocessing.tokenizer import TokenizerConfig

DIM, FEATURES, COMPONENTS = 6, 10, 5
ENCODER = EncoderConfig(name="python:x", digest="0123456789abcdef", dim=FEATURES)


class Doubling:
    """An encoder whose features are the inputs, doubled."""

    def __init__(self, config=ENCODER):
        self.config = config

    def encode(self, inputs):
        return 2 * inputs.flatten(1)[:, :FEATURES].float()


HEAD = HeadConfig(components=COMPONENTS, hidden=7, width_hidden=4, dropout=0.4)


def make_model(head=HEAD, seed=0):
    image = FrozenImageConfig(preprocessing=ImagePreprocessing(size=8), encoder=ENCODER, head=head)
    tokenizer = TokenizerConfig(vocab_size=10, context_length=12, pad_id=0)
    config = ModelConfig(
        embed_dim=DIM if head is not None else FEATURES, image=image,
        text=FrozenTextConfig(tokenizer=tokenizer, encoder=ENCODER, head=head),
        contrastive_loss="softmax" if head is None else "likelihood",
        init=InitConfig(log_var=-2.0, logit_bias=-3.0),
    )  # fmt: skip
    model = ProLIP(config).init_weights(torch.Generator().manual_seed(seed)).eval()
    model.image.attach_encoder(Doubling())
    model.text.attach_encoder(Doubling())
    return model


def randomize(model, generator):
    """Give every parameter and buffer of the heads a random value."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "logit" not in name:
                value.normal_(0.0, 0.5, generator=generator)
    return model


def test_forward_is_the_three_line_definition(generator):
    model = randomize(make_model(), generator)
    pixels = torch.randn(4, 3, 8, 8, generator=generator) * 20  # some features are clipped
    z = model.encode_image(pixels)
    tower, weights = model.image, {k: v.double() for k, v in model.image.state_dict().items()}

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    for row in range(4):
        features = 2 * pixels[row].flatten()[:FEATURES].double()
        standardized = (features - weights["feature_map.shift"]) * weights["feature_map.scale"]
        x = standardized.clamp(-8, 8) @ weights["feature_map.components"]
        mean = linear(x, "mean.linear") + linear(gelu(linear(x, "mean.hidden")), "mean.output")
        log_var = linear(gelu(linear(x, "log_var.hidden")), "log_var.output")
        torch.testing.assert_close(z.mean[row].double(), normalize(mean, dim=-1), rtol=0, atol=1e-5)
        torch.testing.assert_close(z.log_var[row].double(), log_var.expand(DIM), rtol=0, atol=1e-4)
    assert z.shape == (4, DIM)
    assert tower.embed_dim == DIM


@pytest.mark.parametrize(("hidden", "width_hidden"), [(0, 0), (5, 0), (0, 5)])
def test_linear_heads_have_no_hidden_layer(hidden, width_hidden):
    head = HeadConfig(components=COMPONENTS, hidden=hidden, width_hidden=width_hidden)
    names = set(make_model(head).image.state_dict())
    assert ("mean.hidden.weight" in names) == bool(hidden)
    assert ("log_var.hidden.weight" in names) == bool(width_hidden)


def test_encode_components_continues_after_the_feature_map(generator):
    model = randomize(make_model(), generator)
    ids = torch.randint(0, 10, (3, 12), generator=generator)
    components = model.text.feature_map(2 * ids[:, :FEATURES].float())
    a, b = model.encode_text(ids), model.encode_components(components, "text")
    assert torch.equal(a.mean, b.mean)
    assert torch.equal(a.log_var, b.log_var)


def test_dropout_acts_in_training_only(generator):
    model = randomize(make_model(), generator)
    x = torch.randn(8, COMPONENTS, generator=generator)
    first, second = (model.encode_components(x, "image") for _ in range(2))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.log_var, second.log_var)
    model.train()
    first, second = (model.encode_components(x, "image") for _ in range(2))
    assert not torch.equal(first.mean, second.mean)
    assert not torch.equal(first.log_var, second.log_var)


def test_initial_widths_are_constant_and_weights_depend_on_the_seed(generator):
    model = make_model()
    z = model.encode_components(torch.randn(5, COMPONENTS, generator=generator), "image")
    torch.testing.assert_close(z.log_var, torch.full((5, DIM), -2.0))
    same, other = make_model().state_dict(), make_model(seed=1).state_dict()
    assert all(torch.equal(value, same[name]) for name, value in model.state_dict().items())
    assert any(not torch.equal(value, other[name]) for name, value in model.state_dict().items())


def test_a_tower_without_head_returns_the_features_and_no_width(generator):
    model = make_model(head=None)
    pixels = torch.randn(3, 3, 8, 8, generator=generator)
    z = model.encode_image(pixels)
    assert torch.equal(z.mean, 2 * pixels.flatten(1)[:, :FEATURES])  # of any length
    assert (z.uncertainty == 0).all()
    assert model.config.deterministic
    assert model.config.has_raw_features


def test_attach_encoder_refuses_another_digest():
    model = make_model()
    with pytest.raises(ValueError, match=r"0123456789abcdef.*fedcba9876543210"):
        model.image.attach_encoder(Doubling(replace(ENCODER, digest="fedcba9876543210")))


def test_a_model_without_encoder_names_it(tmp_path, generator):
    model = randomize(make_model(), generator)
    loaded = ProLIP.from_folder(model.save_pretrained(tmp_path))
    with pytest.raises(ValueError, match="python:x"):
        loaded.encode_image(torch.zeros(1, 3, 8, 8))
    x = torch.randn(3, COMPONENTS, generator=generator)
    assert torch.equal(loaded.encode_components(x, "text").mean, model.encode_components(x, "text").mean)
    assert loaded.config == model.config


def test_the_encoder_is_not_saved_with_the_model():
    model = make_model()
    network = torch.nn.Linear(2, 2)
    model.image._encoder = (network,)
    assert not any("encoder" in name for name in model.state_dict())
    assert network not in set(model.modules())


def test_patches_are_refused():
    with pytest.raises(ValueError, match="masked views of patches"):
        make_model().encode_image(torch.zeros(1, 3, 8, 8), torch.zeros(1, 2, dtype=torch.int64))


def test_encode_components_needs_frozen_encoders(nano):
    with pytest.raises(ValueError, match="no frozen encoders"):
        nano.encode_components(torch.zeros(1, 4), "image")


def test_transformer_configs_are_refused_by_name():
    config = make_model().config
    for name in ("image_transformer", "text_transformer"):
        with pytest.raises(ValueError, match="frozen encoder python:x"):
            getattr(config, name)


def test_one_frozen_tower_is_refused(nano):
    frozen = make_model().config
    with pytest.raises(ValueError, match="either both towers"):
        replace(nano.config, image=frozen.image)


def test_config_survives_json():
    for head in (None, HeadConfig(components=3, means="encoder", hidden=0)):
        config = make_model(head).config if head is None else replace(make_model().config)
        assert ModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"digest": "xyz"}, "16 hexadecimal digits"),
        ({"name": ""}, "name"),
        ({"dim": 0}, "dim"),
        ({"dim": "12"}, "dim"),
    ],
)
def test_encoder_config_refuses(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(ENCODER, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"dropout": 1.0}, "dropout"), ({"dropout": -0.1}, "dropout"), ({"components": 0}, "components"),
     ({"hidden": -1}, "hidden"), ({"means": "other"}, "means")],
)  # fmt: skip
def test_head_config_refuses(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(HeadConfig(components=4), **change)


def test_half_precision_heads_work_as_well(generator):
    model = randomize(make_model(), generator)
    pixels = torch.randn(4, 3, 8, 8, generator=generator)
    expected = model.encode_image(pixels)
    half = model.to(torch.bfloat16)
    actual = half.encode_image(pixels.bfloat16())
    assert torch.nn.functional.cosine_similarity(actual.mean.float(), expected.mean).min() > 0.98


def test_frozen_tower_is_a_tower_of_its_config():
    model = make_model()
    assert isinstance(model.image, FrozenTower)
    assert model.image.config.uncertainty == "head"
    assert "python:x" not in repr(model.state_dict().keys())


def test_a_mean_has_unit_length_even_if_dropout_drops_everything():
    model = make_model(HeadConfig(components=COMPONENTS, dropout=0.9)).train()
    z = model.encode_components(torch.ones(200, COMPONENTS), "image")
    torch.testing.assert_close(z.mean.norm(dim=-1), torch.ones(200))
