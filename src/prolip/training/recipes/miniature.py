"""The paper in miniature: a model of 0.28M parameters learns procedural scenes in minutes on two cores.

    prolip train miniature
    prolip train miniature --scale hour --seed 1
    prolip train miniature --variant mask
    torchrun --nproc-per-node 2 -m prolip train miniature

Not a recipe of the paper. docs/miniature.md reports what was tried and what came out.

It has four stages:

1. CLIP's softmax on the means, on scenes of one object; half of the captions describe only a position. Later, when
   color and shape distinguish the images of a batch, positions are no longer learned.
2. The same with all captions. A softmax learns shapes several times faster than the sigmoid losses do.
3. All scenes, the softmax with the inclusion terms.
4. PPCL instead of the softmax.

The scale stays near 10: with a larger one cosines may be small, and then variances, not distances, decide what includes
what. The inclusion terms have larger weights than the paper's, which need a longer run.

A masked text is a true, more general caption (variant prolip). Each other variant changes one thing:

    mask             the paper's masking: three of four tokens become [MASK]
    drop             three of four tokens are dropped, and some tokens of half of all captions: no lexicon
    clip, siglip     the same towers without variances; siglip after the same first stages
    no-inclusion, image-in-text, whole-in-masked      only the named terms of the inclusion loss
    ppcl-alone, pml-alone      no softmax before, no inclusion terms: each loss by itself
    likelihood       ours: the likelihood of von Mises-Fisher posteriors (docs/likelihood.md) instead of PPCL, one
                     log-variance per sample, no masked texts, no lexicon
    ppcl-matched     PPCL with all else as in likelihood: its control
    nll              PPCL with the isotropic NLL of own pairs, no masked texts

samples and batch_size are parameters of this recipe, because the stages and the initial logit bias, -ln(batch size),
depend on them.
"""

import math
from dataclasses import replace
from typing import Literal

from prolip.choices import SceneWorld
from prolip.losses.objective import Objective
from prolip.training.config import (
    DataConfig,
    HeldOutConfig,
    LogConfig,
    MaskingConfig,
    ModelSpec,
    OptimizerConfig,
    Stage,
    TrainConfig,
)

Variant = Literal[
    "prolip", "mask", "drop", "clip", "siglip", "no-inclusion", "image-in-text", "whole-in-masked", "ppcl-alone",
    "pml-alone", "likelihood", "ppcl-matched", "nll",
]  # fmt: skip
SAMPLES = {"minutes": 250_000, "hour": 1_200_000, "night": 12_000_000}
"""Number of samples, by scale. One core processes 500 to 700 per second."""
POSITION_STAGE, SOFTMAX_STAGE, INCLUSION_STAGE = 0.12, 0.18, 0.15
"""Fractions of the samples: the first stage (positions), the softmax alone, the softmax with inclusion terms."""
LEARNED_SCALE = ("clip", "siglip", "ppcl-alone", "pml-alone", "likelihood")
"""Variants that learn their scale. In the others it stays near its initial value, as in the variant prolip."""
LEXICON_FREE = ("likelihood", "ppcl-matched", "nll")
"""Variants without masked texts, and without inclusion terms before their last stage."""
KAPPA = 20.0
"""Initial concentration of the likelihood."""
LOG_VAR = -5.5
"""Initial log-variance of the LEXICON_FREE variants."""
VEILED_STAGE = 0.4
"""Fraction of the samples in the stage with veils, if there are any: the last one."""
NUM_UNSEEN = 8
"""Number of pairs of a color and a shape that no training scene shows."""


def recipe(
    variant: Variant = "prolip",
    scale: Literal["minutes", "hour", "night"] = "minutes",
    level: SceneWorld = "simple",
    samples: int | None = None,
    batch_size: int = 128,
    veiled: float = 0.0,
) -> TrainConfig:
    """The run of a variant. Its folder is runs/miniature, followed by -VARIANT and -LEVEL where these are no defaults.

    Args:
        variant: What is changed, as described above.
        scale: Length of the run: 250,000, 1,200,000 or 12,000,000 samples.
        level: World of the scenes; the first two stages show single objects of equal frequency.
        samples: Samples seen in total; None: those of `scale`.
        batch_size: Samples per step.
        veiled: Fraction of images behind veils, in a last stage of its own. Earlier, veils keep a model from learning
            shapes (docs/likelihood.md).
    """
    samples = SAMPLES[scale] if samples is None else samples
    extra = (*_list_scene_settings(variant), *((f"veiled={veiled}",) if veiled else ()))
    name_parts = ("miniature", variant if variant != "prolip" else "", level if level != "simple" else "")
    held_out = f"scenes:{level},size=48,unseen={NUM_UNSEEN},length=1000,seed=1,complete=1,levels=0/0/0/1"
    return TrainConfig(
        out=f"runs/{'-'.join(filter(None, name_parts))}",
        samples=samples,
        batch_size=batch_size,
        model=_make_model_spec(variant, batch_size),
        data=DataConfig(
            source=_make_scene_source(level, *extra), augment=False, workers=1,
            token_dropout=0.5 if variant == "drop" else 0.0,
        ),
        objective=_make_objective(variant),
        initial_stages=_make_initial_stages(variant, level, samples, bool(veiled)),
        masking=MaskingConfig(
            image_fraction=1 / 8, text_fraction=0 if variant in LEXICON_FREE else 1 / 2,
            method=_choose_masking_method(variant),
        ),
        optimizer=OptimizerConfig(
            lr=2e-3, betas=(0.9, 0.98), weight_decay=0.05, warmup_steps=50, final_lr_fraction=0.02, grad_clip_norm=1.0,
            # 10: scale and bias are learned, faster than the weights; 0.03: they stay nearly fixed
            temperature_lr_multiplier=10.0 if variant in LEARNED_SCALE else 0.03,
            # the scale of a softmax before a likelihood stays fixed as the others' does; tau of `nll` is learned
            auxiliary_lr_multiplier={"likelihood": 0.03, "nll": 10.0}.get(variant),
        ),
        log=LogConfig(every_steps=20),
        held_out=HeldOutConfig(source=held_out, samples=1000, every_steps=250),
    )  # fmt: skip


def _make_scene_source(world: str, *extra_settings: str) -> tuple[str, ...]:
    """A source of training scenes, practically endless, for `DataConfig.source` or `Stage.source`.

    Args:
        world: A name of a world; single: scenes of one object.
        extra_settings: Settings of the scenes besides those below, as "key=value" (docs/data.md).
    """
    settings = (
        f"scenes:{world}",
        "size=48",
        f"unseen={NUM_UNSEEN}",
        "length=100000000",
        "captions=1",
        "levels=0.1/0.2/0.4/0.3",
    )
    return (",".join((*settings, "complete=0.5", *extra_settings)),)


def _list_scene_settings(variant: Variant) -> tuple[str, ...]:
    """Settings of a variant's scenes: more general captions for those that have masked texts."""
    return () if variant in LEXICON_FREE else ("general=true",)


def _make_model_spec(variant: Variant, batch_size: int) -> ModelSpec:
    """The miniature model; clip and siglip have no variances, and clip, which is trained with a softmax, no bias."""
    spec = ModelSpec(
        size="miniature", tokenizer="scenes", init_scale=10.0, init_logit_bias=-math.log(batch_size)
    )
    match variant:
        case "clip":
            return replace(spec, uncertainty="none", contrastive_loss="softmax", init_logit_bias=None)
        case "siglip":
            return replace(spec, uncertainty="none")
        case "likelihood":
            return replace(
                spec, isotropic=True, contrastive_loss="likelihood", init_scale=KAPPA, init_log_var=LOG_VAR
            )
        case "ppcl-matched" | "nll":
            return replace(spec, isotropic=True, init_log_var=LOG_VAR)
        case _:
            return spec


def _make_objective(variant: Variant) -> Objective:
    """The objective of a variant in its last stage."""
    # c 50: a large c keeps the margins of inclusion small, so that PPCL and VIB can be satisfied, too; with a small one
    # variances run away during the softmax (docs/miniature.md). eps -100, the paper's advice for later work, all but
    # removes the term of H that depends on the means.
    full = Objective(inclusion=1e-2, masked=1e-1, vib=1e-3, c=50.0, eps=-100.0)
    without_inclusion = replace(full, inclusion=0.0, masked=0.0)
    match variant:
        case "clip":
            return replace(without_inclusion, ppcl=0.0, clip=1.0, vib=0.0)
        case "siglip":
            return replace(without_inclusion, ppcl=0.0, siglip=1.0, vib=0.0)
        case "pml-alone":
            return replace(without_inclusion, ppcl=0.0, pml=1.0)
        case "ppcl-alone" | "no-inclusion":  # they differ only in their initial stages and in LEARNED_SCALE
            return without_inclusion
        case "likelihood":
            return replace(full, ppcl=0.0, likelihood=1.0)
        case "nll":
            return replace(full, nll=1.0)
        case "image-in-text":
            return replace(full, masked=0.0)
        case "whole-in-masked":
            return replace(full, inclusion=0.0)
        case _:  # prolip, mask, drop and ppcl-matched: they differ in how texts lose tokens, not in their objective
            return full


def _make_initial_stages(
    variant: Variant, level: SceneWorld, samples: int, has_veils: bool
) -> tuple[Stage, ...]:
    """The stages before the last: two of CLIP's softmax on single objects, then the softmax with the inclusion terms.

    ppcl-alone and pml-alone have their own loss in the first two stages. Neither they nor clip have the third. If the
    last stage has veils, the part of it before VEILED_STAGE is a stage without veils.
    """
    stages = _make_stages_before_main(variant, samples)
    if not has_veils:
        return stages
    num_samples = samples - round(VEILED_STAGE * samples) - sum(stage.samples for stage in stages)
    whole = Stage(
        samples=num_samples,
        objective=_make_objective(variant),
        source=_make_scene_source(level, *_list_scene_settings(variant)),
    )
    without_veils = replace(stages[-1], source=whole.source) if len(stages) > 2 else stages[-1]
    return *stages[:-1], without_veils, whole


def _make_stages_before_main(variant: Variant, samples: int) -> tuple[Stage, ...]:
    """The stages before the variant's own objective is trained on all scenes."""
    objective = _make_objective(variant if variant in ("ppcl-alone", "pml-alone") else "clip")
    extra = _list_scene_settings(variant)
    single_object_stages = (
        Stage(
            samples=round(POSITION_STAGE * samples),
            objective=objective,
            source=_make_scene_source("single", *extra, "placed=0.5"),
        ),
        Stage(
            samples=round(SOFTMAX_STAGE * samples),
            objective=objective,
            source=_make_scene_source("single", *extra),
        ),
    )
    if variant in ("ppcl-alone", "pml-alone", "clip"):
        return single_object_stages
    if variant in LEXICON_FREE:
        return *single_object_stages, Stage(samples=round(INCLUSION_STAGE * samples), objective=objective)
    softmax_with_inclusion = replace(_make_objective(variant), ppcl=0.0, siglip=0.0, clip=1.0, vib=0.0)
    inclusion_stage = Stage(samples=round(INCLUSION_STAGE * samples), objective=softmax_with_inclusion)
    return *single_object_stages, inclusion_stage


def _choose_masking_method(variant: Variant) -> Literal["mask", "drop", "general"]:
    """How a text's masked view is made; see `MaskingConfig.method`."""
    if variant in LEXICON_FREE:
        return "mask"  # of images only: no text has a masked view
    return "mask" if variant == "mask" else "drop" if variant == "drop" else "general"
