"""Why PPCL's trace falls with ambiguity: free embeddings of a finite world, trained on the exact expected loss.

There is no network and no sampling here. Scenes and captions are rows of tables, the loss is its expectation over all
pairs, and the logit that minimizes it is known: PMI(scene, caption) - ln(B - 1). `python -m reproduction.ppcl_trace`
prints what each loss makes of the width of a caption; docs/likelihood.md explains the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus
from tyro.conf import arg

from prolip import cli
from prolip.console import format_number, make_table, print_tables
from prolip.evaluation.metrics.correlation import spearman
from prolip.files import write_json
from prolip.scenes.captions import NUM_LEVELS, Caption
from prolip.scenes.meaning import is_true
from prolip.scenes.source import Scenes
from prolip.scenes.world import SIMPLE

Logit = Literal["siglip", "siglip+bias", "ppcl", "ppcl+bias", "likelihood"]
"""The logit of a pair. "+bias": each caption also has a free bias, of either sign."""
GAMMA = 4.0
"""kappa = exp(tau) trace^-GAMMA in the likelihood."""
START_TRACE, START_KAPPA = 0.25, 20.0
"""Trace and concentration of every row before training."""


@dataclass(frozen=True)
class FiniteWorld:
    """Scenes and captions whose joint probability is known.

    Attributes:
        joint: P(scene, caption), (N, M), adds up to 1.
        levels: Level of each caption, int64 (M,).
    """

    joint: Tensor
    levels: Tensor

    @cached_property
    def independent(self) -> Tensor:
        """P(scene) P(caption), (N, M)."""
        return self.joint.sum(1, keepdim=True) * self.joint.sum(0, keepdim=True)

    @cached_property
    def pmi(self) -> Tensor:
        """ln P(scene, caption) / (P(scene) P(caption)), (N, M); -inf where the caption is false."""
        return (self.joint / self.independent).log()

    @cached_property
    def log_ambiguity(self) -> Tensor:
        """ln P(caption is true of a random scene), (M,)."""
        return ((self.joint > 0) * self.joint.sum(1, keepdim=True)).sum(0).log()

    def average_true(self, values: Tensor) -> Tensor:
        """The mean of values (N, M) over the scenes that a caption is drawn with, (M,)."""
        return (values * self.joint).sum(0) / self.joint.sum(0)


def draw_world(
    num_scenes: int, num_captions: int, levels: Sequence[float] = (0.1, 0.2, 0.4, 0.3), seed: int = 0
) -> FiniteWorld:
    """Draw scenes, and captions of them with different meanings; scenes are equally likely.

    A caption of a scene is drawn by its level first, then uniformly among those of the level that are true.

    Args:
        num_scenes: At most N; a scene of which none of the captions is true is left out.
        num_captions: At most M.
        levels: Probability of each level. A level without a true caption leaves its probability to the others.
        seed: Seed of scenes and captions.

    Returns:
        The world, in float64.
    """
    source = Scenes(SIMPLE, length=num_scenes, seed=seed, levels=levels)
    scenes = [source.draw_scene(index) for index in range(num_scenes)]
    drawn: dict[Any, Caption] = {}
    for index in range(num_scenes):
        for caption in source.captions(index):
            if len(drawn) < num_captions:
                drawn.setdefault(caption.meaning, caption)
    captions = list(drawn.values())
    truth = torch.tensor(
        [[is_true(one.meaning, scene) for one in captions] for scene in scenes], dtype=torch.float64
    )
    truth = truth[truth.any(1)]  # a scene without a true caption is in no pair
    level = torch.tensor([one.level for one in captions])
    joint = torch.zeros_like(truth)
    for number in range(NUM_LEVELS):
        of_level = truth * (level == number)
        joint += levels[number] * of_level / of_level.sum(1, keepdim=True).clamp(min=1)
    return FiniteWorld(joint / joint.sum(1, keepdim=True) / len(truth), level)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the tables are trained.

    Attributes:
        logit: The logit of a pair.
        scale: a, fixed; the likelihood has none.
        dims: Number of dimensions D.
        batch_size: B: a scene meets its own caption and B - 1 others.
        false_weight: Weight in the loss of pairs whose caption is false of the scene; 1 is the loss itself.
        steps: Steps of Adam on the whole world; the learning rate falls to 0 by a cosine.
        learning_rate: The highest learning rate.
        seed: Seed of the first means.
    """

    logit: Logit = "ppcl"
    scale: float = 10.0
    dims: int = 32
    batch_size: int = 128
    false_weight: float = 1.0
    steps: int = 1500
    learning_rate: float = 0.03
    seed: int = 0


class Tables(nn.Module):
    """Free means and traces of N scenes and M captions, and one bias of all logits.

    Args:
        world: Gives N and M.
        config: Dimensions, logit, scale and seed.
    """

    def __init__(self, world: FiniteWorld, config: TrainingConfig) -> None:
        """Draw the means; all traces and biases start equal."""
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        num_scenes, num_captions = world.joint.shape
        self.scene_means = nn.Parameter(torch.randn(num_scenes, config.dims, generator=generator))
        self.caption_means = nn.Parameter(torch.randn(num_captions, config.dims, generator=generator))
        self.scene_log_trace = nn.Parameter(torch.full((num_scenes,), math.log(START_TRACE)))
        self.caption_log_trace = nn.Parameter(torch.full((num_captions,), math.log(START_TRACE)))
        self.caption_bias = nn.Parameter(torch.zeros(num_captions))
        self.log_kappa_of_unit_trace = nn.Parameter(
            torch.tensor(math.log(START_KAPPA) + GAMMA * math.log(START_TRACE))
        )
        self.bias = nn.Parameter(torch.tensor(-math.log(config.batch_size)))

    @property
    def cosines(self) -> Tensor:
        """Cosine of each scene and caption, (N, M)."""
        return normalize(self.scene_means, dim=-1) @ normalize(self.caption_means, dim=-1).mT

    @property
    def caption_offsets(self) -> Tensor:
        """What the logit adds for each caption, whatever the scene, (M,); not for the likelihood."""
        offsets = torch.zeros_like(self.caption_bias)
        if "ppcl" in self.config.logit:
            offsets = offsets - 0.5 * self.config.scale * self.caption_log_trace.exp()
        return offsets + self.caption_bias if "bias" in self.config.logit else offsets

    def forward(self) -> Tensor:
        """The logit of each scene and caption, (N, M)."""
        if self.config.logit == "likelihood":
            kappas = [
                (self.log_kappa_of_unit_trace - GAMMA * log_trace).exp()
                for log_trace in (self.scene_log_trace, self.caption_log_trace)
            ]
            return compute_vmf_pmi(kappas[0], kappas[1], self.cosines, self.config.dims) + self.bias
        logits = self.config.scale * self.cosines + self.caption_offsets + self.bias
        if "ppcl" in self.config.logit:
            logits = logits - 0.5 * self.config.scale * self.scene_log_trace.exp()[:, None]
        return logits


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
    """F(k) = ln E exp(k mu . c), c uniform on the sphere: a closed form close to the exact one with Bessel functions.

    Args:
        kappa: Concentrations, any shape.
        dims: D, at least 2.

    Returns:
        Nats, 0 for 0, in the shape of `kappa`.
    """
    n = 0.5 * (dims - 1)
    root = (kappa.square() + n * n).sqrt()
    return root - n - n * ((n + root) / (2 * n)).log()


def compute_loss(logits: Tensor, world: FiniteWorld, batch_size: int, false_weight: float = 1.0) -> Tensor:
    """The expected pairwise sigmoid loss of one scene: its own caption, and B - 1 that are drawn independently.

    Args:
        logits: (N, M).
        world: Probabilities of the pairs.
        batch_size: B.
        false_weight: Weight of pairs that never match.

    Returns:
        Scalar. The logit that minimizes it is PMI - ln(B - 1).
    """
    own = world.joint.to(logits) * softplus(-logits)
    weight = torch.where(world.joint > 0, 1.0, false_weight) * (batch_size - 1)
    others = weight.to(logits) * world.independent.to(logits) * softplus(logits)
    return (own + others).sum()


def compute_least_loss(world: FiniteWorld, batch_size: int) -> float:
    """The loss of the logits PMI - ln(B - 1), which no tables can beat."""
    return compute_loss((world.pmi - math.log(batch_size - 1)).clamp(min=-80), world, batch_size).item()


def train_tables(world: FiniteWorld, config: TrainingConfig) -> Tables:
    """Train all parameters of new tables.

    Args:
        world: The world.
        config: Logit, sizes and optimizer.

    Returns:
        The trained tables.
    """
    tables = Tables(world, config)
    minimize_loss(tables, world, tables.parameters())
    return tables


def fit_caption_biases(tables: Tables, world: FiniteWorld) -> Tensor:
    """Fit a free bias of each caption, and the common one, on top of tables that stay as they are.

    Args:
        tables: Trained tables with the logit "siglip"; only their biases change.
        world: The world of the tables.

    Returns:
        The biases without the common one, (M,).
    """
    tables.config = replace(tables.config, logit="siglip+bias")
    minimize_loss(tables, world, [tables.caption_bias, tables.bias])
    return tables.caption_bias.detach()


def minimize_loss(tables: Tables, world: FiniteWorld, parameters: Iterable[nn.Parameter]) -> None:
    """Minimize the expected loss over some parameters of tables, by Adam with a cosine schedule."""
    config = tables.config
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    world = FiniteWorld(world.joint.float(), world.levels)
    for _ in range(config.steps):
        optimizer.zero_grad()
        compute_loss(tables(), world, config.batch_size, config.false_weight).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def describe_tables(tables: Tables, world: FiniteWorld) -> dict[str, Any]:
    """Compare trained tables with what is known.

    Args:
        tables: The tables.
        world: Their world.

    Returns:
        config: As trained.
        excess: Loss minus the least loss.
        trace, offset: Spearman's correlation with the log-ambiguity of a caption's trace, and of what the logit
            subtracts for the caption (trace and free bias); None where there is none.
        slope: Of a cosine(own scenes) against PMI over captions, by least squares; above 1 there is a surplus.
        gap: Mean offset of the most specific level minus that of the most general one, nats; below 0 is reversed.
        levels: For each level the means over captions of pmi, a x cosine with own scenes (similarity), offset, and
            of the logit of own scenes minus its optimum (error).
    """
    config = tables.config
    logits = tables().double()
    target = world.pmi - math.log(config.batch_size - 1)
    own = world.joint > 0
    columns = {
        "pmi": world.average_true(torch.where(own, world.pmi, 0)),
        "similarity": world.average_true(config.scale * tables.cosines.double()),
        "offset": tables.caption_offsets.double(),
        "trace": tables.caption_log_trace.exp().double(),
        "error": world.average_true(torch.where(own, logits - target, 0)),
    }
    widths = config.logit in ("ppcl", "ppcl+bias", "likelihood")
    pmi = columns["pmi"] - columns["pmi"].mean()
    levels = [
        {name: values[world.levels == level].mean().item() for name, values in columns.items()}
        for level in world.levels.unique().tolist()
    ]
    return {
        "config": asdict(config),
        "excess": compute_loss(logits, world, config.batch_size).item()
        - compute_least_loss(world, config.batch_size),
        "trace": spearman(columns["trace"], world.log_ambiguity) if widths else None,
        "offset": None if config.logit == "likelihood" else spearman(-columns["offset"], world.log_ambiguity),
        "slope": None if config.logit == "likelihood" else (pmi @ columns["similarity"] / (pmi @ pmi)).item(),
        "gap": None if config.logit == "likelihood" else levels[-1]["offset"] - levels[0]["offset"],
        "levels": levels,
    }


def list_configs(base: TrainingConfig) -> list[TrainingConfig]:
    """The rows of the table: every logit; then PPCL with other scales, dimensions, batch sizes and weights."""
    logits: tuple[Logit, ...] = ("siglip", "siglip+bias", "ppcl", "ppcl+bias", "likelihood")
    return [
        *(replace(base, logit=logit) for logit in logits),
        *(replace(base, scale=scale) for scale in (2.5, 5.0, 20.0, 40.0, 80.0)),
        *(replace(base, dims=dims) for dims in (2, 4, 8, 64)),
        *(replace(base, batch_size=size) for size in (8, 1024, 16384)),
        *(replace(base, false_weight=weight) for weight in (0.0, 0.01, 0.1)),
        *(replace(base, logit="likelihood", dims=dims) for dims in (4, 8, 64)),
    ]


def run_experiment(world: FiniteWorld, base: TrainingConfig) -> list[dict[str, Any]]:
    """Train and describe every row; after "siglip" also biases that are fitted to its frozen means.

    Args:
        world: The world.
        base: The config that the rows vary.

    Returns:
        What `describe_tables` returns, with a `name`.
    """
    rows = []
    for config in list_configs(base):
        tables = train_tables(world, config)
        rows.append({"name": config.logit} | describe_tables(tables, world))
        if config.logit == "siglip":
            fit_caption_biases(tables, world)
            rows.append({"name": "siglip, then bias"} | describe_tables(tables, world))
    return rows


def show_trace(
    scenes: int = 256,
    captions: int = 256,
    steps: int = 1500,
    seed: int = 0,
    out: Path = Path("runs/ppcl_trace.json"),
    as_json: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Train free embeddings of a finite world with PPCL, its controls and the likelihood; print what widths mean.

    Example: python -m reproduction.ppcl_trace --seed 1

    Args:
        scenes: Number of scenes.
        captions: Number of captions.
        steps: Steps of each training.
        seed: Seed of the world and of the first means.
        out: The JSON file of all numbers.
        as_json: Print JSON instead of a table.
    """
    rows = run_experiment(draw_world(scenes, captions, seed=seed), TrainingConfig(steps=steps, seed=seed))
    path = write_json(out.expanduser(), {"scenes": scenes, "captions": captions, "rows": rows})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    names = ("a", "D", "B", "false", "trace", "offset", "gap", "slope", "error", "excess")
    table = make_table("Width of captions against ambiguity", ("logit",), names)
    for row in rows:
        config = row["config"]
        numbers = [format_number(row[name], "+.2f") for name in ("trace", "offset", "gap", "slope")]
        numbers += [format_number(row["levels"][-1]["error"], "+.2f"), format_number(row["excess"], ".3f")]
        table.add_row(
            row["name"],
            f"{config['scale']:g}",
            str(config["dims"]),
            str(config["batch_size"]),
            f"{config['false_weight']:g}",
            *numbers,
        )
    print_tables([table])
    print(path)


def main(args: list[str] | None = None) -> None:
    """Run `show_trace` with the arguments (None: those of the process)."""
    with cli.reported_errors("reproduction.ppcl_trace"):
        tyro.cli(show_trace, prog="python -m reproduction.ppcl_trace", args=args)


if __name__ == "__main__":
    main()
