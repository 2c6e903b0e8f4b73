"""Frozen configs of a run: made by recipes, overridden by the command line, saved with the run.

The docstring below each field is its help text. A value that is impossible raises a ValueError that names its field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal, get_args

from prolip.checks import require_choice, require_fraction, require_positive, require_positive_int
from prolip.configs import build_dataclass, require_field_types
from prolip.data.batch import CaptionChoice
from prolip.losses.contrastive import MAX_LOGIT_SCALE
from prolip.losses.objective import Objective
from prolip.measures.vmf import MAX_KAPPA
from prolip.model.config import ContrastiveLoss, Uncertainty
from prolip.preprocessing.augmentation import Augmentation
from prolip.preprocessing.images import MAX_PIXELS

Precision = Literal["float32", "bfloat16", "float64"]
Strategy = Literal["ddp", "fsdp"]
DisplayMode = Literal["auto", "rich", "plain", "none"]

HELD_OUT_METRICS = (
    "held_out/r1", "held_out/image_to_text_r1", "held_out/text_to_image_r1", "held_out/image_uncertainty",
    "held_out/text_uncertainty", "held_out/text_above_image",
)  # fmt: skip
"""Metrics of the held-out evaluation. The last three exist only for models with variances."""
MAX_SCALE = round(math.exp(MAX_LOGIT_SCALE))
"""Largest logit scale that training allows: 100."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The model to train: new weights of a named size, or pretrained weights."""

    size: str = "ViT-B-16-768"
    """A named size (docs/models.md). Ignored if `pretrained` is set."""
    pretrained: str | None = None
    """A folder or hub id to fine-tune. CLIP and SigLIP are made probabilistic: `isotropic`, `contrastive_loss` (sigmoid
    or likelihood) and `init_log_var` apply to what they are given. None: new weights."""
    tokenizer: str | None = None
    """A folder, file or hub id with a tokenizer; "scenes"; or "train": a new one, from the captions of the training
    data, with a vocabulary that fits their number (./train is a folder). None: the tokenizer of `pretrained`."""
    uncertainty: Uncertainty = "token"
    """New weights only. Source of log-variances: token ([UNC]), multihead (PCME++), none (deterministic)."""
    isotropic: bool = False
    """One log-variance per sample instead of one per dimension. A pretrained model that has variances keeps its own."""
    contrastive_loss: ContrastiveLoss = "sigmoid"
    """sigmoid: logit scale and bias; softmax (CLIP alone, new weights only): logit scale without bias; likelihood:
    match probabilities are those of the vMF likelihood (docs/likelihood.md). A pretrained model that has variances
    keeps its own."""
    init_scale: float | None = None
    """Initial logit scale (not its logarithm), from 1 to 100. None: the size's default (10 in the paper), or the
    pretrained value. For contrastive_loss likelihood the initial concentration kappa; None: that at which equal means
    match with a probability of one half."""
    init_logit_bias: float | None = None
    """Initial logit bias. None: the size's default (-10 in the paper), or the pretrained value."""
    init_log_var: float | None = None
    """Initial log-variance of new heads. None: the size's default (-10 in the paper); with `isotropic` a trace of
    0.26 in any dimension."""
    image_size: int | None = None
    """Image height and width in pixels, a multiple of the patch size. None: that of the size or of `pretrained`.
    Another value resizes the position embeddings."""
    context_length: int | None = None
    """Tokens per text, for `pretrained` only. None: unchanged. Longer: the first 20 position embeddings stay, the
    others are interpolated. Shorter: position embeddings are truncated."""
    lora_rank: int | None = None
    """Rank of LoRA adapters on the linear layers of all blocks, for `pretrained` only: nothing else of the model is
    trained (extra lora). None: all parameters are trained."""
    lora_alpha: float | None = None
    """Adapters are scaled by lora_alpha / lora_rank. None: twice the rank."""

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        self._require_scale_in_range()
        self._require_valid_lora()
        if self.init_logit_bias is not None and not math.isfinite(self.init_logit_bias):
            raise ValueError(f"init_logit_bias must be finite, not {self.init_logit_bias}")
        if self.init_log_var is not None and not -40 <= self.init_log_var <= 10:
            raise ValueError(f"init_log_var must be from -40 to 10, not {self.init_log_var}")
        for name in ("image_size", "context_length"):
            if getattr(self, name) is not None:
                require_positive_int(getattr(self, name), name, maximum=2**14)
        if self.pretrained is None and self.context_length is not None:
            raise ValueError("context_length can only be set with `pretrained`: a named size has its own")

    def _require_valid_lora(self) -> None:
        """Raise a ValueError if a setting of LoRA is impossible, or without what it belongs to."""
        if self.lora_rank is None:
            if self.lora_alpha is not None:
                raise ValueError("lora_alpha scales LoRA adapters: set lora_rank, too")
            return
        require_positive_int(self.lora_rank, "lora_rank", maximum=2**14)
        if self.lora_alpha is not None:
            require_positive(self.lora_alpha, "lora_alpha")
        if self.pretrained is None:
            raise ValueError("lora_rank needs weights to adapt: set pretrained")

    def _require_scale_in_range(self) -> None:
        """Raise a ValueError if training would clamp the initial scale; a concentration has a larger range."""
        if self.init_scale is None:
            return
        if self.contrastive_loss == "likelihood":
            if not 0 < self.init_scale <= MAX_KAPPA:
                raise ValueError(
                    f"init_scale, a concentration, must be above 0 and at most {MAX_KAPPA:g}, not {self.init_scale}"
                )
        elif not 1 <= self.init_scale <= MAX_SCALE:
            raise ValueError(
                f"init_scale must be from 1 to {MAX_SCALE}, the range that training clamps the scale to, "
                f"not {self.init_scale}"
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Training data and its preprocessing (docs/data.md)."""

    source: tuple[str, ...] = ()
    """Shards, tables, folders, scenes:simple, ... or streams (pipe:..., https://...). Several are mixed."""
    weights: tuple[float, ...] | None = None
    """Fraction of samples from each source. None: in proportion to their sizes."""
    captions: tuple[str, ...] | None = None
    """Extensions in a tar, or columns of a table, that hold captions. None: the format's default."""
    image: str | None = None
    """Extension or column that holds the image. None: the format's default."""
    caption_choice: CaptionChoice = "random"
    """Which caption of a sample that has several: random, first, longest."""
    token_dropout: float = 0.0
    """Fraction of captions that lose a random part, from none to three quarters, of their tokens. Masked views with
    dropped tokens (masking.method drop) then look like other captions."""
    text_crops: float = 0.0
    """Fraction of captions that are replaced by a text crop: a contiguous span of words, of log-uniform length."""
    image_crops: float = 0.0
    """Fraction of images that are replaced by a crop of 5 to 60 % of their area, before augmentation."""
    image_masks: float = 0.0
    """Fraction of images of which 5 to 60 % is shown: half of them lose a box, half keep random patches."""
    augment: bool = True
    """False: images are preprocessed as for evaluation."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    workers: int = 4
    """Worker processes that read ahead; 0: none. The number doesn't change the batches."""
    shuffle_window: int = 16
    """Number of shards, or chunks of other files, that are shuffled together."""
    max_bad_fraction: float = 0.1
    """Training stops if more than this fraction of the samples is bad."""
    max_pixels: int = MAX_PIXELS
    """Images with more pixels are bad samples."""

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        require_choice(self.caption_choice, get_args(CaptionChoice), "caption_choice")
        if self.workers != 0:
            require_positive_int(self.workers, "workers", maximum=1024)
        require_positive_int(self.shuffle_window, "shuffle_window")
        require_fraction(self.max_bad_fraction, "max_bad_fraction")
        for name in ("token_dropout", "text_crops", "image_crops", "image_masks"):
            require_fraction(getattr(self, name), name)
        if self.image_crops + self.image_masks > 1:
            raise ValueError(
                "image_crops and image_masks are fractions of the same images: their sum must be at most 1, not "
                f"{self.image_crops} + {self.image_masks}"
            )
        if self.weights is not None and len(self.weights) != len(self.source):
            raise ValueError(
                f"weights must have one number for each source: there are {len(self.weights)} for {len(self.source)} "
                "sources"
            )


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Which samples get a masked view, and what it loses. The defaults are the paper's."""

    image_fraction: float = 0.125
    """Fraction of a batch's images that get a masked view: at least one image does, unless it is 0."""
    text_fraction: float = 0.125
    """Fraction of a batch's texts that get one. The smaller set of samples is a subset of the larger."""
    patch_mask_ratio: float = 0.75
    """Fraction of an image's patches that its masked view loses."""
    token_mask_ratio: float = 0.75
    """Fraction of a text's ordinary tokens that its masked view loses."""
    method: Literal["mask", "drop", "crop", "general"] = "mask"
    """mask: a lost token becomes the mask token. drop: it is removed. crop: it is removed, and those that stay are a
    contiguous span. general: no token is lost; the masked view of a text is a more general caption from the data
    (scenes:...,general=true), and a text without one has no view."""

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        for name in ("image_fraction", "text_fraction", "patch_mask_ratio", "token_mask_ratio"):
            require_fraction(getattr(self, name), name)
        if self.patch_mask_ratio == 1 or self.token_mask_ratio == 0:
            raise ValueError(
                "a masked view keeps at least one patch and loses at least one token: patch_mask_ratio "
                f"{self.patch_mask_ratio} must be below 1, token_mask_ratio {self.token_mask_ratio} above 0"
            )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of training with its own objective and data."""

    samples: int
    """Samples seen in this stage."""
    objective: Objective = field(default_factory=Objective)
    source: tuple[str, ...] = ()
    """Empty: the data of the run."""

    def __post_init__(self) -> None:
        require_field_types(self)
        require_positive_int(self.samples, "samples", maximum=2**50)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW and its learning rate schedule. The defaults are the paper's."""

    name: Literal["adamw", "adamp"] = "adamw"
    lr: float = 5e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-6
    weight_decay: float = 0.2
    """Not applied to parameters with fewer than two axes: biases, norms, single tokens, logit scale and bias."""
    warmup_steps: int = 10_000
    """Steps in which the learning rate rises linearly from 0."""
    schedule: Literal["cosine", "constant"] = "cosine"
    final_lr_fraction: float = 0.0
    """Last learning rate of the cosine schedule, as a fraction of `lr`."""
    grad_clip_norm: float | None = None
    """Maximum gradient norm; a larger gradient is scaled down to it. None: no clipping."""
    temperature_lr_multiplier: float = 1.0
    """Learning rate of logit scale and bias, as a multiple of the others'."""
    auxiliary_lr_multiplier: float | None = None
    """The same for loss terms whose scale and bias are not the model's, such as a softmax before the likelihood, except
    one_sided. None: as temperature_lr_multiplier."""
    layer_decay: float = 1.0
    """Learning rate of each block as a multiple of that of the block above it. Heads have the full rate."""
    frozen: tuple[str, ...] = ()
    """Prefixes of the names of parameters that aren't trained: image freezes the image tower (LiT)."""
    ema_decay: float | None = None
    """Decay of an exponential moving average of the weights, which is then evaluated and exported. None: no average."""

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        require_positive(self.lr, "lr")
        require_positive(self.eps, "eps")
        require_positive(self.temperature_lr_multiplier, "temperature_lr_multiplier")
        if self.auxiliary_lr_multiplier is not None:
            require_positive(self.auxiliary_lr_multiplier, "auxiliary_lr_multiplier")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers from 0 to below 1, not {self.betas}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0, not {self.weight_decay}")
        if self.warmup_steps != 0:
            require_positive_int(self.warmup_steps, "warmup_steps", maximum=2**40)
        require_fraction(self.final_lr_fraction, "final_lr_fraction")
        if self.grad_clip_norm is not None:
            require_positive(self.grad_clip_norm, "grad_clip_norm")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay must be above 0 and at most 1, not {self.layer_decay}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay must lie between 0 and 1, not {self.ema_decay}")


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """How the computation is distributed over processes and fitted into memory. It doesn't change the mathematics."""

    strategy: Strategy = "ddp"
    """For several ranks: ddp, a copy of the model on each; fsdp, sharded weights (FSDP2)."""
    accumulation_steps: int = 1
    """Micro-batches into which a rank's part of the batch is split, to save memory. The loss spans the whole batch."""
    precision: Precision = "float32"
    """bfloat16: autocast, with weights and gradients in float32. float64: for tests."""
    activation_checkpointing: bool = False
    """Recompute blocks in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """torch.compile of the blocks; needs a C++ compiler."""
    device: str | None = None
    """cpu, cuda or cuda:N. None: CUDA if available, else the CPU."""
    threads: int | None = None
    """Threads on the CPU. None: the fastest, measured."""

    def __post_init__(self) -> None:
        require_field_types(self)
        require_positive_int(self.accumulation_steps, "accumulation_steps", maximum=2**16)
        if self.threads is not None:
            require_positive_int(self.threads, "threads", maximum=4096)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are saved. One is always saved at the end, and on SIGTERM."""

    every_steps: int | None = None
    """Steps between checkpoints. None: by time only."""
    every_minutes: float | None = 15.0
    """Minutes between checkpoints. None: by steps only."""
    keep_last: int = 3
    """Number of checkpoints that are kept."""
    async_save: bool = True
    """Write checkpoints in the background, from a copy in memory. False: training waits until they are written."""
    best_metric: str | None = "held_out/r1"
    """Metric by which the best model is saved in the folder `best`, if there is held-out data. None: it isn't saved."""
    best_mode: Literal["max", "min"] = "max"
    """Whether the best value of the metric is its largest or its smallest."""

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        require_positive_int(self.keep_last, "keep_last", maximum=10_000)
        if self.best_metric is not None:
            require_choice(self.best_metric, HELD_OUT_METRICS, "best_metric")
        if self.every_steps is not None:
            require_positive_int(self.every_steps, "every_steps", maximum=2**40)
        if self.every_minutes is not None:
            require_positive(self.every_minutes, "every_minutes")


@dataclass(frozen=True, kw_only=True)
class NonFinitePolicy:
    """What happens if a loss or gradient is NaN or infinite."""

    action: Literal["stop", "skip"] = "stop"
    """stop: training ends with an error. skip: the step is skipped. Neither changes the weights."""
    max_skipped_steps: int = 10
    """Steps of a run that may be skipped in total."""

    def __post_init__(self) -> None:
        require_field_types(self)
        require_positive_int(self.max_skipped_steps, "max_skipped_steps")


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Metrics and display."""

    every_steps: int = 10
    """Steps between lines of metrics."""
    display: DisplayMode = "auto"
    """auto: a live panel if stderr is a terminal, else plain lines."""
    tensorboard: bool | None = None
    """TensorBoard events in the run folder. None: if tensorboard is installed (extra logging)."""
    wandb_project: str | None = None
    """Weights & Biases project to log to (extra logging). None: no logging there."""

    def __post_init__(self) -> None:
        require_field_types(self)
        require_positive_int(self.every_steps, "every_steps", maximum=2**40)


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Evaluation of retrieval and uncertainty on held-out data during training."""

    source: str | None = None
    """Shards, a table, scenes:simple,seed=1, ... None: no evaluation."""
    samples: int = 1000
    """Number of samples that are read, from the first; at least 2."""
    every_steps: int = 1000
    """Steps between evaluations. There is one at the end, too."""
    width_patience: int | None = None
    """For heads on frozen encoders: successive evaluations after which widths stop, if earlier widths fit the held-out
    data better. Averages over the last steps are compared, and the best one is kept. None: widths are trained to the
    end."""
    at_start: bool = False
    """Evaluate before the first step, too: what fine-tuning starts from. The end of the run then says both."""
    reference: str | None = None
    """Data on which the model that fine-tuning starts from is good: pairs, or a folder of labeled images in the layout
    of DataComp's tasks. It is measured at the start and whenever held-out data is. None: it isn't."""
    max_reference_drop: float = 0.05
    """The end of a run says that zero-shot ability was lost if recall@1 (of a labeled set: accuracy) on the reference
    fell by more than this fraction."""

    def __post_init__(self) -> None:
        require_field_types(self)
        require_positive_int(self.samples, "samples", maximum=100_000)
        if self.samples < 2:
            raise ValueError(
                f"samples must be at least 2, not {self.samples}: retrieval needs a wrong caption besides the right one"
            )
        require_fraction(self.max_reference_drop, "max_reference_drop")
        if self.width_patience is not None:
            require_positive_int(self.width_patience, "width_patience")
        require_positive_int(self.every_steps, "every_steps", maximum=2**40)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run. `samples` and `batch_size` count samples over all ranks."""

    out: str = "runs/train"
    """Run folder."""
    samples: int = 1_280_000_000
    """Samples seen in total."""
    batch_size: int = 16_384
    """Samples per step, over all ranks."""
    seed: int = 0
    """Seed of new weights, data order, augmentation and masking."""
    model: ModelSpec = field(default_factory=ModelSpec)
    data: DataConfig = field(default_factory=DataConfig)
    objective: Objective = field(default_factory=Objective)
    initial_stages: tuple[Stage, ...] = ()
    """Stages that come first. The objective and data of the run apply to the rest of its samples."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    nonfinite: NonFinitePolicy = field(default_factory=NonFinitePolicy)
    log: LogConfig = field(default_factory=LogConfig)
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)

    def __post_init__(self) -> None:
        """Raise a ValueError that names the field if a value is impossible."""
        require_field_types(self)
        require_positive_int(self.samples, "samples", maximum=2**50)
        require_positive_int(self.batch_size, "batch_size")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, not {self.seed!r}")
        if self.samples < self.batch_size:
            raise ValueError(f"samples must be at least batch_size, {self.batch_size}, not {self.samples}")
        if self.parallel.accumulation_steps > self.batch_size:
            raise ValueError(
                f"parallel.accumulation_steps {self.parallel.accumulation_steps} is more than batch_size "
                f"{self.batch_size}: a micro-batch needs at least one sample"
            )
        if sum(self.stage_steps[:-1]) >= self.steps:
            raise ValueError(
                f"initial_stages have {sum(stage.samples for stage in self.initial_stages):,} samples: none of the "
                f"run's {self.samples:,} samples is left for its own objective. Reduce them, or raise samples"
            )
        if PurePath(self.out) == PurePath("."):
            raise ValueError("out must name a folder that belongs to the run alone, not the current folder")

    @property
    def steps(self) -> int:
        """Steps of the whole run. Samples that don't fill a batch are not seen."""
        return self.samples // self.batch_size

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages: the initial ones, then the run's own objective and data for the samples that they leave."""
        samples = self.samples - sum(stage.samples for stage in self.initial_stages)
        return (
            *self.initial_stages,
            Stage(samples=samples, objective=self.objective, source=self.data.source),
        )

    @property
    def stage_steps(self) -> tuple[int, ...]:
        """Number of steps of each of `stages`. A stage ends at the full batch that is nearest to its last sample."""
        ends, seen_samples = [0], 0  # steps done at the end of each stage; samples seen until then
        for stage in self.initial_stages:
            seen_samples += stage.samples
            ends.append(max(ends[-1] + 1, round(seen_samples / self.batch_size)))
        ends.append(self.steps)
        return tuple(end - start for start, end in pairwise(ends))

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Make a config from nested dicts, the inverse of `to_dict`.

        Args:
            values: Every key of the config; nested configs are mappings.

        Returns:
            The config.

        Raises:
            ValueError: A key is unknown or a value is impossible; the message names it.
        """
        return build_dataclass(cls, values, "config")  # type: ignore[no-any-return]
