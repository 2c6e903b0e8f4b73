"""What a training run is made of: frozen configs, composed by recipes, changed by the command line, saved with the run.

Every field says what it means; an impossible value is an error with its name in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import PurePath
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from prolip.checks import require_choice, require_count
from prolip.configs import alternatives, build, require_literals
from prolip.data.batch import CaptionChoice
from prolip.losses.contrastive import MAX_LOG_SCALE
from prolip.losses.objective import Objective
from prolip.model.config import Uncertainty
from prolip.preprocessing.augmentation import Augmentation
from prolip.preprocessing.images import MAX_PIXELS

Precision = Literal["float32", "bfloat16", "float64"]
Strategy = Literal["ddp", "fsdp"]
Display = Literal["auto", "rich", "plain", "none"]


HELD_OUT = (
    "held_out/r1", "held_out/image_to_text_r1", "held_out/text_to_image_r1", "held_out/image_uncertainty",
    "held_out/text_uncertainty", "held_out/text_above_image",
)  # fmt: skip
"""The metrics of held-out data. The last three are of models with variances."""
MAX_SCALE = round(math.exp(MAX_LOG_SCALE))


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Fresh weights of a named size, or weights to go on from."""

    size: str = "ViT-B-16-768"
    """A named size (docs/models.md). Not read if there is a `start`."""
    start: str | None = None
    """A folder or hub id to fine-tune; CLIP and SigLIP are made probabilistic. None: fresh weights."""
    tokenizer: str | None = None
    """A folder, file or hub id that has one, or "scenes". None: that of `start`."""
    uncertainty: Uncertainty = "token"
    """Where log-variances come from, for fresh weights: token ([UNC]), multihead (PCME++), none (deterministic)."""
    contrast: Literal["sigmoid", "softmax"] = "sigmoid"
    """For fresh weights: sigmoid has a scale and a bias, softmax (CLIP alone) no bias."""
    scale: float | None = None
    """Where the scale begins, from 1 to 100. None: the size's own, 10 for the paper; of `start`: as it is."""
    bias: float | None = None
    """Where the bias begins. None: the size's own, -10 for the paper; of `start`: as it is."""
    image_size: int | None = None
    """Pixels a side, a multiple of the patch's, if other than the size's or the start's own: positions are resized."""
    context_length: int | None = None
    """Tokens a text, if other than the start's own. Longer: the first 20 positions are kept, the others stretched.
    Shorter: positions are cut."""

    def __post_init__(self) -> None:
        _require_types(self)
        if self.scale is not None and not 1 <= self.scale <= MAX_SCALE:
            raise ValueError(
                f"scale must be from 1 to {MAX_SCALE}, where training keeps it, not {self.scale}"
            )
        if self.bias is not None and not math.isfinite(self.bias):
            raise ValueError(f"bias must be finite, not {self.bias}")
        for name in ("image_size", "context_length"):
            if getattr(self, name) is not None:
                require_count(getattr(self, name), name, most=2**14)
        if self.start is None and self.context_length is not None:
            raise ValueError("context_length is the size's own; another one is for a `start`")


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Where samples come from and how they are prepared (docs/data.md)."""

    source: tuple[str, ...] = ()
    """Shards, tables, folders, scenes:simple, ... or streams (pipe:..., https://...); several are mixed."""
    weights: tuple[float, ...] | None = None
    """Share of each source. None: by their sizes."""
    captions: tuple[str, ...] | None = None
    """Endings in a tar or columns of a table. None: the usual ones."""
    image: str | None = None
    """The ending or column of the image. None: the usual one."""
    caption: CaptionChoice = "random"
    """Which of several captions: random, first, longest."""
    drop_words: float = 0.0
    """Share of the captions that lose some of their tokens, none to three quarters of them, at random: then a masked
    twin that lost tokens (masking.how=drop) looks like any other caption."""
    augment: bool = True
    """False: pictures as for evaluation."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    workers: int = 4
    """Processes that read ahead; 0: none. Another number gives the same batches."""
    window: int = 16
    """Shards, or other chunks of files, that are shuffled together."""
    bad_limit: float = 0.1
    """Share of bad samples from which on training stops."""
    max_pixels: int = MAX_PIXELS
    """Larger pictures are bad samples."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_choice(self.caption, get_args(CaptionChoice), "caption")
        if self.workers != 0:
            require_count(self.workers, "workers", most=1024)
        require_count(self.window, "window")
        _require_share(self.bad_limit, "bad_limit")
        _require_share(self.drop_words, "drop_words")
        if self.weights is not None and len(self.weights) != len(self.source):
            raise ValueError(f"there are {len(self.weights)} weights for {len(self.source)} sources")


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Which samples get a masked twin, and what the twin loses. The defaults are the paper's."""

    images: float = 0.125
    """Share of the images of a batch that get a twin; at least one does."""
    texts: float = 0.125
    """Share of the texts that do. The smaller of both sets is part of the larger."""
    patches: float = 0.75
    """Share of an image's patches that a twin loses."""
    tokens: float = 0.75
    """Share of a text's ordinary tokens that a twin loses."""
    how: Literal["mask", "drop", "general"] = "mask"
    """A lost token becomes the mask token, or is left out. general: nothing is masked, the twin of a text is a more
    general caption that the data brings along (scenes:...,general=true); a text without one has no twin."""

    def __post_init__(self) -> None:
        _require_types(self)
        for name in ("images", "texts", "patches", "tokens"):
            _require_share(getattr(self, name), name)
        if self.patches == 1 or self.tokens == 0:
            raise ValueError(
                f"a twin sees at least one patch and loses at least one token: patches {self.patches} must be below 1, "
                f"tokens {self.tokens} above 0"
            )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A first part of training with another objective, or on other data."""

    samples: int
    """Samples until the next stage begins."""
    objective: Objective = field(default_factory=Objective)
    source: tuple[str, ...] = ()
    """Empty: the data of the run."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.samples, "samples", most=2**50)


@dataclass(frozen=True, kw_only=True)
class OptimiserChoice:
    """AdamW and its schedule. The defaults are the paper's."""

    kind: Literal["adamw", "adamp"] = "adamw"
    lr: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-6
    weight_decay: float = 0.2
    """Not on biases, norms, gains, single tokens, scale and bias: not on what has fewer than two axes."""
    warmup: int = 10_000
    """Steps in which the rate rises from 0, linearly."""
    schedule: Literal["cosine", "constant"] = "cosine"
    final: float = 0.0
    """The last rate of the cosine, as a share of `lr`."""
    clip_norm: float | None = None
    """Longest gradient; a longer one is scaled down to it. None: as long as it is."""
    temperature_rate: float = 1.0
    """Rate of scale and bias, as a multiple of the others'."""
    layer_decay: float = 1.0
    """The rate of each block as a multiple of the next one's above it; heads have the full rate."""
    frozen: tuple[str, ...] = ()
    """Beginnings of the names of parameters that don't learn: image locks the image tower (LiT)."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights, which is then evaluated and exported. None: none."""

    def __post_init__(self) -> None:
        _require_types(self)
        _require_positive(self.lr, "lr")
        _require_positive(self.eps, "eps")
        _require_positive(self.temperature_rate, "temperature_rate")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers from 0 to below 1, not {self.betas}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0, not {self.weight_decay}")
        if self.warmup != 0:
            require_count(self.warmup, "warmup", most=2**40)
        _require_share(self.final, "final")
        if self.clip_norm is not None:
            _require_positive(self.clip_norm, "clip_norm")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay must be above 0 and at most 1, not {self.layer_decay}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must lie between 0 and 1, not {self.ema}")


@dataclass(frozen=True, kw_only=True)
class ParallelChoice:
    """How the same mathematics is laid out on processes and in memory."""

    strategy: Strategy = "ddp"
    """Of several ranks: ddp, a copy of the model on each; fsdp, sharded weights (FSDP2)."""
    accumulate: int = 1
    """Parts into which a rank's share of the batch is cut, to fit into memory. The loss still spans the whole batch."""
    precision: Precision = "float32"
    """bfloat16: products in bfloat16, weights and their gradients in float32. float64: for checks."""
    activation_checkpointing: bool = False
    """Recompute blocks in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """torch.compile of the blocks; needs a C++ compiler."""
    device: str | None = None
    """None: CUDA if there is one, else the CPU."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.accumulate, "accumulate", most=2**16)


@dataclass(frozen=True, kw_only=True)
class CheckpointChoice:
    """When the state of training is saved; it is always saved at the end, and on SIGTERM."""

    steps: int | None = None
    """Every so many steps. None: by time only."""
    minutes: float | None = 15.0
    """After so many minutes. None: by steps only."""
    keep: int = 3
    """How many of the last ones stay."""
    best: str | None = "held_out/r1"
    """The metric by which the best model is kept, as a folder `best`, if there is held-out data. None: none is."""
    best_is: Literal["largest", "smallest"] = "largest"

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.keep, "keep", most=10_000)
        if self.best is not None:
            require_choice(self.best, HELD_OUT, "best")
        if self.steps is not None:
            require_count(self.steps, "steps", most=2**40)
        if self.minutes is not None:
            _require_positive(self.minutes, "minutes")


@dataclass(frozen=True, kw_only=True)
class Care:
    """What is done about numbers that go wrong."""

    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is no finite number: stop, or leave the step out. Neither changes the weights."""
    most_skips: int = 10
    """Steps that may be left out in all."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.most_skips, "most_skips")


@dataclass(frozen=True, kw_only=True)
class LogChoice:
    """What is written and shown."""

    every: int = 10
    """Steps from one line of metrics to the next."""
    display: Display = "auto"
    """auto: a live display if stderr is a terminal, else plain lines."""
    tensorboard: bool | None = None
    """Events in the run folder. None: if tensorboard is installed (extra logging)."""
    wandb: str | None = None
    """A project of Weights & Biases to log to (extra logging)."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.every, "every", most=2**40)


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A small check of retrieval and uncertainty on data that is not trained on."""

    source: str | None = None
    """Shards, a table, scenes:simple,seed=1, ... None: no check."""
    samples: int = 1000
    """The first so many."""
    every: int = 1000
    """Steps from one check to the next; there is one at the end, too."""

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.samples, "samples", most=100_000)
        require_count(self.every, "every", most=2**40)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A run. `samples` and `batch` are over all ranks."""

    out: str = "runs/train"
    """Folder of the run."""
    samples: int = 1_280_000_000
    """Samples seen in all."""
    batch: int = 16_384
    """Samples of a step, over all ranks."""
    seed: int = 0
    """Of fresh weights, of the order of the data, of augmentation and masking."""
    model: ModelChoice = field(default_factory=ModelChoice)
    data: DataChoice = field(default_factory=DataChoice)
    objective: Objective = field(default_factory=Objective)
    before: tuple[Stage, ...] = ()
    """Stages that come first; the objective and data of the run follow for the rest of its samples."""
    masking: Masking = field(default_factory=Masking)
    optimiser: OptimiserChoice = field(default_factory=OptimiserChoice)
    parallel: ParallelChoice = field(default_factory=ParallelChoice)
    checkpoint: CheckpointChoice = field(default_factory=CheckpointChoice)
    care: Care = field(default_factory=Care)
    log: LogChoice = field(default_factory=LogChoice)
    held_out: HeldOut = field(default_factory=HeldOut)

    def __post_init__(self) -> None:
        _require_types(self)
        require_count(self.samples, "samples", most=2**50)
        require_count(self.batch, "batch")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be a whole number from 0 to 2^63, not {self.seed!r}")
        if self.samples < self.batch:
            raise ValueError(f"{self.samples} samples are not one batch of {self.batch}")
        if self.parallel.accumulate > self.batch:
            raise ValueError(
                f"parallel.accumulate {self.parallel.accumulate} would cut a batch of {self.batch} into more parts "
                "than it has samples; make it smaller"
            )
        if sum(self.stage_steps[:-1]) >= self.steps:
            raise ValueError(
                f"the stages before have {sum(stage.samples for stage in self.before):,} samples; nothing of the run's "
                f"{self.samples:,} is left for its own objective"
            )
        if PurePath(self.out) == PurePath("."):
            raise ValueError("out must name a folder of the run's own")

    @property
    def steps(self) -> int:
        """Of the whole run; samples that don't fill a batch are not seen."""
        return self.samples // self.batch

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All of them, the run's own last."""
        rest = max(1, self.samples - sum(stage.samples for stage in self.before))
        return (*self.before, Stage(samples=rest, objective=self.objective, source=self.data.source))

    @property
    def stage_steps(self) -> tuple[int, ...]:
        """Steps of each stage: each ends at the full batch nearest to its last sample."""
        ends, seen = [0], 0
        for stage in self.before:
            seen += stage.samples
            ends.append(max(ends[-1] + 1, round(seen / self.batch)))
        ends.append(self.steps)
        return tuple(b - a for a, b in pairwise(ends))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The inverse of `to_dict`; a sentence for what is missing, unknown or impossible."""
        return build(cls, values, "config")  # type: ignore[no-any-return]


def _require_types(config: Any) -> None:
    """Each field holds what its type says: a recipe is a file that no type checker may have seen."""
    require_literals(config)
    for name, hint in get_type_hints(type(config)).items():
        value, kinds = getattr(config, name), alternatives(hint)
        if any(_is_a(value, kind) for kind in kinds):
            continue
        advice = f": write ({value!r},)" if isinstance(value, str) and tuple[str, ...] in kinds else ""
        raise ValueError(f"{name} must be {' or '.join(map(_called, kinds))}, not {value!r}{advice}")


def _is_a(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return True  # which of them, require_literals has seen
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is_a(part, get_args(kind)[0]) for part in value)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)


def _called(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"a tuple of {_called(get_args(kind)[0]).removeprefix('a ')}s"
    names = {
        str: "a string",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        NoneType: "None",
    }
    return names.get(kind) or f"a {kind.__name__}"


def _require_share(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a share from 0 to 1, not {value!r}")


def _require_positive(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value!r}")
