"""The paper in miniature: a model of 0.28M parameters learns procedural scenes in minutes on two cores.

    prolip train miniature
    prolip train miniature scale=hour seed=1
    prolip train miniature variant=mask
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

A masked text is a true, more general caption (variant=prolip). Each other variant changes one thing:

    mask             the paper's masking: three of four tokens become [MASK]
    drop             three of four tokens are dropped, and some tokens of half of all captions: no lexicon
    clip, siglip     the same towers without variances; siglip after the same first stages
    no-inclusion, image-in-text, whole-in-masked      only the named terms of the inclusion loss
    ppcl-alone, pml-alone      no softmax before, no inclusion terms: each loss by itself

samples and batch_size are keys of this recipe, because the stages and the initial logit bias, -ln(batch size), depend
on them.
"""

import math
from dataclasses import replace
from typing import Literal

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
    "pml-alone",
]  # fmt: skip
SAMPLES = {"minutes": 250_000, "hour": 1_200_000, "night": 12_000_000}
"""By scale. One core processes 500 to 700 per second."""
POSITION_STAGE, SOFTMAX_STAGE, INCLUSION_STAGE = 0.12, 0.18, 0.15
"""Fractions of the samples: the first stage (positions), the softmax alone, the softmax with inclusion terms."""
LEARNED_SCALE = ("clip", "siglip", "ppcl-alone", "pml-alone")
"""Variants that learn their scale. That of the others stays fixed: they are compared with the headline variant."""
UNSEEN = 8
"""Pairs of a color and a shape that no training scene shows."""


def recipe(
    variant: Variant = "prolip",
    scale: Literal["minutes", "hour", "night"] = "minutes",
    level: Literal["simple", "hard"] = "simple",
    samples: int | None = None,
    batch_size: int = 128,
) -> TrainConfig:
    """The run of a variant, in runs/miniature; a variant or level that is not the default is appended to the name.

    Args:
        variant: What is changed, as above.
        scale: Length of the run, see `SAMPLES`.
        level: Difficulty of the scenes.
        samples: Samples seen in total; None: those of `scale`.
        batch_size: Samples per step.
    """
    samples = SAMPLES[scale] if samples is None else samples
    words = ("miniature", variant if variant != "prolip" else "", level if level != "simple" else "")
    held_out = f"scenes:{level},size=48,unseen={UNSEEN},length=1000,seed=1,complete=1,levels=0/0/0/1"
    return TrainConfig(
        out=f"runs/{'-'.join(filter(None, words))}",
        samples=samples,
        batch_size=batch_size,
        model=_model(variant, batch_size),
        data=DataConfig(
            source=_scene_source(level), augment=False, workers=1, token_dropout=0.5 if variant == "drop" else 0.0
        ),
        objective=_objective(variant),
        initial_stages=_stages(variant, samples),
        masking=MaskingConfig(image_fraction=1 / 8, text_fraction=1 / 2, method=_masking_method(variant)),
        optimizer=OptimizerConfig(
            lr=2e-3, betas=(0.9, 0.98), weight_decay=0.05, warmup_steps=50, final_lr_fraction=0.02, grad_clip_norm=1.0,
            temperature_lr_multiplier=10.0 if variant in LEARNED_SCALE else 0.03,
        ),
        log=LogConfig(every_steps=20),
        held_out=HeldOutConfig(source=held_out, samples=1000, every_steps=250),
    )  # fmt: skip


def _scene_source(world: str, *more: str) -> tuple[str, ...]:
    """The address of practically endless training scenes, for `data.source`.

    Args:
        world: simple, hard, or single: scenes of one object.
        more: More settings of the scenes, as "key=value".
    """
    settings = (
        f"scenes:{world}",
        "size=48",
        f"unseen={UNSEEN}",
        "length=100000000",
        "captions=1",
        "levels=0.1/0.2/0.4/0.3",
    )
    return (",".join((*settings, "complete=0.5", "general=true", *more)),)


def _model(variant: Variant, batch_size: int) -> ModelSpec:
    """The miniature model; clip and siglip have no variances, and clip, which is trained with a softmax, no bias."""
    spec = ModelSpec(
        size="miniature", tokenizer="scenes", init_scale=10.0, init_logit_bias=-math.log(batch_size)
    )
    match variant:
        case "clip":
            return replace(spec, uncertainty="none", contrastive_loss="softmax", init_logit_bias=None)
        case "siglip":
            return replace(spec, uncertainty="none")
    return spec


def _objective(variant: Variant) -> Objective:
    """Loss terms of a variant in its last stage."""
    full = Objective(inclusion=1e-2, masked=1e-1, vib=1e-3, c=50.0, eps=-100.0)
    alone = replace(full, inclusion=0.0, masked=0.0)
    match variant:
        case "clip":
            return replace(alone, ppcl=0.0, clip=1.0, vib=0.0)
        case "siglip":
            return replace(alone, ppcl=0.0, siglip=1.0, vib=0.0)
        case "pml-alone":
            return replace(alone, ppcl=0.0, pml=1.0)
        case "ppcl-alone" | "no-inclusion":
            return alone
        case "image-in-text":
            return replace(full, masked=0.0)
        case "whole-in-masked":
            return replace(full, inclusion=0.0)
    return full


def _stages(variant: Variant, samples: int) -> tuple[Stage, ...]:
    """The stages before the last: twice the softmax on single objects, then the softmax with the inclusion terms.

    The variants that train one loss alone have that loss in the first two stages and no third, and clip has no third.
    """
    objective = _objective(variant if variant in ("ppcl-alone", "pml-alone") else "clip")
    first = (
        Stage(
            samples=round(POSITION_STAGE * samples),
            objective=objective,
            source=_scene_source("single", "placed=0.5"),
        ),
        Stage(samples=round(SOFTMAX_STAGE * samples), objective=objective, source=_scene_source("single")),
    )
    if variant in ("ppcl-alone", "pml-alone", "clip"):
        return first
    softmax_with_inclusion = replace(_objective(variant), ppcl=0.0, siglip=0.0, clip=1.0, vib=0.0)
    return *first, Stage(samples=round(INCLUSION_STAGE * samples), objective=softmax_with_inclusion)


def _masking_method(variant: Variant) -> Literal["mask", "drop", "general"]:
    """How a text's masked view is made; see `MaskingConfig.method`."""
    return "mask" if variant == "mask" else "drop" if variant == "drop" else "general"
