"""Variants of the large recipes: the paper's objective, or ours (likelihood, its control, NLL) at the same size.

Ours, not the paper's; not run at these sizes. What is known comes from the miniature (docs/likelihood.md). What each
variant changes, and why:

likelihood: the likelihood of von Mises-Fisher posteriors instead of PPCL, with one log-variance per sample.

- No masked texts: with [MASK] the order of text widths came out reversed. Masked images stay as they are.
- The weights of the inclusion terms stay the paper's. The miniature's are a hundred (masked) and a hundred thousand
  times larger, because its runs have only 2,000 steps; the order of widths needed neither term. c and eps are what the
  paper recommends for new models, 10 and -100.
- No VIB. kappa = e^tau tr^-gamma and the inclusion terms at eps -100 don't change if all log-variances rise by d and
  tau by gamma d. So nothing holds the level of traces against VIB, which pulls every variance to 1, a trace of D; the
  miniature is too short for that. Nor is VIB needed: what it prevents is that PPCL's variances collapse.
- A softmax on the means first, at a scale near 10, for as long as the warm-up. With means that don't match yet the
  likelihood is best at kappa = 0, and there the gradients of means and widths vanish. In the miniature it takes 45 % of
  the run, because in small batches a softmax learns sooner; in large ones the paper's sigmoids do as well.
- tau and b have ten times the rate of the weights, as in the miniature.

ppcl-matched: its control. PPCL and VIB instead of the likelihood, all else as in likelihood. As in the miniature's
control, the scale stays near 10.

nll: the paper's recipe with one log-variance per sample, no masked texts, and the NLL of own pairs, which moves widths
only. tau of the NLL has ten times the rate of the weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from prolip.losses.objective import INITIAL_TEMPERATURES, Objective
from prolip.training.config import ModelSpec, OptimizerConfig, Stage, TrainConfig

Variant = Literal["paper", "likelihood", "ppcl-matched", "nll"]
"""What is trained: the paper's objective, or one of ours, described above."""
LEARNED, FIXED = 10.0, 0.03
"""Learning rates of a scale and a bias, as multiples of that of the weights: learned soon, or nearly fixed."""
C, EPS = 10.0, -100.0
"""Constants of the inclusion terms that the paper recommends for new models."""


def apply_variant(
    config: TrainConfig, variant: Variant, out: str, *, is_trained: bool = False
) -> TrainConfig:
    """Change the paper's run into a variant of the same size.

    Args:
        config: A run with PPCL.
        variant: What is trained instead.
        out: Run folder of the paper's run; -VARIANT is added to it.
        is_trained: Whether the run starts from a model that the variant has trained: then its heads, scale and bias are
            kept, and there is no softmax before.

    Returns:
        The config; for "paper" the same.

    Raises:
        ValueError: The run has no PPCL that a variant could replace or accompany.
    """
    if variant == "paper":
        return config
    if not config.objective.ppcl:
        raise ValueError(
            f"variant {variant} replaces or accompanies PPCL, but this run has {', '.join(config.objective.active)}"
        )
    softmax_samples = config.optimizer.warmup_steps * config.batch_size
    has_softmax = softmax_samples > 0 and variant != "nll" and not is_trained
    softmax = Objective(ppcl=0.0, clip=1.0, inclusion=0.0, masked=0.0, vib=0.0)
    return replace(
        config,
        out=f"{out}-{variant}",
        model=config.model if is_trained else _change_model(config.model, variant, config.batch_size),
        objective=_change_objective(config.objective, variant),
        initial_stages=(Stage(samples=softmax_samples, objective=softmax),) if has_softmax else (),
        masking=replace(config.masking, text_fraction=0.0),
        optimizer=_change_optimizer(config.optimizer, variant),
    )


def _change_model(spec: ModelSpec, variant: Variant, batch_size: int) -> ModelSpec:
    """The model with one log-variance per sample; the logits of likelihood and control start at -ln(batch size)."""
    spec = replace(spec, isotropic=True)
    if variant == "nll":
        return spec
    spec = replace(spec, init_logit_bias=-math.log(batch_size))
    if variant == "likelihood":
        return replace(
            spec, contrastive_loss="likelihood", init_scale=None
        )  # None: as the dimension needs it
    return replace(spec, init_scale=INITIAL_TEMPERATURES["ppcl"][0])


def _change_objective(objective: Objective, variant: Variant) -> Objective:
    """The objective of the last stage: terms that the run doesn't have stay without weight."""
    if variant == "nll":
        return replace(objective, nll=1.0)
    objective = replace(objective, c=C, eps=EPS)
    return replace(objective, ppcl=0.0, likelihood=1.0, vib=0.0) if variant == "likelihood" else objective


def _change_optimizer(optimizer: OptimizerConfig, variant: Variant) -> OptimizerConfig:
    """The learning rates of scales and biases: the model's, and those of terms that have their own."""
    match variant:
        case "likelihood":  # tau and b are the model's, the scale of the softmax is not
            return replace(optimizer, temperature_lr_multiplier=LEARNED, auxiliary_lr_multiplier=FIXED)
        case "ppcl-matched":
            return replace(optimizer, temperature_lr_multiplier=FIXED)
        case _:  # PPCL's as in the paper, tau of the NLL
            return replace(optimizer, auxiliary_lr_multiplier=LEARNED)
