"""Distillation: width heads that learn the pool perplexity of finished means, which stay as they are."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import torch

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders
from prolip.adaptation.heads import make_train_config
from prolip.adaptation.pool_teacher import Blend, PoolTeacher, add_blends, choose_teacher
from prolip.adaptation.run_folder import train_or_continue
from prolip.adaptation.sizes import TrainingSizes
from prolip.adaptation.targets import write_held_out_targets, write_train_targets
from prolip.choices import WidthTeacher
from prolip.data.feature_pairs import FeaturePairs
from prolip.files import atomic_write_folder, write_json
from prolip.losses.objective import INITIAL_TEMPERATURES, Objective
from prolip.model.config import ModelConfig
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig, HeadConfig
from prolip.model.frozen_tower import FeatureMap, FrozenTower
from prolip.model.prolip import ProLIP
from prolip.training.config import ModelSpec, TrainConfig

WIDTH_DROPOUT = 0.1
"""Widths that regress on targets overfit less than those that learn from pairs."""
WIDTH_HIDDEN = 256
LR_FACTOR = 3.0
"""A regression on targets without noise bears a larger learning rate than pairs do."""
log = logging.getLogger("prolip.adaptation")


class Pairs(NamedTuple):
    """Feature pairs that are trained on, and those that are held out."""

    train: FeaturePairs
    held_out: FeaturePairs


def distill_widths(
    base: ProLIP, pairs: Pairs, folder: Path, sizes: TrainingSizes, config: AdaptConfig
) -> ProLIP:
    """Give a model widths that learn from a pool. A stopped run is continued.

    Args:
        base: Model with frozen towers and finished means, in eval mode; its widths are read by the teacher both only.
        pairs: Feature pairs as its towers read them.
        folder: Folder for targets, training and the teacher.
        sizes: Batch size and epochs.
        config: Teacher, views, learning rate, patience, k.

    Returns:
        The model, without its encoders: means of the base; with the teacher both also its scale and bias, and widths of
        about the same mean and spread, so that matches stay what they are but for small changes.
    """
    teacher = choose_teacher(base, *pairs, config.pool_factor, config.seed)
    log.info(
        "widths learn from a pool of %d items, k %g for images, %g for texts",
        teacher.size, teacher.image_k, teacher.text_k,
    )  # fmt: skip
    if config.width_teacher == "both":
        teacher = add_blends(teacher, base, *pairs, config.pool_weight)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "teacher.json", asdict(teacher))
    targets = Pairs(
        write_train_targets(folder / "pairs" / "train", base, pairs.train, teacher),
        write_held_out_targets(folder / "pairs" / "held_out", base, (pairs.train, pairs.held_out), teacher),
    )
    initial = make_width_model(base, config)
    _init_widths(initial, targets.train)
    atomic_write_folder(folder / "initial", initial.save_pretrained)
    trained = train_or_continue(make_distillation_config(folder, sizes, targets, base, config))
    return _restore_widths(base, trained, teacher, config) if config.width_teacher == "both" else trained


def _restore_widths(base: ProLIP, trained: ProLIP, teacher: PoolTeacher, config: AdaptConfig) -> ProLIP:
    """A model as the base, with the widths of one that was trained on blended, standardized targets."""
    model = make_width_model(base, config, "both")
    for new, old, blend in zip(
        _get_towers(model), _get_towers(trained), (teacher.image_blend, teacher.text_blend), strict=True
    ):
        assert blend is not None
        new.log_var.load_state_dict(old.log_var.state_dict())
        rescale_widths(new, blend)
    return model.eval()


@torch.no_grad()
def rescale_widths(tower: FrozenTower, blend: Blend) -> None:
    """Make ln uncertainty `blend.restore` of what it was, in the last layer of the widths.

    Args:
        tower: Changed in place.
        blend: The units that its widths were trained in.
    """
    output, log_dim = tower.log_var.output, math.log(tower.embed_dim)
    output.weight.mul_(blend.width_std)
    output.bias.copy_(blend.restore(output.bias + log_dim) - log_dim)


def make_finished_model(model: ProLIP, encoders: Encoders, maps: tuple[FeatureMap, FeatureMap]) -> ProLIP:
    """Put a finished model's towers behind heads whose means are the towers' outputs.

    Args:
        model: The finished model: CLIP, SigLIP, ProLIP.
        encoders: Its towers.
        maps: Fitted feature maps, for widths.

    Returns:
        A model with the same means, and logit scale and bias; its widths are not trained, and it reads them if the
        finished model reads its own.
    """
    reads_variances = not model.config.deterministic and model.config.match_reads_variances
    heads = [
        HeadConfig(
            components=fitted.components.shape[1],
            means="encoder",
            teacher="likelihood" if reads_variances else "pool",
            hidden=0,
        )
        for fitted in maps
    ]
    is_softmax = model.config.contrastive_loss == "softmax"
    config = ModelConfig(
        embed_dim=model.config.embed_dim,
        image=FrozenImageConfig(
            preprocessing=encoders.image.preprocessing, encoder=encoders.image.config, head=heads[0]
        ),
        text=FrozenTextConfig(
            tokenizer=encoders.text.tokenizer.config, encoder=encoders.text.config, head=heads[1]
        ),
        contrastive_loss="softmax" if is_softmax else "sigmoid",
    )
    result = ProLIP(config, encoders.text.tokenizer).init_weights(torch.Generator().manual_seed(0))
    for tower, fitted in zip(_get_towers(result), maps, strict=True):
        tower.feature_map.load_state_dict(fitted.state_dict())
    _copy_temperature(model, result)
    return result.set_encoders(encoders.image, encoders.text).eval()


def make_width_model(base: ProLIP, config: AdaptConfig, teacher: WidthTeacher = "pool") -> ProLIP:
    """A copy of a model with frozen towers whose widths are new.

    Args:
        base: The model.
        config: Kind of widths, seed.
        teacher: pool: matches of the copy read means only. both: they are those of the base.

    Returns:
        The copy, without encoders.
    """
    image, text = (tower.config for tower in _get_towers(base))
    assert isinstance(image, FrozenImageConfig)
    assert isinstance(text, FrozenTextConfig)
    keeps_loss = teacher == "both" or base.config.contrastive_loss == "softmax"
    model_config = replace(
        base.config,
        image=replace(image, head=_make_width_head(image.head, config, teacher)),
        text=replace(text, head=_make_width_head(text.head, config, teacher)),
        contrastive_loss=base.config.contrastive_loss if keeps_loss else "sigmoid",
    )
    model = ProLIP(model_config, base.tokenizer)
    model.init_weights(torch.Generator().manual_seed(config.seed))
    for new, old in zip(_get_towers(model), _get_towers(base), strict=True):
        kept = {name: value for name, value in old.state_dict().items() if not name.startswith("log_var.")}
        new.load_state_dict(kept, strict=False)
    _copy_temperature(base, model)
    return model


def _make_width_head(head: HeadConfig | None, config: AdaptConfig, teacher: WidthTeacher) -> HeadConfig:
    """The config of a head whose widths learn from a pool."""
    assert head is not None
    width_hidden = 0 if config.linear_widths else WIDTH_HIDDEN
    return replace(head, teacher=teacher, width_hidden=width_hidden, dropout=WIDTH_DROPOUT)


def make_distillation_config(
    folder: Path, sizes: TrainingSizes, targets: Pairs, base: ProLIP, config: AdaptConfig
) -> TrainConfig:
    """Make the config of the training of widths: all else is frozen.

    A model whose logits read variances until now needs a new scale and bias for means alone: SigLIP's loss fits these
    two, since means are frozen.

    Args:
        folder: Folder with `initial`; the run becomes its subfolder `training`.
        sizes: Batch size and epochs.
        targets: Pairs with targets.
        base: Whose means are finished.
        config: Views, learning rate, patience.

    Returns:
        The config.
    """
    common = make_train_config(folder, sizes, len(targets.train), config)
    heads = (tower.config.head for tower in _get_towers(base))
    has_projections = any(head is not None and head.means == "learned" for head in heads)
    frozen = ["image.mean", "text.mean"] if has_projections else []
    needs_temperature = _needs_temperature(base) and config.width_teacher == "pool"
    if not needs_temperature:
        frozen += ["logit_scale"] + (["logit_bias"] if base.logit_bias is not None else [])
    return replace(
        common,
        model=ModelSpec(pretrained=str(folder / "initial"), isotropic=True),
        objective=Objective(
            ppcl=0.0, siglip=float(needs_temperature), distillation=1.0, inclusion=0.0, masked=0.0, vib=0.0
        ),
        optimizer=replace(common.optimizer, lr=LR_FACTOR * config.lr, frozen=tuple(frozen)),
    )


def _needs_temperature(base: ProLIP) -> bool:
    """Whether scale and bias must be fitted anew, because the logits of the base read variances."""
    config = base.config
    return config.contrastive_loss != "softmax" and config.match_reads_variances


@torch.no_grad()
def _copy_temperature(source: ProLIP, target: ProLIP) -> None:
    """Copy logit scale and bias; where only the source's are a likelihood's, set the initial ones of SigLIP."""
    if source.config.contrastive_loss == "likelihood" != target.config.contrastive_loss:
        scale, bias = INITIAL_TEMPERATURES["siglip"]
        target.logit_scale.fill_(math.log(scale))
        assert target.logit_bias is not None
        target.logit_bias.fill_(bias)
        return
    target.logit_scale.copy_(source.logit_scale)
    if target.logit_bias is not None and source.logit_bias is not None:
        target.logit_bias.copy_(source.logit_bias)


@torch.no_grad()
def _init_widths(model: ProLIP, targets: FeaturePairs) -> None:
    """Start each modality's widths at the mean of its targets."""
    for tower, values in zip(_get_towers(model), (targets.image_targets, targets.text_targets), strict=True):
        assert values is not None
        tower.log_var.output.bias.fill_(float(values[:, 0].mean()) - math.log(model.config.embed_dim))


def _get_towers(model: ProLIP) -> tuple[FrozenTower, FrozenTower]:
    """The frozen towers of a model."""
    assert isinstance(model.image, FrozenTower)
    assert isinstance(model.text, FrozenTower)
    return model.image, model.text
