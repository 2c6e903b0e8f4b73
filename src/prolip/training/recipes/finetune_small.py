"""Your own pictures: fine-tune a model on hundreds to some ten thousand pairs, on a CPU or one GPU.

    prolip train finetune-small --data.source pairs.csv
    prolip train finetune-small --data.source pairs.csv --model.lora-rank 8
    prolip train finetune-small --data.source photos --model.pretrained timm/ViT-B-16-SigLIP
    torchrun --nproc-per-node 2 -m prolip train finetune-small --data.source pairs.csv

The data is a CSV, a folder of images with captions, shards: whatever docs/data.md lists, but files. It starts from
scenes-tiny, which comes with the package, from any other model (--model.pretrained), or from new weights
(--model.pretrained None --model.size miniature --model.tokenizer train).

It chooses what you don't set, and the run says at its start what that is:

    held-out data    a tenth of the pairs, at most 1,000, by a hash of their content. Pairs with an image or a caption
                     in common are on the same side.
    batch size       the power of two nearest below an eighth of the pairs, from 16 to 256
    samples          30 epochs up to 500 pairs, fewer by the square root of their number for more, at least 3
    learning rate    5e-4 at the size of scenes-tiny, lower by the square root of the number of parameters; four
                     times as high for LoRA and for new weights
    warm-up          a tenth of the steps
    objective        the likelihood for a model that was trained with it, as scenes-tiny; else PPCL
    reference        for scenes-tiny: 500 scenes, which it ranks well. If recall on them falls, the end of the run says
                     so. For another start name what it is good at: --held-out.reference

These choices were measured with scenes-tiny on some hundred pictures (docs/own-data.md), not for large models.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

from prolip.data.feature_pairs import is_feature_address
from prolip.data.open import is_generated, is_stream
from prolip.data.splits import format_split
from prolip.losses.objective import Objective
from prolip.model.prolip import ProLIP
from prolip.model.sizes import SIZES, get_config
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.storage.addresses import redact_secrets
from prolip.training.config import (
    DataConfig,
    HeldOutConfig,
    LogConfig,
    MaskingConfig,
    ModelSpec,
    OptimizerConfig,
    TrainConfig,
)
from prolip.training.data_setup import open_source
from prolip.weights.load import open_model

START = "scenes-tiny"
SCENES = "scenes:simple,size=48,unseen=8,length=500,seed=1,complete=1,levels=0/0/0/1"
"""What scenes-tiny is good at: scenes with captions that say everything."""
HELD_OUT, MAX_HELD_OUT, MIN_PAIRS = 0.1, 1000, 32
"""Fraction of the pairs that is held out, at most how many, and the fewest pairs that are trained on."""
EPOCHS, MIN_EPOCHS = 30.0, 3.0
"""Epochs at 500 pairs, and the fewest."""
LR, START_PARAMETERS = 5e-4, 279_000
"""Learning rate of weights that were trained before, at this number of parameters."""
LORA, NEW = 4.0, 4.0
"""Learning rates of LoRA and of new weights, as multiples of it."""


def recipe() -> TrainConfig:
    """The run before it knows its data; its folder is runs/finetune-small."""
    return TrainConfig(
        out="runs/finetune-small",
        samples=30_000,
        batch_size=16,
        model=ModelSpec(pretrained=START),
        data=DataConfig(workers=1),
        masking=MaskingConfig(text_fraction=0.0),
        optimizer=OptimizerConfig(
            lr=LR, betas=(0.9, 0.98), weight_decay=0.05, warmup_steps=100, final_lr_fraction=0.02, grad_clip_norm=1.0
        ),
        log=LogConfig(every_steps=20),
        held_out=HeldOutConfig(at_start=True, samples=MAX_HELD_OUT, every_steps=100),
    )  # fmt: skip


def finish(config: TrainConfig, keys: Collection[str]) -> TrainConfig:
    """Choose what depends on the data and the start.

    Args:
        config: The recipe's config with the user's changes.
        keys: The keys that the user has set; they stay.

    Returns:
        The config of the run. Without data it stays as it is: training refuses it.
    """
    if not config.data.source:
        return config
    if "held_out.source" not in keys:
        config = _hold_out(config)
    num_pairs = sum(len(open_source(spec, config.data)) for spec in config.data.source if _is_own(spec))
    if num_pairs < MIN_PAIRS:
        raise ValueError(
            f"data.source has {num_pairs} pairs to train on; finetune-small needs at least {MIN_PAIRS}. "
            "For fewer, search or classify with a model as it is"
        )
    start = _inspect_start(config.model)
    config = _set(config, keys, "batch_size", choose_batch_size(num_pairs))
    samples = round(choose_epochs(num_pairs) * num_pairs / config.batch_size) * config.batch_size
    config = _set(config, keys, "samples", max(samples, config.batch_size))
    if not any(key.startswith("objective.") for key in keys):
        config = replace(config, objective=_choose_objective(start))
    optimizer = _choose_optimizer(config, start)
    for name in ("lr", "warmup_steps", "temperature_lr_multiplier"):
        config = _set(config, keys, f"optimizer.{name}", getattr(optimizer, name))
    config = _set(config, keys, "held_out.every_steps", max(1, config.steps // 10))
    config = _set(config, keys, "log.every_steps", max(1, config.steps // 50))
    reference = SCENES if config.model.pretrained == START else None
    return _set(config, keys, "held_out.reference", reference)


def choose_batch_size(num_pairs: int) -> int:
    """The power of two nearest below an eighth of the pairs, from 16 to 256.

    Args:
        num_pairs: Pairs that are trained on.
    """
    return int(min(256, max(16, 2 ** ((num_pairs // 8).bit_length() - 1))))


def choose_epochs(num_pairs: int) -> float:
    """EPOCHS at 500 pairs, inversely proportional to the square root of their number, at least MIN_EPOCHS.

    Args:
        num_pairs: Pairs that are trained on.
    """
    return max(MIN_EPOCHS, EPOCHS * min(1.0, math.sqrt(500 / num_pairs)))


def _hold_out(config: TrainConfig) -> TrainConfig:
    """Split the user's files into data to train on and held-out data; generated data beside them is not split.

    Raises:
        ValueError: The data is no file, or there are several files, which may have images in common.
    """
    own = [spec for spec in config.data.source if _is_own(spec)]
    advice = "Set --held-out.source to data of your own that isn't trained on"
    if len(own) != 1:
        raise ValueError(
            f"data.source names {len(own)} data sets of your own, and finetune-small holds a part of one out. {advice}"
        )
    (spec,) = own
    if is_stream(spec) or is_feature_address(spec):
        raise ValueError(
            f"data.source {redact_secrets(spec)} is no data on disk, which could be split. {advice}"
        )
    total = len(open_source(spec, config.data))
    fraction = min(HELD_OUT, MAX_HELD_OUT / max(1, total))
    train, held_out = (format_split(part, fraction, spec) for part in ("train", "held-out"))
    sources = tuple(train if source == spec else source for source in config.data.source)
    return replace(
        config,
        data=replace(config.data, source=sources),
        held_out=replace(config.held_out, source=held_out),
    )


def _is_own(spec: str) -> bool:
    """Whether data is the user's, not generated."""
    return not is_generated(spec)


class _Start(NamedTuple):
    """What the choices depend on: the size of the model, and the loss that it is trained with."""

    num_parameters: int
    has_likelihood: bool


def _inspect_start(spec: ModelSpec) -> _Start:
    """Find out the size and the loss of the model to start from.

    Raises:
        ValueError: It has frozen encoders, or can't be opened.
    """
    if spec.pretrained is None:
        if spec.size not in SIZES:
            raise ValueError(f"model.size: unknown size {spec.size!r}; the sizes are {', '.join(SIZES)}")
        vocabulary = TokenizerConfig(vocab_size=1000, context_length=64, pad_id=0)
        model = ProLIP(get_config(spec.size, vocabulary))  # without memory for its weights
    else:
        model = open_model(spec.pretrained, with_encoders=False).model
        if model.config.is_frozen:
            raise ValueError(
                f"model.pretrained: {spec.pretrained} has frozen encoders, on which `prolip adapt` trains heads. Start "
                "from a model with towers of its own"
            )
    is_new = spec.pretrained is None or model.config.deterministic
    loss = spec.contrastive_loss if is_new else model.config.contrastive_loss
    return _Start(sum(p.numel() for p in model.parameters()), loss == "likelihood")


def _choose_objective(start: _Start) -> Objective:
    """The terms of the variant likelihood of the miniature, or PPCL with the paper's weights."""
    if start.has_likelihood:
        return Objective(ppcl=0.0, likelihood=1.0, inclusion=1e-2, masked=1e-1, vib=1e-3, c=50.0, eps=-100.0)
    return Objective(ppcl=1.0, inclusion=1e-7, masked=1e-3, vib=1e-4, c=1000.0, eps=-20.0)


def _choose_optimizer(config: TrainConfig, start: _Start) -> OptimizerConfig:
    """The optimizer with the learning rate and the warm-up that fit the start and the length of the run."""
    scale = LORA if config.model.lora_rank is not None else NEW if config.model.pretrained is None else 1.0
    return replace(
        config.optimizer,
        lr=float(f"{scale * LR * math.sqrt(START_PARAMETERS / start.num_parameters):.2g}"),
        warmup_steps=max(1, config.steps // 10),
        temperature_lr_multiplier=10.0 if start.has_likelihood else 1.0,
    )


def _set(config: TrainConfig, keys: Collection[str], key: str, value: Any) -> TrainConfig:
    """The config with another value of a key, or with that of the user, who has set it."""
    if key in keys:
        return config
    section, _, name = key.rpartition(".")
    if not section:
        return replace(config, **{name: value})
    return replace(config, **{section: replace(getattr(config, section), **{name: value})})
