"""Widths from a pool: they learn what they are told, means and matches stay, and a stopped run goes on."""

import json
import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import prolip
from prolip.adaptation import AdaptConfig, adapt_encoders, adapt_model, distillation
from prolip.adaptation.adapt import adapt, open_encoders
from prolip.adaptation.distillation import Pairs, distill_widths, make_width_model, rescale_widths
from prolip.adaptation.pool_teacher import Blend, embed_rows
from prolip.adaptation.sizes import TrainingSizes
from prolip.data.feature_pairs import IMAGE_TARGETS, TEXT_TARGETS, FeaturePairs
from prolip.measures.nearest import similarity
from prolip.model.config import ModelConfig
from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.retrieval import SearchConfig, search_gaussians
from prolip.scenes import make_tokenizer
from prolip.training.trainer import Trainer, train
from tests.adaptation.small import make_model, write_pairs

SIZES = TrainingSizes(batch_size=32, epochs=40, hidden=0, components=8, image_dropout=0.0, text_dropout=0.0)
CONFIG = AdaptConfig(means="frozen", lr=3e-3, width_patience=20)
SCENES = "scenes:simple,size=48,length=60,seed=3"
TEXTS = ["a red circle", "a thing", "a small blue star at the top left"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Runs that print nothing."""
    make = distillation.make_distillation_config

    def make_quiet(*args):
        config = make(*args)
        return replace(config, log=replace(config.log, display="none", tensorboard=False))

    monkeypatch.setattr(distillation, "make_distillation_config", make_quiet)


@pytest.fixture
def pairs(tmp_path):
    return Pairs(write_pairs(tmp_path / "train", 200, 1), write_pairs(tmp_path / "held_out", 60, 2))


def put_targets(pairs, function):
    """Write targets that are a function of the features."""
    for name, array in ((IMAGE_TARGETS, pairs.images), (TEXT_TARGETS, pairs.texts)):
        np.save(pairs.folder / name, function(array.astype(np.float32)).astype(np.float32))
    return FeaturePairs(pairs.folder)


@pytest.mark.slow
def test_widths_recover_a_known_function(pairs, tmp_path, monkeypatch):
    """ln of the uncertainty becomes -1 + x_0 - 0.5 |x_1| on features that were not trained on."""

    def function(x):
        return -1 + x[..., 0] - 0.5 * np.abs(x[..., 1])

    monkeypatch.setattr(distillation, "WIDTH_DROPOUT", 0.0)
    known = Pairs(put_targets(pairs.train, function), put_targets(pairs.held_out, function))
    initial = make_width_model(make_model("encoder"), CONFIG)
    initial.save_pretrained(tmp_path / "initial")
    (tmp_path / "pairs").mkdir()
    for name in ("train", "held_out"):
        (tmp_path / name).rename(tmp_path / "pairs" / name)
    sizes = replace(SIZES, epochs=150)
    config = distillation.make_distillation_config(tmp_path, sizes, known, make_model("encoder"), CONFIG)
    model = ProLIP.from_folder(train(config) / "model")
    features = FeaturePairs(tmp_path / "pairs" / "held_out").images[:, 0]
    error = embed_rows(model, features, "image").uncertainty.log().numpy() - function(
        features.astype(np.float32)
    )
    assert error.std() < 0.25 * function(features.astype(np.float32)).std()


@pytest.mark.parametrize("means", ["encoder", "learned"])
def test_distillation_keeps_means_and_changes_widths(pairs, tmp_path, means):
    base = make_model(means)
    model = distill_widths(base, pairs, tmp_path / "out", SIZES, CONFIG)
    for modality, array in (("image", pairs.held_out.images), ("text", pairs.held_out.texts)):
        old, new = (embed_rows(z, array[:, 0], modality) for z in (base, model))
        assert torch.equal(old.mean, new.mean)
        assert new.uncertainty.std() > 0
        assert bool((new.uncertainty > 0).all())
    teacher = json.loads((tmp_path / "out" / "teacher.json").read_text())
    assert teacher["size"] == 160
    assert not model.logit_parameters.reads_variances


def test_distilled_uncertainty_follows_the_pool(pairs, tmp_path):
    """Held-out widths have a positive correlation with the perplexities over the pool that they never saw."""
    model = distill_widths(make_model("encoder"), pairs, tmp_path / "out", SIZES, CONFIG)
    held_out = FeaturePairs(tmp_path / "out" / "pairs" / "held_out")
    got = embed_rows(model, held_out.texts[:, 0], "text").uncertainty.log()
    assert np.corrcoef(got, held_out.text_targets[:, 0])[0, 1] > 0.5


def test_scale_and_bias_are_fitted_where_matches_read_variances(pairs, tmp_path):
    """A likelihood model gets a cosine logit; its loss on training pairs is below that of the initial one."""
    model = distill_widths(make_model("learned"), pairs, tmp_path / "out", SIZES, CONFIG)
    parameters = model.logit_parameters
    assert parameters.gamma is None
    assert (parameters.scale, parameters.bias) != pytest.approx((10.0, -10.0))
    kept = make_model("encoder", "softmax")
    model = distill_widths(kept, pairs, tmp_path / "softmax", SIZES, CONFIG)
    assert torch.equal(model.logit_scale, kept.logit_scale)
    assert model.logit_bias is None


def make_likelihood_model():
    """A likelihood model whose untrained widths vary a little, as trained ones do."""
    model = make_model("learned")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tower in (model.image, model.text):
            tower.log_var.output.weight.normal_(0.0, 0.02, generator=generator)
    return model


def test_both_teachers_keep_means_and_matches_and_move_widths_towards_the_pool(pairs, tmp_path):
    """Widths that learn from both go with the targets on held-out features, in the units of the likelihood."""
    base = make_likelihood_model()
    config = AdaptConfig(teacher="both", pool_weight=1.0, lr=3e-3, width_patience=20)
    model = distill_widths(base, pairs, tmp_path / "out", SIZES, config)
    assert model.config.image.head.teacher == model.config.text.head.teacher == "both"
    assert model.logit_parameters == base.logit_parameters
    assert model.logit_parameters.reads_variances
    held_out = FeaturePairs(tmp_path / "out" / "pairs" / "held_out")
    for modality, array, targets in (
        ("image", held_out.images, held_out.image_targets), ("text", held_out.texts, held_out.text_targets),
    ):  # fmt: skip
        old, new = (embed_rows(z, array[:, 0], modality) for z in (base, model))
        assert torch.equal(old.mean, new.mean)
        before, after = old.uncertainty.log(), new.uncertainty.log()
        assert np.corrcoef(after, targets[:, 0])[0, 1] > 0.5
        assert abs(float(after.mean() - before.mean())) < 2 * before.std()
        assert before.std() / 4 < after.std() < 4 * before.std()


def test_rescaled_widths_are_what_the_blend_restores(generator):
    """ln uncertainty becomes mean + std x what it was, for every input."""
    model = make_likelihood_model()
    blend = Blend(width_mean=-1.3, width_std=0.01, fraction_mean=-4.0, fraction_std=0.9, weight=0.5)
    features = torch.randn(6, 8, generator=generator).numpy()
    before = embed_rows(model, features, "text").uncertainty.log()
    rescale_widths(model.text, blend)
    after = embed_rows(model, features, "text").uncertainty.log()
    assert after.tolist() == pytest.approx((-1.3 + 0.01 * before.double()).tolist(), abs=1e-5)


def test_distillation_resumes_where_it_stopped(pairs, tmp_path, monkeypatch):
    """A run that fails at step 30 and goes on has the weights, to the bit, of one that never failed."""
    make = distillation.make_distillation_config

    def make_with_checkpoints(*args):
        config = make(*args)
        return replace(config, checkpoint=replace(config.checkpoint, every_steps=10, async_save=False))

    monkeypatch.setattr(distillation, "make_distillation_config", make_with_checkpoints)
    base, step = make_model("encoder"), Trainer._step
    whole = distill_widths(base, pairs, tmp_path / "whole", SIZES, CONFIG)

    def fail(trainer, batch):
        if trainer.state.step == 30:
            raise RuntimeError("stopped")
        return step(trainer, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", fail)
        with pytest.raises(RuntimeError, match="stopped"):
            distill_widths(base, pairs, tmp_path / "parts", SIZES, CONFIG)
    resumed = distill_widths(base, pairs, tmp_path / "parts", SIZES, CONFIG)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_signal_in_distillation_stops_and_the_next_call_continues(pairs, tmp_path, monkeypatch):
    base, step = make_model("encoder"), Trainer._step

    def interrupt(trainer, batch):
        if trainer.state.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step(trainer, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupt)
        with pytest.raises(KeyboardInterrupt, match="the same `prolip adapt` command continues it"):
            distill_widths(base, pairs, tmp_path, SIZES, CONFIG)
    assert distill_widths(base, pairs, tmp_path, SIZES, CONFIG).config.embed_dim == 8


def make_clip():
    """An untrained CLIP: no variances, softmax."""
    tokenizer = make_tokenizer(32)
    config = get_config("miniature", tokenizer.config)
    config = replace(config.with_uncertainty("none"), contrastive_loss="softmax")
    model = ProLIP(config, tokenizer).init_weights(torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.logit_scale.fill_(math.log(117.0))  # above the range that training clamps to
    return model


@pytest.fixture(params=["scenes-tiny", "clip"])
def finished(request, tmp_path):
    """Name of a finished model."""
    if request.param == "scenes-tiny":
        return request.param
    return str(make_clip().save_pretrained(tmp_path / "clip"))


def test_adapt_frozen_keeps_means_order_and_scale(finished, tmp_path):
    base = prolip.load(finished)
    config = AdaptConfig(image_encoder=finished, means="frozen", epochs=3, progress=False)
    made = adapt(SCENES, tmp_path / "out", config)
    images = [np.random.RandomState(i).randint(0, 255, (50, 60, 3), np.uint8) for i in range(5)]
    for model in (made, prolip.load(tmp_path / "out")):
        old = base.embed_images(images), base.embed_texts(TEXTS)
        new = model.embed_images(images), model.embed_texts(TEXTS)
        for before, after in zip(old, new, strict=True):
            assert torch.equal(before.mean, after.mean)
            assert after.uncertainty.std() > 0
        parameters = model.logit_parameters
        assert parameters.default_rank_by == "cosine"
        assert torch.equal(similarity(*new, parameters).argsort(1), (old[0].mean @ old[1].mean.T).argsort(1))
        if finished != "scenes-tiny":
            assert parameters.scale == base.logit_parameters.scale
            with pytest.raises(ValueError, match="softmax"):
                model.match_probability(new[0][:3], new[1])
        else:
            expected = torch.sigmoid(
                parameters.scale * (new[0].mean[:3] * new[1].mean).sum(-1) + parameters.bias
            )
            assert torch.allclose(model.match_probability(new[0][:3], new[1]), expected)


def test_adapt_frozen_of_an_adapted_model_keeps_its_heads(tmp_path):
    """A model with learned heads is a finished model, too."""
    config = AdaptConfig(image_encoder="scenes-tiny", epochs=2, dim=16, dropout=0.1, progress=False)
    first = adapt(SCENES, tmp_path / "first", config)
    config = AdaptConfig(image_encoder=str(tmp_path / "first"), means="frozen", epochs=2, progress=False)
    second = adapt(SCENES, tmp_path / "second", config)
    assert torch.equal(first.embed_texts(TEXTS).mean, second.embed_texts(TEXTS).mean)
    assert not torch.equal(first.embed_texts(TEXTS).uncertainty, second.embed_texts(TEXTS).uncertainty)


def test_learned_means_can_be_taught_by_a_pool(tmp_path):
    config = AdaptConfig(
        image_encoder="scenes-tiny", teacher="pool", epochs=2, dim=16, dropout=0.1, progress=False
    )
    model = adapt(SCENES, tmp_path / "out", config)
    before = ProLIP.from_folder(tmp_path / "out" / "training" / "model")
    assert torch.equal(model.image.mean.linear.weight, before.image.mean.linear.weight)
    assert not model.logit_parameters.reads_variances
    assert prolip.load(tmp_path / "out").embed_texts(TEXTS).uncertainty.max() <= 2


def test_learned_means_can_be_taught_by_likelihood_and_pool(tmp_path):
    config = AdaptConfig(
        image_encoder="scenes-tiny", teacher="both", epochs=2, dim=16, dropout=0.1, progress=False
    )
    model = adapt(SCENES, tmp_path / "out", config)
    before = ProLIP.from_folder(tmp_path / "out" / "training" / "model")
    assert torch.equal(model.image.mean.linear.weight, before.image.mean.linear.weight)
    assert model.logit_parameters == before.logit_parameters
    again = prolip.load(tmp_path / "out")
    assert again.config.image.head.teacher == "both"
    assert torch.equal(again.embed_texts(TEXTS).uncertainty, model.embed_texts(TEXTS).uncertainty)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"means": "frozen", "teacher": "likelihood"}, "teacher pool"),
        ({"means": "frozen", "text_encoder": "all-minilm-l6-v2"}, "text_encoder"),
        ({"means": "frozen", "teacher": "both"}, "teacher pool"),
        ({"teacher": "likelihood", "pool_factor": 2.0}, "pool_factor has no effect"),
        ({"teacher": "pool", "pool_weight": 1.0}, "pool_weight has no effect"),
        ({"teacher": "both", "pool_weight": 0.0}, "pool_weight"),
        ({"means": "frozen", "pool_factor": -1.0}, "pool_factor"),
    ],
)
def test_config_refuses(values, message):
    with pytest.raises(ValueError, match=message):
        AdaptConfig(**values)


def test_adapt_frozen_refuses_encoders_without_a_model(tmp_path):
    with pytest.raises(ValueError, match="finished model"):
        adapt(SCENES, tmp_path, means="frozen")
    encoders = open_encoders(AdaptConfig(image_encoder="scenes-tiny"))
    with pytest.raises(ValueError, match="adapt_model"):
        adapt_encoders(encoders, SCENES, tmp_path, means="frozen")
    with pytest.raises(ValueError, match="set means frozen"):
        adapt_model(prolip.load("scenes-tiny"), SCENES, tmp_path)


def test_model_config_refuses_a_likelihood_whose_widths_learned_from_a_pool():
    config = make_model("learned").config
    head = replace(config.image.head, teacher="pool")
    with pytest.raises(ValueError, match="pool"):
        replace(config, image=replace(config.image, head=head))
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_commands_rank_by_cosine_where_widths_were_added(tmp_path):
    """Search and filter order by the cosines of the means by default, though the new widths differ."""
    config = AdaptConfig(image_encoder="scenes-tiny", means="frozen", epochs=3, progress=False)
    model = adapt(SCENES, tmp_path / "model", config)
    embeddings = prolip.embed(tmp_path / "model" / "model", SCENES, tmp_path / "embeddings", progress=False)
    assert embeddings.header.logit_parameters == model.logit_parameters
    prolip.index(embeddings, tmp_path / "database", progress=False)
    query = model.embed_texts(TEXTS[0])
    (hits,) = search_gaussians(tmp_path / "database", query, SearchConfig(modality="image", k=20))
    assert (np.diff(hits.cosine) <= 1e-6).all()
    assert not (np.diff(hits.csd) >= 0).all()
    result = prolip.filter_pairs(embeddings, tmp_path / "kept", keep_fraction=0.5, progress=False)
    assert result.summary.rank_by == "cosine"
