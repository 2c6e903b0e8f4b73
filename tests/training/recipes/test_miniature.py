"""The miniature and its variants: each differs from the headline in what the recipe says of it, and in nothing else."""

import math
import re
from dataclasses import replace
from typing import get_args

import pytest

from prolip.choices import SceneWorld
from prolip.data.open import open_data
from prolip.scenes.captions import make_complete_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.world import get_unseen_pairs, get_world
from prolip.training import recipes
from prolip.training.model_setup import make_model
from prolip.training.recipes import miniature
from prolip.training.run_folder import compare_configs

LEVELS = get_args(SceneWorld)
SOFTMAX, INCLUDING = ("clip",), ("ppcl", "inclusion", "masked", "vib")
WHOLE = (SOFTMAX, SOFTMAX, ("clip", "inclusion", "masked"), INCLUDING)
LEXICON_FREE = {
    "model.isotropic",
    "model.init_log_var",
    "masking.method",
    "masking.text_fraction",
    "data.source",
}
POINTS = {"model.uncertainty", "optimizer.temperature_lr_multiplier"}
VARIANTS = {
    "prolip": (WHOLE, set()),
    "mask": (WHOLE, {"masking.method"}),
    "drop": (WHOLE, {"masking.method", "data.token_dropout"}),
    "clip": ((SOFTMAX,) * 3, POINTS | {"model.contrastive_loss", "model.init_logit_bias"}),
    "siglip": ((*(SOFTMAX,) * 3, ("siglip",)), POINTS),
    "no-inclusion": ((*(SOFTMAX,) * 3, ("ppcl", "vib")), set()),
    "image-in-text": ((SOFTMAX, SOFTMAX, ("clip", "inclusion"), ("ppcl", "inclusion", "vib")), set()),
    "whole-in-masked": ((SOFTMAX, SOFTMAX, ("clip", "masked"), ("ppcl", "masked", "vib")), set()),
    "ppcl-alone": ((("ppcl", "vib"),) * 3, {"optimizer.temperature_lr_multiplier"}),
    "pml-alone": ((("pml", "vib"),) * 3, {"optimizer.temperature_lr_multiplier"}),
    "likelihood": (
        (*(SOFTMAX,) * 3, ("likelihood", "inclusion", "masked", "vib")),
        LEXICON_FREE
        | {"model.contrastive_loss", "model.init_scale", "optimizer.temperature_lr_multiplier"}
        | {"optimizer.auxiliary_lr_multiplier"},
    ),
    "ppcl-matched": ((*(SOFTMAX,) * 3, INCLUDING), LEXICON_FREE),
    "nll": (
        (*(SOFTMAX,) * 3, ("ppcl", "nll", "inclusion", "masked", "vib")),
        LEXICON_FREE | {"optimizer.auxiliary_lr_multiplier"},
    ),
}
"""Of each variant the terms of every stage, and the keys beside objective and stages that differ from the headline."""
FRACTIONS = (0.12, 0.18, 0.15)


def config(**values):
    return recipes.load_recipe("miniature").build_config(values)


def sources(run):
    """What each stage reads, the last one's too."""
    return [open_data((stage.source or run.data.source)[0]) for stage in run.stages]


def test_variants():
    assert set(get_args(miniature.Variant)) == set(VARIANTS)
    doc = recipes.load_recipe("miniature").doc
    assert all(re.search(rf"(^    |, ){name}\b", doc, re.MULTILINE) for name in set(VARIANTS) - {"prolip"})


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_differs_from_the_headline_in_what_it_says(variant):
    whole, run = config(), config(variant=variant)
    terms, keys = VARIANTS[variant]
    assert tuple(stage.objective.active for stage in run.stages) == terms
    changed = {key for key, *_ in compare_configs(whole.to_dict(), run.to_dict())}
    assert {key for key in changed if key != "initial_stages" and not key.startswith("objective.")} == keys
    for objective in (stage.objective for stage in run.stages):
        assert (objective.c, objective.eps) == (whole.objective.c, whole.objective.eps)
        for name in objective.active:
            assert getattr(objective, name) == (getattr(whole.objective, name) or 1.0), name
    if "data.source" in keys:
        return
    same = min(len(whole.initial_stages), len(run.initial_stages))
    for stage, other in zip(whole.initial_stages[:same], run.initial_stages[:same], strict=True):
        assert replace(other, objective=stage.objective) == stage, "of the stages only the objective"


@pytest.mark.parametrize("variant", VARIANTS)
def test_stages_have_fractions_of_the_samples(variant):
    run = config(variant=variant, samples=128000)
    fractions = FRACTIONS[: len(VARIANTS[variant][0]) - 1]
    assert run.stage_steps == (
        *(round(1000 * fraction) for fraction in fractions),
        round(1000 * (1 - sum(fractions))),
    )


def test_variants_that_are_meant_to_be_points_are():
    for variant in VARIANTS:
        model = make_model(config(variant=variant).model, seed=0)
        kinds = {model.config.image.uncertainty, model.config.text.uncertainty}
        assert kinds == ({"none"} if variant in ("clip", "siglip") else {"token"}), variant
        assert model.config.image.preprocessing.size == sources(config())[0].size


def test_veils_come_in_a_last_stage_of_their_own():
    run = config(variant="likelihood", veiled=0.3)
    assert [source.config.veiled for source in sources(run)] == [0.0, 0.0, 0.0, 0.0, 0.3]
    assert run.stage_steps[-1] == pytest.approx(0.4 * sum(run.stage_steps), abs=2)
    assert run.initial_stages[-1].objective == run.objective


def test_masked_texts():
    how = {variant: config(variant=variant).masking.method for variant in VARIANTS}
    assert {variant: word for variant, word in how.items() if word != "general"} == {
        "mask": "mask", "drop": "drop", "likelihood": "mask", "ppcl-matched": "mask", "nll": "mask"
    }  # fmt: skip
    dropped = {variant: config(variant=variant).data.token_dropout for variant in VARIANTS}
    assert {variant: fraction for variant, fraction in dropped.items() if fraction} == {"drop": 0.5}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_stage_shows_an_unseen_pair(variant, level):
    worlds = [source.world for source in sources(config(variant=variant, level=level))]
    assert worlds[:2] == [get_world("single", miniature.NUM_UNSEEN)] * 2
    assert set(worlds[2:]) == {get_world(level, miniature.NUM_UNSEEN)}
    unseen = get_unseen_pairs(miniature.NUM_UNSEEN)
    assert len(unseen) == 8
    for world in set(worlds):
        drawn = [world.draw_scene(0, index) for index in range(300)]
        assert not unseen & {(item.color, item.shape) for scene in drawn for item in scene.objects}


def states_only_a_position(meaning):
    (thing, *others) = meaning.objects or (None,)
    silent = not others and (meaning.background, meaning.style, meaning.count) == (None, None, None)
    return silent and thing is not None and thing.position is not None and thing.shape is thing.color is None


def test_first_stage_has_captions_that_state_only_a_position():
    """Half of its captions tell nothing else; of the other half as many as of the next stage's."""
    found = [
        [states_only_a_position(source.captions(index)[0].meaning) for index in range(600)]
        for source in sources(config())[:2]
    ]
    first, plain = (sum(one) / len(one) for one in found)
    assert plain < 0.15
    assert first == pytest.approx(0.5 + plain / 2, abs=0.08)


@pytest.mark.slow
def test_every_caption_fits_its_context():
    run = config()
    words = make_model(run.model, seed=0).tokenizer
    for source in (*sources(run), open_data(run.held_out.source)):
        texts = [caption.text for index in range(300) for caption in source.captions(index)]
        lengths = [len(words.copy_backend().encode(text).ids) for text in texts]
        assert max(lengths) <= words.config.context_length, source.name


def test_held_out_captions_are_complete():
    for level in LEVELS:
        run = config(level=level)
        source = open_data(run.held_out.source)
        assert source.world == get_world(level, miniature.NUM_UNSEEN)
        assert source.seed != sources(run)[-1].seed
        for index in range(50):
            scene = source.world.draw_scene(source.seed, index)
            complete = make_complete_caption(scene, RandomDraws(0), source.world).meaning
            assert all(caption.meaning == complete for caption in source.captions(index))


@pytest.mark.parametrize(
    ("scale", "samples"), [("minutes", 250_000), ("hour", 1_200_000), ("night", 12_000_000)]
)
def test_scales(scale, samples):
    run = config(scale=scale)
    assert run.samples == samples
    for stage, fraction in zip(run.initial_stages, FRACTIONS, strict=True):
        assert stage.samples == pytest.approx(fraction * samples, abs=1)
    assert compare_configs(run.to_dict(), config(samples=samples).to_dict()) == []
    assert len(sources(run)[-1]) > samples, "no scene comes twice"


def test_samples_and_batch():
    run = config(scale="night", samples=12800, batch_size=64)
    assert (run.samples, run.batch_size, run.steps) == (12800, 64, 200), "samples wins over scale"
    assert run.stage_steps == (24, 36, 30, 110)
    assert math.isclose(run.model.init_logit_bias, -math.log(64))
    assert math.isclose(config().model.init_logit_bias, -math.log(128))
    outs = {config(variant=v, level=w).out for v in VARIANTS for w in LEVELS}
    assert len(outs) == len(LEVELS) * len(VARIANTS)
