"""Heads on frozen encoders: the untrained model, and the config of its training."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders
from prolip.adaptation.sizes import TrainingSizes
from prolip.data.feature_pairs import PREFIX
from prolip.losses.objective import Objective
from prolip.model.config import InitConfig, ModelConfig
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig, HeadConfig
from prolip.model.frozen_tower import FeatureMap, FrozenTower
from prolip.model.prolip import ProLIP
from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    HeldOutConfig,
    LogConfig,
    ModelSpec,
    OptimizerConfig,
    TrainConfig,
)

EVALUATIONS = 24
"""Held-out evaluations in a training."""
WIDTH_HIDDEN = 96
ONE_SIDED = 0.5
"""Weight of the one-sided likelihood. With it widths know the order of long captions better (docs/adapt.md)."""
SIGLIP = 0.5
"""Weight of SigLIP's loss, which shapes means beside the likelihood: with it they overfit less (docs/adapt.md)."""
AUXILIARY_LR_MULTIPLIER = 1.0
"""Of SigLIP's scale and bias: at a tenth of the rate of the model's own they stay near 10 and -10 in a short run. So a
matching pair has to agree closely, and others may agree a little, as graded judgements of people do."""


def make_initial_model(
    encoders: Encoders, maps: tuple[FeatureMap, FeatureMap], sizes: TrainingSizes, config: AdaptConfig
) -> ProLIP:
    """Make a model with untrained heads.

    Args:
        encoders: The frozen encoders.
        maps: Fitted feature maps of images and of texts.
        sizes: Hidden units and dropout.
        config: Dimensions, seed, kind of widths.

    Returns:
        The model, with its encoders.
    """
    image_head, text_head = (
        HeadConfig(
            components=fitted.components.shape[1], hidden=sizes.hidden, dropout=dropout,
            width_hidden=0 if config.linear_widths else WIDTH_HIDDEN,
        )
        for fitted, dropout in zip(maps, (sizes.image_dropout, sizes.text_dropout), strict=True)
    )  # fmt: skip
    init = InitConfig(logit_bias=-math.log(sizes.batch_size)).fit_to(
        config.dim, isotropic=True, contrastive_loss="likelihood"
    )
    model_config = ModelConfig(
        embed_dim=config.dim,
        image=FrozenImageConfig(
            preprocessing=encoders.image.preprocessing, encoder=encoders.image.config, head=image_head
        ),
        text=FrozenTextConfig(
            tokenizer=encoders.text.tokenizer.config, encoder=encoders.text.config, head=text_head
        ),
        contrastive_loss="likelihood",
        init=init,
    )
    model = ProLIP(model_config, encoders.text.tokenizer)
    model.init_weights(torch.Generator().manual_seed(config.seed))
    for tower, fitted in zip((model.image, model.text), maps, strict=True):
        assert isinstance(tower, FrozenTower)
        tower.feature_map.load_state_dict(fitted.state_dict())
    return model.set_encoders(encoders.image, encoders.text)


def make_train_config(out: Path, sizes: TrainingSizes, num_images: int, config: AdaptConfig) -> TrainConfig:
    """Make the config of the training of heads.

    Args:
        out: Folder with `initial`, the untrained model, and `pairs`; the run becomes its subfolder `training`.
        sizes: Batch size and epochs.
        num_images: Images that are trained on.
        config: Views, learning rate, patience.

    Returns:
        The config.
    """
    samples = sizes.count_samples(num_images)
    steps = samples // sizes.batch_size
    return TrainConfig(
        out=str(out / "training"),
        samples=samples,
        batch_size=sizes.batch_size,
        seed=config.seed,
        model=ModelSpec(pretrained=str(out / "initial"), isotropic=True, contrastive_loss="likelihood"),
        data=DataConfig(
            source=(f"{PREFIX}{out / 'pairs' / 'train'}",), workers=0,
            text_crops=config.text_crop_fraction if config.text_crops else 0.0,
            image_crops=config.image_view_fraction if config.image_views else 0.0,
        ),
        objective=Objective(
            ppcl=0.0, likelihood=1.0, one_sided=ONE_SIDED, siglip=SIGLIP, inclusion=0.0, masked=0.0, vib=0.0,
        ),
        optimizer=OptimizerConfig(
            lr=config.lr, betas=(0.9, 0.98), weight_decay=0.2, warmup_steps=min(50, max(1, steps // 10)),
            final_lr_fraction=0.02, grad_clip_norm=1.0, temperature_lr_multiplier=10.0,
            auxiliary_lr_multiplier=AUXILIARY_LR_MULTIPLIER,
        ),
        checkpoint=CheckpointConfig(keep_last=1, best_metric=None),
        log=LogConfig(every_steps=max(1, steps // 100)),
        held_out=HeldOutConfig(
            source=f"{PREFIX}{out / 'pairs' / 'held_out'}", samples=1000,
            every_steps=max(1, steps // EVALUATIONS), width_patience=config.width_patience,
        ),
    )  # fmt: skip
