"""Free embeddings of a finite world: tables of means and widths, trained on the expected loss without a network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from reproduction.finite_world import FiniteWorld, compute_loss

Logit = Literal["siglip", "ppcl", "density", "likelihood"]
"""The logit of a pair: a cosine + b; PPCL's a (cosine - (tr_i + tr_j) / 2) + b; ln N(mean_i; mean_j, Sigma_j) + b with
one or D variances of caption j; the PMI of two von Mises-Fisher posteriors + b."""
Start = Literal["equal", "random", "true"]
"""Traces of captions before training: all equal; random, log-normal; in the order of the true ambiguity."""
GAMMA = 4.0
"""kappa = exp(tau) trace^-GAMMA in the likelihood."""
START_TRACE = 0.25
"""Trace of every row before training; the mean of the logarithms, if they differ."""
START_SPREAD = 0.5
"""Standard deviation of ln trace over captions before training, if they differ."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What is trained, and how.

    Attributes:
        logit: The logit of a pair.
        bias: Whether each caption also has a free bias, of either sign; not for a density or the likelihood.
        start: Traces of captions before training.
        trace_rate, bias_rate: Learning rates of the caption's trace and bias, relative to that of the rest.
        vib: Weight of the VIB term of captions: the KL divergence of one dimension of variance v from one of variance
            START_TRACE / D, in expectation over the captions of a batch.
        scale: a, at the start; only for "siglip" and "ppcl".
        learn_scale: Train ln a.
        start_variance: Variance of each dimension at the start, for a density.
        diagonal: Whether each dimension of a density has a variance of its own.
        start_kappa: Concentration of every row at the start, for the likelihood.
        dims: Number of dimensions D.
        batch_size: B: a scene meets its own caption and B - 1 others.
        false_weight: Weight in the loss of pairs whose caption is false of the scene; 1 is the loss itself.
        sampled: Draw B pairs at each step, as training does, instead of taking the expectation; ignores false_weight.
        steps: Steps of Adam; the learning rate falls to 0 by a cosine.
        learning_rate: The highest learning rate.
        seed: Seed of the first means, of random traces, and of the pairs.
    """

    logit: Logit = "ppcl"
    bias: bool = False
    start: Start = "equal"
    trace_rate: float = 1.0
    bias_rate: float = 1.0
    vib: float = 0.0
    scale: float = 10.0
    learn_scale: bool = False
    start_variance: float = 0.05
    diagonal: bool = False
    start_kappa: float = 20.0
    dims: int = 32
    batch_size: int = 128
    false_weight: float = 1.0
    sampled: bool = False
    steps: int = 500
    learning_rate: float = 0.03
    seed: int = 0

    @property
    def trace_share(self) -> float:
        """The predicted share of the trace in the offset of a caption that has a free bias besides.

        Adam's first steps are equal in ln trace and in the bias, up to their rates, and a step in ln trace moves the
        logit a trace / 2 times as far as one in the bias. The gradients stay parallel.
        """
        by_trace, by_bias = 0.5 * self.scale * START_TRACE * self.trace_rate, self.bias_rate * self.bias
        return by_trace / (by_trace + by_bias)


class FreeEmbeddings(nn.Module):
    """Free means and widths of N scenes and M captions.

    Args:
        world: Gives N and M.
        config: Logit, sizes, start and seed.
    """

    def __init__(self, world: FiniteWorld, config: TrainingConfig) -> None:
        """Draw the means; traces start as the config says, biases of captions at 0."""
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        num_scenes, num_captions = world.joint.shape
        self.scene_means = nn.Parameter(torch.randn(num_scenes, config.dims, generator=generator))
        self.caption_means = nn.Parameter(torch.randn(num_captions, config.dims, generator=generator))
        self.scene_log_trace = nn.Parameter(torch.full((num_scenes,), math.log(START_TRACE)))
        self.caption_log_trace = nn.Parameter(
            math.log(START_TRACE) + START_SPREAD * _draw_start(world, config.start, generator)
        )
        self.caption_log_var = nn.Parameter(
            torch.full((num_captions, config.dims if config.diagonal else 1), math.log(config.start_variance))
        )
        self.caption_bias = nn.Parameter(torch.zeros(num_captions))
        self.log_scale = nn.Parameter(torch.tensor(math.log(config.scale)))
        self.tau = nn.Parameter(torch.tensor(math.log(config.start_kappa) + GAMMA * math.log(START_TRACE)))
        self.bias = nn.Parameter(torch.tensor(_get_first_bias(config)))

    @property
    def cosines(self) -> Tensor:
        """Cosine of each scene and caption, (N, M)."""
        return normalize(self.scene_means, dim=-1) @ normalize(self.caption_means, dim=-1).mT

    @property
    def similarities(self) -> Tensor:
        """The logits of "siglip" and "ppcl" without what belongs to one caption, (N, M)."""
        scale = self.log_scale.exp()
        if self.config.logit == "siglip":
            return scale * self.cosines + self.bias
        return scale * (self.cosines - 0.5 * self.scene_log_trace.exp()[:, None]) + self.bias

    @property
    def trace_offsets(self) -> Tensor:
        """What the trace of a caption adds to its logits, (M,): -a tr / 2 for "ppcl", else 0."""
        trace = self.caption_log_trace.exp()
        return -0.5 * self.log_scale.exp() * trace if self.config.logit == "ppcl" else torch.zeros_like(trace)

    @property
    def offsets(self) -> Tensor:
        """What trace and bias of a caption add to its logits, (M,)."""
        return self.trace_offsets + self.caption_bias if self.config.bias else self.trace_offsets

    @property
    def caption_log_vars(self) -> Tensor:
        """Log-variances of the captions of a density, (M, D)."""
        return self.caption_log_var.expand(-1, self.config.dims)

    @property
    def widths(self) -> Tensor | None:
        """The uncertainty of each caption, the trace, (M,); None for "siglip", which has none."""
        if self.config.logit == "siglip":
            return None
        is_density = self.config.logit == "density"
        return self.caption_log_vars.exp().sum(1) if is_density else self.caption_log_trace.exp()

    def forward(self) -> Tensor:
        """The logit of each scene and caption, (N, M)."""
        if self.config.logit == "likelihood":
            kappas = [
                (self.tau - GAMMA * log_trace).exp()
                for log_trace in (self.scene_log_trace, self.caption_log_trace)
            ]
            return compute_vmf_pmi(kappas[0], kappas[1], self.cosines, self.config.dims) + self.bias
        if self.config.logit == "density":
            return self._compute_log_density() + self.bias
        return self.similarities + self.offsets

    def _compute_log_density(self) -> Tensor:
        """ln N(mean of the scene; mean and variances of the caption) without -D/2 ln 2 pi, (N, M)."""
        scenes, captions = normalize(self.scene_means, dim=-1), normalize(self.caption_means, dim=-1)
        log_vars = self.caption_log_vars
        precision = (-log_vars).exp()
        distances = scenes.square() @ precision.mT - 2 * scenes @ (captions * precision).mT
        distances = distances + (captions.square() * precision).sum(1)
        return -0.5 * (distances + log_vars.sum(1))


def train_embeddings(world: FiniteWorld, config: TrainingConfig) -> FreeEmbeddings:
    """Train new embeddings by Adam with a cosine schedule.

    Args:
        world: The world.
        config: Logit, sizes and optimizer.

    Returns:
        The trained embeddings.
    """
    embeddings = FreeEmbeddings(world, config)
    optimizer = torch.optim.Adam(_group_parameters(embeddings), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    generator = torch.Generator().manual_seed(config.seed)
    world = FiniteWorld(world.joint.float(), world.levels)
    for _ in range(config.steps):
        optimizer.zero_grad()
        loss = (
            _compute_sampled_loss(embeddings(), world, generator, config.batch_size)
            if config.sampled
            else compute_loss(embeddings(), world, config.batch_size, config.false_weight)
        )
        if config.vib:
            excess = embeddings.caption_log_trace - math.log(START_TRACE)
            loss = loss + 0.5 * config.vib * (world.joint.sum(0) @ (excess.exp() - 1 - excess))
        loss.backward()
        optimizer.step()
        schedule.step()
    return embeddings


def compute_vmf_pmi(scene_kappa: Tensor, caption_kappa: Tensor, cosines: Tensor, dims: int) -> Tensor:
    """PMI of two von Mises-Fisher posteriors of a concept that is uniform on the sphere: F(r) - F(k_i) - F(k_j).

    Args:
        scene_kappa: Concentrations k_i, (N,).
        caption_kappa: Concentrations k_j, (M,).
        cosines: Of the directions, (N, M); r^2 = k_i^2 + k_j^2 + 2 k_i k_j cosine.
        dims: D.

    Returns:
        Nats, (N, M).
    """
    k_i, k_j = scene_kappa[:, None], caption_kappa[None, :]
    r = (k_i.square() + k_j.square() + 2 * k_i * k_j * cosines).clamp(min=1e-12).sqrt()
    return compute_log_mgf(r, dims) - compute_log_mgf(k_i, dims) - compute_log_mgf(k_j, dims)


def compute_log_mgf(kappa: Tensor, dims: int) -> Tensor:
    """F(k) = ln E exp(k mu . c), c uniform on the sphere: a fast form close to the exact one of `prolip.measures.vmf`.

    Args:
        kappa: Concentrations, any shape.
        dims: D, at least 2.

    Returns:
        Nats, 0 for 0, in the shape of `kappa`.
    """
    n = 0.5 * (dims - 1)
    root = (kappa.square() + n * n).sqrt()
    return root - n - n * ((n + root) / (2 * n)).log()


def _draw_start(world: FiniteWorld, start: Start, generator: torch.Generator) -> Tensor:
    """ln trace of captions before training, in units of START_SPREAD around its mean, (M,)."""
    if start == "random":
        return torch.randn(len(world.levels), generator=generator)
    if start == "true":
        truth = world.log_ambiguity.float()
        return (truth - truth.mean()) / truth.std()
    return torch.zeros(len(world.levels))


def _get_first_bias(config: TrainingConfig) -> float:
    """The bias of all logits before training: -ln B, minus the log-density at a right angle, if there is one."""
    bias = -math.log(config.batch_size)
    if config.logit == "density":
        bias += 1 / config.start_variance + 0.5 * config.dims * math.log(config.start_variance)
    return bias


def _group_parameters(embeddings: FreeEmbeddings) -> list[dict[str, object]]:
    """Parameters that the config trains, as groups of an optimizer with their learning rates."""
    config = embeddings.config
    return [
        {
            "params": [
                embeddings.scene_means, embeddings.caption_means, embeddings.scene_log_trace,
                embeddings.caption_log_var, embeddings.tau, embeddings.bias,
            ]
        },
        {"params": [embeddings.caption_log_trace], "lr": config.learning_rate * config.trace_rate},
        {"params": [embeddings.caption_bias], "lr": config.learning_rate * config.bias_rate},
        {"params": [embeddings.log_scale], "lr": config.learning_rate * config.learn_scale},
    ]  # fmt: skip


def _compute_sampled_loss(
    logits: Tensor, world: FiniteWorld, generator: torch.Generator, batch_size: int
) -> Tensor:
    """The pairwise sigmoid loss of one scene in a batch of pairs that are drawn from the world."""
    num_captions = logits.shape[1]
    pairs = torch.multinomial(world.joint.flatten(), batch_size, replacement=True, generator=generator)
    batch = logits[pairs // num_captions][:, pairs % num_captions]
    return (softplus(batch).sum() - batch.diagonal().sum()) / batch_size
