"""Variants of the large recipes: what each changes of the paper's run, and that its start is a sensible one."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.losses.objective import MaskedPairs
from prolip.losses.vmf_likelihood import LikelihoodTemperature
from prolip.measures.match import LogitParameters
from prolip.model.config import INITIAL_TRACE
from prolip.model.sizes import SIZES, get_config
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.training import recipes
from prolip.training.config import ModelSpec, TrainConfig
from prolip.training.model_setup import _make_model_config
from prolip.training.run_folder import compare_configs
from prolip.training.variants import Variant, apply_variant

NEW = ["b16_1_28b", "b16_12_8b", "ablation_96m", "nano"]
"""Recipes that train new weights."""
RECIPES = [*NEW, "finetune", "long"]
SOFTMAX = ("clip",)
TERMS = {
    "likelihood": ("likelihood", "inclusion", "masked"),
    "ppcl-matched": ("ppcl", "inclusion", "masked", "vib"),
    "nll": ("ppcl", "nll", "inclusion", "masked", "vib"),
}
MULTIPLIERS = {"likelihood": (10.0, 0.03), "ppcl-matched": (0.03, None), "nll": (1.0, 10.0)}
TOKENS = TokenizerConfig(vocab_size=100, context_length=16, pad_id=0)


def config(name, **values):
    return recipes.load_recipe(name).build_config(values)


def changed_keys(a, b):
    return {key for key, *_ in compare_configs(a.to_dict(), b.to_dict())}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_the_same_choice_and_the_papers_is_the_default(name):
    recipe = recipes.load_recipe(name)
    assert recipe.parameters["variant"] == (Variant, "paper")
    assert config(name) == config(name, variant="paper")
    assert set(get_args(Variant)) == {"paper", *TERMS}
    assert "ours" in recipe.doc


@pytest.mark.parametrize("variant", TERMS)
@pytest.mark.parametrize("name", RECIPES)
def test_variants_change_what_they_say_and_nothing_else(name, variant):
    paper, run = config(name), config(name, variant=variant)
    assert run.objective.active == TERMS[variant]
    assert run.out == f"{paper.out}-{variant}"
    for weight in ("inclusion", "masked"):
        assert getattr(run.objective, weight) == getattr(paper.objective, weight)
    assert run.objective.vib in (0.0, paper.objective.vib)
    optimizer = run.optimizer
    assert (optimizer.temperature_lr_multiplier, optimizer.auxiliary_lr_multiplier) == MULTIPLIERS[variant]
    assert (run.masking.text_fraction, run.masking.image_fraction) == (0.0, paper.masking.image_fraction)
    sections = {key.split(".")[0] for key in changed_keys(paper, run)}
    assert sections <= {"model", "objective", "initial_stages", "masking", "optimizer"}
    assert run.steps == paper.steps


@pytest.mark.parametrize("name", [*NEW, "finetune"])
def test_a_softmax_comes_first_and_lasts_as_long_as_the_warm_up(name):
    for variant in ("likelihood", "ppcl-matched"):
        run = config(name, variant=variant)
        (stage,) = run.initial_stages
        assert stage.objective.active == SOFTMAX
        assert run.stage_steps[0] == run.optimizer.warmup_steps < run.steps / 2
    assert config(name, variant="nll").initial_stages == ()


def test_control_differs_from_the_likelihood_in_loss_and_temperature_alone():
    run, control = (config("b16_1_28b", variant=variant) for variant in ("likelihood", "ppcl-matched"))
    assert changed_keys(run, control) == {
        "model.contrastive_loss", "model.init_scale", "objective.likelihood", "objective.ppcl", "objective.vib",
        "optimizer.temperature_lr_multiplier", "optimizer.auxiliary_lr_multiplier",
    }  # fmt: skip


def test_long_texts_start_from_the_variants_own_model():
    for variant in TERMS:
        run = config("long", variant=variant)
        assert run.model == ModelSpec(pretrained=config("b16_12_8b", variant=variant).out, context_length=256)
        assert run.initial_stages == ()


def test_variants_change_the_rows_of_the_ablation_that_have_ppcl():
    run = config("ablation_96m", row="ppcl", variant="likelihood")
    assert run.objective.active == ("likelihood",)
    assert config("ablation_96m", row="ppcl-masked", variant="nll").objective.active == (
        "ppcl", "nll", "masked", "vib"
    )  # fmt: skip
    for row in ("clip", "pml", "pml-clip", "pml-clip-multihead"):
        with pytest.raises(ValueError, match=r"variant likelihood replaces or accompanies PPCL.*has "):
            config("ablation_96m", row=row, variant="likelihood")


def test_a_run_without_warm_up_has_no_softmax():
    paper = TrainConfig()
    paper = replace(paper, optimizer=replace(paper.optimizer, warmup_steps=0))
    assert apply_variant(paper, "likelihood", "runs/x").initial_stages == ()


# -- the start ---------------------------------------------------------------------------------------------------------


def initial_logits(spec, cosines):
    """Logits of pairs with these cosines in a new model; all traces have their initial value."""
    model = _make_model_config(spec, TOKENS)
    gamma = model.gamma if model.contrastive_loss == "likelihood" else None
    logits = LogitParameters(
        math.exp(model.compute_logit_scale(model.init.scale)), model.init.logit_bias, gamma
    )
    trace = torch.tensor(model.embed_dim * math.exp(model.init.log_var), dtype=torch.float64)
    return logits.combine(torch.tensor(cosines, dtype=torch.float64), trace, trace, model.embed_dim).tolist()


@pytest.mark.parametrize("size", SIZES)
def test_logits_of_a_likelihood_start_with_the_spread_of_ppcl(size):
    """A perfect match has the logit 0; unrelated means, whose cosine is 0, have b and a term of order 1/D."""
    spec = ModelSpec(size=size, tokenizer="scenes", isotropic=True, contrastive_loss="likelihood")
    opposite, unrelated, match = initial_logits(spec, [-1.0, 0.0, 1.0])
    assert match == pytest.approx(0.0, abs=1e-6)
    assert unrelated == pytest.approx(-10.0, abs=100 / SIZES[size].embed_dim)
    assert opposite < unrelated
    fixed = initial_logits(replace(spec, init_scale=10.0), [0.0, 1.0])
    assert SIZES[size].embed_dim < 64 or fixed[1] - fixed[0] < 2, "PPCL's 10 is no concentration"


@pytest.mark.parametrize("name", NEW)
def test_recipes_start_at_the_log_of_their_batch_size(name):
    run = config(name, variant="likelihood")
    unrelated, match = initial_logits(run.model, [0.0, 1.0])
    assert match == pytest.approx(0.0, abs=1e-6)
    assert unrelated == pytest.approx(-math.log(run.batch_size), rel=0.1)


def test_the_miniatures_start_is_the_one_that_the_rule_gives():
    """Chosen by trial: kappa 20 and a log-variance of -5.5 in 64 dimensions, for batches of 128."""
    run = config("miniature", variant="likelihood")
    by_rule = _make_model_config(replace(run.model, init_scale=None, init_log_var=None), TOKENS).init
    assert run.model.init_scale == pytest.approx(by_rule.scale, rel=0.01)
    assert run.model.init_log_var == pytest.approx(by_rule.log_var, abs=0.01)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("variant", TERMS)
def test_traces_start_equal_in_any_dimension(size, variant):
    spec = replace(config("nano", variant=variant).model, size=size)
    model = _make_model_config(spec, TOKENS)
    assert model.image.isotropic
    assert model.text.isotropic
    assert model.embed_dim * math.exp(model.init.log_var) == pytest.approx(INITIAL_TRACE)
    assert get_config(size, TOKENS).init.log_var <= -7.5, "the paper's starts are not changed"


def test_level_of_traces_is_free_in_the_likelihood_and_vib_moves_it(draw):
    """All log-variances rise by d and tau by gamma d: the likelihood's terms stay, only VIB changes."""
    shift, gamma = 0.7, 4.0

    def draw_isotropic():
        z = draw(6, 16, low=-6.0, high=-4.0)
        return Gaussian(z.mean, z.log_var[:, :1].expand_as(z.mean))

    def compute_terms(d):
        temperature = LikelihoodTemperature(scale=math.exp(-3.0 + gamma * d), bias=-2.0, gamma=gamma).double()
        images, texts, masked = (Gaussian(z.mean, z.log_var + d) for z in gaussians)
        objective = replace(config("b16_1_28b", variant="likelihood").objective, vib=1e-4)
        pairs = MaskedPairs(images, masked)
        return objective(images, texts, temperature, masked_images=pairs, masked_texts=pairs).values

    gaussians = [draw_isotropic() for _ in range(3)]
    before, after = compute_terms(0.0), compute_terms(shift)
    assert set(before) == {
        "likelihood", "inclusion", "masked_images", "masked_texts", "vib_images", "vib_texts"
    }  # fmt: skip
    for name, value in before.items():
        if name.startswith("vib"):
            assert after[name] < value - 0.1, "VIB wants larger variances"
        else:
            torch.testing.assert_close(after[name], value, rtol=1e-6, atol=1e-9)
