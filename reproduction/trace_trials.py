"""Trials in finite worlds: what each loss makes of the width of a caption, next to what is known exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from prolip.evaluation.metrics.correlation import spearman
from reproduction.finite_world import (
    FiniteWorld,
    calibrate_offsets,
    compute_least_loss,
    compute_loss,
    draw_world,
    grow_tree,
)
from reproduction.free_embeddings import FreeEmbeddings, TrainingConfig, train_embeddings

WorldName = Literal["scenes", "tree", "two trees"]
"""Scenes and captions of them; a binary tree; a tree with a few scattered captions besides (see `grow_tree`)."""
SCATTERED = 0.1
"""Probability of a scattered caption in "two trees"."""


@dataclass(frozen=True, kw_only=True)
class WorldSize:
    """Sizes of the worlds.

    Attributes:
        scenes: At most that many scenes, and captions, in "scenes".
        depth: Of the trees.
    """

    scenes: int = 96
    depth: int = 6


@dataclass(frozen=True)
class Trial:
    """One training.

    Attributes:
        name: Unique.
        config: What is trained; its seed is replaced.
        world: In which world.
    """

    name: str
    config: TrainingConfig = field(default_factory=TrainingConfig)
    world: WorldName = "scenes"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a trial came to, with one seed. A gap is the most specific level minus the most general one, in nats.

    Attributes:
        rho: Spearman's correlation of a caption's trace with its log-ambiguity. None: there is no trace.
        log_det_rho: The same of ln |Sigma|, for a density.
        excess: Loss minus the least loss that is possible.
        widths: Mean trace of each level, from general to specific; empty if there is no trace.
        compact: Mean trace of captions whose scenes lie close together over that of scattered ones, the geometric mean
            over levels without the first and the last. None: the world has no scattered captions.
        offsets: What trace and bias make of the logits; None for a density and the likelihood.
    """

    rho: float | None
    log_det_rho: float | None
    excess: float
    widths: tuple[float, ...]
    compact: float | None
    offsets: OffsetOutcome | None


@dataclass(frozen=True, kw_only=True)
class OffsetOutcome:
    """What the trace and the free bias of a caption add to its logits, for SigLIP and PPCL. Gaps as in `Outcome`.

    Attributes:
        rho: Spearman's correlation of what is *subtracted* with the log-ambiguity; None if nothing is.
        gap: Of the offset; below 0 is reversed.
        trace_share: Fraction of the gap that is the trace's; None if there is no offset.
        slope: Of a cosine(own scenes) against PMI over captions, by least squares; above 1 there is a surplus.
        surplus: Gap of a cosine(own scenes) minus gap of the PMI.
        push: Gap of what false pairs take off the exact offsets, given the means.
        calibrated_rho: Spearman's correlation of what the exact offsets subtract, given the means, with log-ambiguity.
        error: Largest difference of an offset and the exact one, given the means, over captions, nats.
    """

    rho: float | None
    gap: float
    trace_share: float | None
    slope: float
    surplus: float
    push: float
    calibrated_rho: float | None
    error: float


def list_trials(base: TrainingConfig) -> list[Trial]:
    """All trials, as variations of a config."""
    ppcl, likelihood = replace(base, logit="ppcl"), replace(base, logit="likelihood")
    siglip, biased = replace(base, logit="siglip"), replace(ppcl, bias=True)
    density = replace(base, logit="density")
    return [
        Trial("SigLIP", siglip),
        Trial("SigLIP + bias", replace(siglip, bias=True)),
        Trial("PPCL", ppcl),
        Trial("PPCL + bias", biased),
        Trial("PPCL + bias at rate 10", replace(biased, bias_rate=10.0)),
        Trial("PPCL at rate 0.1 + bias", replace(biased, trace_rate=0.1)),
        Trial("PPCL, true start", replace(ppcl, start="true")),
        Trial("PPCL + bias, true start", replace(biased, start="true")),
        Trial("PPCL at rate 0.1 + bias, true start", replace(biased, start="true", trace_rate=0.1)),
        Trial("PPCL at rate 0.1 + bias, random start", replace(biased, start="random", trace_rate=0.1)),
        *(Trial(f"PPCL, VIB {vib:g}", replace(ppcl, vib=vib)) for vib in (0.01, 1.0)),
        *(Trial(f"PPCL + bias, VIB {vib:g}", replace(biased, vib=vib)) for vib in (0.01, 1.0)),
        Trial("PPCL, no false pairs", replace(ppcl, false_weight=0.0)),
        *(Trial(f"PPCL, scale {scale:g}", replace(ppcl, scale=scale)) for scale in (2.5, 5.0, 40.0)),
        Trial("PPCL, learned scale", replace(ppcl, learn_scale=True)),
        Trial("PPCL, sampled batches", replace(ppcl, sampled=True, steps=3 * base.steps)),
        *(Trial(f"PPCL, D {dims}", replace(ppcl, dims=dims)) for dims in (4, 8)),
        *(Trial(f"PPCL, B {size}", replace(ppcl, batch_size=size)) for size in (16, 4096)),
        *(Trial(f"PPCL, tree, scale {scale:g}", replace(ppcl, scale=scale), "tree") for scale in (2.5, 5, 10, 40)),
        Trial("PPCL, two trees", ppcl, "two trees"),
        Trial("likelihood", likelihood),
        *(Trial(f"likelihood, kappa {kappa:g}", replace(likelihood, start_kappa=kappa)) for kappa in (5.0, 80.0)),
        *(Trial(f"likelihood, D {dims}", replace(likelihood, dims=dims)) for dims in (4, 8)),
        Trial("likelihood, tree", likelihood, "tree"),
        Trial("likelihood, two trees", likelihood, "two trees"),
        *(Trial(f"density, variance {v:g}", replace(density, start_variance=v)) for v in (0.02, 0.05, 0.15)),
        Trial("density, D variances", replace(density, diagonal=True)),
        Trial("density, D variances, D 8", replace(density, diagonal=True, dims=8)),
    ]  # fmt: skip


def make_world(name: WorldName, size: WorldSize, seed: int) -> FiniteWorld:
    """Make a world by its name; a tree without scattered captions is the same for every seed."""
    if name == "scenes":
        return draw_world(size.scenes, size.scenes, seed=seed)
    return grow_tree(size.depth, SCATTERED if name == "two trees" else 0.0, seed)


def run_trial(trial: Trial, size: WorldSize, seed: int) -> Outcome:
    """Train and describe a trial, with a seed of the world and of the first means."""
    world = make_world(trial.world, size, seed)
    return describe_embeddings(train_embeddings(world, replace(trial.config, seed=seed)), world)


@torch.no_grad()
def describe_embeddings(embeddings: FreeEmbeddings, world: FiniteWorld) -> Outcome:
    """Compare trained embeddings with what is known of their world."""
    config, widths = embeddings.config, embeddings.widths
    loss = compute_loss(embeddings().double(), world, config.batch_size).item()
    log_det = embeddings.caption_log_vars.sum(1).double() if config.logit == "density" else None
    levels = world.levels.unique().tolist()
    return Outcome(
        rho=None if widths is None else spearman(widths.double(), world.log_ambiguity),
        log_det_rho=None if log_det is None else spearman(log_det, world.log_ambiguity),
        excess=loss - compute_least_loss(world, config.batch_size),
        widths=()
        if widths is None
        else tuple(widths[world.levels == level].mean().item() for level in levels),
        compact=None if widths is None else compare_scattered(widths, world),
        offsets=describe_offsets(embeddings, world) if config.logit in ("siglip", "ppcl") else None,
    )


def describe_offsets(embeddings: FreeEmbeddings, world: FiniteWorld) -> OffsetOutcome:
    """Compare the offsets of captions with the exact ones, given the means."""
    config = embeddings.config
    offsets, similarities = embeddings.offsets.double(), embeddings.similarities.double()
    exact = calibrate_offsets(similarities, world, config.batch_size, config.false_weight)
    without_false = calibrate_offsets(similarities, world, config.batch_size, false_weight=0.0)
    own = world.average_true(similarities)
    pmi = world.own_pmi - world.own_pmi.mean()
    gap = world.measure_gap(offsets)
    return OffsetOutcome(
        rho=spearman(-offsets, world.log_ambiguity),
        gap=gap,
        trace_share=world.measure_gap(embeddings.trace_offsets.double()) / gap if gap else None,
        slope=(pmi @ own / (pmi @ pmi)).item(),
        surplus=world.measure_gap(own - world.own_pmi),
        push=world.measure_gap(exact - without_false),
        calibrated_rho=spearman(-exact, world.log_ambiguity),
        error=(offsets - exact).abs().max().item(),
    )


def compare_scattered(widths: torch.Tensor, world: FiniteWorld) -> float | None:
    """`compact` of `Outcome`, of widths (M,)."""
    if world.scattered is None:
        return None
    ratios = []
    for level in world.levels.unique().tolist()[1:-1]:
        compact, scattered = (
            widths[(world.levels == level) & (world.scattered == mark)].mean().item()
            for mark in (False, True)
        )
        ratios.append(math.log(compact / scattered))
    return math.exp(sum(ratios) / len(ratios))
