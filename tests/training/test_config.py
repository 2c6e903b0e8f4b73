import json
from dataclasses import replace
from pathlib import Path

import pytest

from prolip.losses.objective import Objective
from prolip.preprocessing.augmentation import Augmentation
from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    HeldOutConfig,
    LogConfig,
    MaskingConfig,
    ModelSpec,
    NonFinitePolicy,
    OptimizerConfig,
    ParallelConfig,
    Stage,
    TrainConfig,
)


def test_the_defaults_are_the_papers():
    config = TrainConfig()
    assert (config.samples, config.batch_size, config.steps) == (1_280_000_000, 16_384, 78_125)
    optimizer = config.optimizer
    assert (optimizer.lr, optimizer.betas, optimizer.eps, optimizer.weight_decay) == (
        5e-4,
        (0.9, 0.95),
        1e-6,
        0.2,
    )
    assert (
        optimizer.warmup_steps,
        optimizer.schedule,
        optimizer.final_lr_fraction,
        optimizer.grad_clip_norm,
    ) == (
        10_000,
        "cosine",
        0,
        None,
    )
    assert (config.masking.image_fraction, config.masking.text_fraction) == (0.125, 0.125)
    assert (config.masking.patch_mask_ratio, config.masking.token_mask_ratio, config.masking.method) == (
        0.75,
        0.75,
        "mask",
    )
    assert config.objective == Objective()


def test_there_and_back_through_json():
    config = TrainConfig(
        initial_stages=(Stage(samples=100, objective=Objective(ppcl=0, clip=1), source=("a", "b")),),
        data=DataConfig(source=("x",), weights=(1.0,), augmentation=Augmentation(scale=(0.5, 1.0))),
        optimizer=OptimizerConfig(frozen=("image",), ema_decay=0.99),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampels": 3}, "config has unknown keys"),
        ({"optimizer": {"lr": 1e-3, "momentum": 1}}, "config.optimizer has unknown keys"),
        (
            {"initial_stages": [{"samples": 5, "objektive": {}}]},
            r"config.initial_stages\[0\] has unknown keys",
        ),
        ({"optimizer": {"lr": -1}}, "config.optimizer: lr must be positive"),
        ({"data": 3}, "config.data must be an object"),
    ],
)
def test_what_json_may_bring_is_named_by_its_place(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_dict(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(samples=10, batch_size=11), "batch_size, 11, not 10"),
        (lambda: TrainConfig(seed=-1), "seed"),
        (lambda: TrainConfig(seed=True), "seed"),
        (lambda: TrainConfig(out="."), "out must name a folder"),
        (
            lambda: TrainConfig(samples=100, batch_size=10, initial_stages=(Stage(samples=100),)),
            "initial_stages have 100",
        ),
        (lambda: TrainConfig(out=Path("x")), r"out must be a string, not PosixPath\('x'\)"),
        (lambda: TrainConfig(model="nano"), "model must be a ModelSpec, not 'nano'"),
        (lambda: TrainConfig(initial_stages=Stage(samples=3)), "initial_stages must be a tuple of Stages"),
        (
            lambda: TrainConfig(samples=8, batch_size=4, parallel=ParallelConfig(accumulation_steps=5)),
            "accumulation_steps 5 .*batch_size 4",
        ),
        (lambda: ModelSpec(init_scale=0.5), "scale must be from 1 to 100"),
        (lambda: ModelSpec(init_scale=100.5), "scale must be from 1 to 100"),
        (lambda: ModelSpec(init_scale="a"), "scale must be a number or None, not 'a'"),
        (lambda: ModelSpec(init_scale=True), "scale must be a number or None, not True"),
        (lambda: ModelSpec(init_logit_bias=float("nan")), "bias must be finite"),
        (
            lambda: DataConfig(source="x.tar"),
            r"source must be a tuple of strings, not 'x.tar': write \('x.tar',\)",
        ),
        (lambda: DataConfig(source=(1,)), r"source must be a tuple of strings, not \(1,\)"),
        (lambda: DataConfig(captions="txt"), "captions must be a tuple of strings or None, not 'txt'"),
        (
            lambda: DataConfig(source=("a",), weights="1"),
            "weights must be a tuple of numbers or None, not '1'",
        ),
        (lambda: Stage(samples=1, source="x"), "source must be a tuple of strings"),
        (lambda: OptimizerConfig(frozen="image"), "frozen must be a tuple of strings"),
        (lambda: OptimizerConfig(lr="fast"), "lr must be a number"),
        (lambda: LogConfig(tensorboard="yes"), "tensorboard must be true or false or None"),
        (lambda: ModelSpec(uncertainty="token_mask_ratio"), "uncertainty"),
        (lambda: ModelSpec(context_length=32), "context_length"),
        (lambda: DataConfig(source=("a",), weights=(1.0, 2.0)), "weights .* 2 for 1 source"),
        (lambda: DataConfig(caption_choice="shortest"), "caption"),
        (lambda: DataConfig(workers=-1), "workers"),
        (lambda: DataConfig(max_bad_fraction=2), "max_bad_fraction"),
        (lambda: DataConfig(text_crops=1.5), "text_crops"),
        (lambda: DataConfig(image_crops=-0.1), "image_crops"),
        (lambda: DataConfig(image_masks=float("nan")), "image_masks"),
        (lambda: DataConfig(image_crops=0.6, image_masks=0.6), "their sum must be at most 1, not 0.6"),
        (lambda: MaskingConfig(token_mask_ratio=1.5), "token_mask_ratio"),
        (lambda: MaskingConfig(method="hide"), "method"),
        (lambda: MaskingConfig(patch_mask_ratio=1.0), "keeps at least one patch"),
        (lambda: MaskingConfig(token_mask_ratio=0.0), "loses at least one token"),
        (lambda: Stage(samples=0), "samples"),
        (lambda: OptimizerConfig(betas=(0.9, 1.0)), "betas"),
        (lambda: OptimizerConfig(layer_decay=1.5), "layer_decay"),
        (lambda: OptimizerConfig(ema_decay=1.0), "ema"),
        (lambda: OptimizerConfig(warmup_steps=-1), "warmup"),
        (lambda: OptimizerConfig(grad_clip_norm=0.0), "clip_norm"),
        (lambda: ParallelConfig(accumulation_steps=0), "accumulation_steps"),
        (lambda: ParallelConfig(compile=1), "compile must be true or false"),
        (lambda: CheckpointConfig(every_minutes=0), "minutes"),
        (lambda: CheckpointConfig(best_metric="held_out/r2"), "held_out/r2"),
        (lambda: LogConfig(every_steps=0), "every"),
        (lambda: HeldOutConfig(every_steps=0), "every"),
        (lambda: HeldOutConfig(samples=1), "samples must be at least 2, not 1"),
    ],
)
def test_impossible_values_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_ends_of_ranges_are_possible():
    assert [ModelSpec(init_scale=scale).init_scale for scale in (1, 100.0)] == [1, 100.0]
    assert (
        TrainConfig(
            samples=8, batch_size=4, parallel=ParallelConfig(accumulation_steps=4)
        ).parallel.accumulation_steps
        == 4
    )


def test_stages_end_at_the_batch_nearest_to_their_last_sample():
    config = TrainConfig(samples=100, batch_size=10, initial_stages=(Stage(samples=34), Stage(samples=22)))
    assert config.stage_steps == (3, 3, 4)
    assert [stage.samples for stage in config.stages] == [34, 22, 44]
    assert sum(config.stage_steps) == config.steps == 10
    assert replace(config, initial_stages=()).stage_steps == (10,)


def test_a_short_stage_has_at_least_one_step():
    assert TrainConfig(samples=100, batch_size=10, initial_stages=(Stage(samples=1),)).stage_steps == (1, 9)


def test_the_other_defaults():
    choice = CheckpointConfig()
    assert (choice.every_steps, choice.every_minutes, choice.keep_last, choice.best_metric, choice.best_mode) == (
        None, 15.0, 3, "held_out/r1", "max",
    )  # fmt: skip
    assert (NonFinitePolicy().action, NonFinitePolicy().max_skipped_steps) == ("stop", 10)
    assert TrainConfig(samples=8, batch_size=8).steps == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimizerConfig(layer_decay=0.0), "layer_decay"),
        (lambda: TrainConfig(out="./"), "out must name a folder"),
    ],
)
def test_impossible(make, message):
    with pytest.raises(ValueError, match=message):
        make()
