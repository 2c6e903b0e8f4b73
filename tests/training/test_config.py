import json
from dataclasses import replace
from pathlib import Path

import pytest

from prolip.losses.objective import Objective
from prolip.preprocessing.augmentation import Augmentation
from prolip.training.config import (
    Care,
    CheckpointChoice,
    DataChoice,
    HeldOut,
    LogChoice,
    Masking,
    ModelChoice,
    OptimiserChoice,
    ParallelChoice,
    Stage,
    TrainConfig,
)


def test_the_defaults_are_the_papers():
    config = TrainConfig()
    assert (config.samples, config.batch, config.steps) == (1_280_000_000, 16_384, 78_125)
    optimiser = config.optimiser
    assert (optimiser.lr, optimiser.betas, optimiser.eps, optimiser.weight_decay) == (
        5e-4,
        (0.9, 0.95),
        1e-6,
        0.2,
    )
    assert (optimiser.warmup, optimiser.schedule, optimiser.final, optimiser.clip_norm) == (
        10_000,
        "cosine",
        0,
        None,
    )
    assert (config.masking.images, config.masking.texts) == (0.125, 0.125)
    assert (config.masking.patches, config.masking.tokens, config.masking.how) == (0.75, 0.75, "mask")
    assert config.objective == Objective()


def test_there_and_back_through_json():
    config = TrainConfig(
        before=(Stage(samples=100, objective=Objective(ppcl=0, clip=1), source=("a", "b")),),
        data=DataChoice(source=("x",), weights=(1.0,), augmentation=Augmentation(scale=(0.5, 1.0))),
        optimiser=OptimiserChoice(frozen=("image",), ema=0.99),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampels": 3}, "config has unknown keys"),
        ({"optimiser": {"lr": 1e-3, "momentum": 1}}, "config.optimiser has unknown keys"),
        ({"before": [{"samples": 5, "objektive": {}}]}, r"config.before\[0\] has unknown keys"),
        ({"optimiser": {"lr": -1}}, "config.optimiser: lr must be positive"),
        ({"data": 3}, "config.data must be an object"),
    ],
)
def test_what_json_may_bring_is_named_by_its_place(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_dict(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(samples=10, batch=11), "not one batch"),
        (lambda: TrainConfig(seed=-1), "seed"),
        (lambda: TrainConfig(seed=True), "seed"),
        (lambda: TrainConfig(out="."), "folder of the run's own"),
        (lambda: TrainConfig(samples=100, batch=10, before=(Stage(samples=100),)), "nothing of the run"),
        (lambda: TrainConfig(out=Path("x")), r"out must be a string, not PosixPath\('x'\)"),
        (lambda: TrainConfig(model="nano"), "model must be a ModelChoice, not 'nano'"),
        (lambda: TrainConfig(before=Stage(samples=3)), "before must be a tuple of Stages"),
        (
            lambda: TrainConfig(samples=8, batch=4, parallel=ParallelChoice(accumulate=5)),
            "accumulate 5 .* batch of 4",
        ),
        (lambda: ModelChoice(scale=0.5), "scale must be from 1 to 100"),
        (lambda: ModelChoice(scale=100.5), "scale must be from 1 to 100"),
        (lambda: ModelChoice(scale="a"), "scale must be a number or None, not 'a'"),
        (lambda: ModelChoice(scale=True), "scale must be a number or None, not True"),
        (lambda: ModelChoice(bias=float("nan")), "bias must be finite"),
        (
            lambda: DataChoice(source="x.tar"),
            r"source must be a tuple of strings, not 'x.tar': write \('x.tar',\)",
        ),
        (lambda: DataChoice(source=(1,)), r"source must be a tuple of strings, not \(1,\)"),
        (lambda: DataChoice(captions="txt"), "captions must be a tuple of strings or None, not 'txt'"),
        (
            lambda: DataChoice(source=("a",), weights="1"),
            "weights must be a tuple of numbers or None, not '1'",
        ),
        (lambda: Stage(samples=1, source="x"), "source must be a tuple of strings"),
        (lambda: OptimiserChoice(frozen="image"), "frozen must be a tuple of strings"),
        (lambda: OptimiserChoice(lr="fast"), "lr must be a number"),
        (lambda: LogChoice(tensorboard="yes"), "tensorboard must be true or false or None"),
        (lambda: ModelChoice(uncertainty="tokens"), "uncertainty"),
        (lambda: ModelChoice(context_length=32), "is the size's own"),
        (lambda: DataChoice(source=("a",), weights=(1.0, 2.0)), "2 weights for 1 source"),
        (lambda: DataChoice(caption="shortest"), "caption"),
        (lambda: DataChoice(workers=-1), "workers"),
        (lambda: DataChoice(bad_limit=2), "bad_limit"),
        (lambda: Masking(tokens=1.5), "tokens"),
        (lambda: Masking(how="hide"), "how"),
        (lambda: Masking(patches=1.0), "sees at least one patch"),
        (lambda: Masking(tokens=0.0), "loses at least one token"),
        (lambda: Stage(samples=0), "samples"),
        (lambda: OptimiserChoice(betas=(0.9, 1.0)), "betas"),
        (lambda: OptimiserChoice(layer_decay=1.5), "layer_decay"),
        (lambda: OptimiserChoice(ema=1.0), "ema"),
        (lambda: OptimiserChoice(warmup=-1), "warmup"),
        (lambda: OptimiserChoice(clip_norm=0.0), "clip_norm"),
        (lambda: ParallelChoice(accumulate=0), "accumulate"),
        (lambda: ParallelChoice(compile=1), "compile must be true or false"),
        (lambda: CheckpointChoice(minutes=0), "minutes"),
        (lambda: CheckpointChoice(best="held_out/r2"), "best 'held_out/r2' is not one of"),
        (lambda: LogChoice(every=0), "every"),
        (lambda: HeldOut(every=0), "every"),
    ],
)
def test_impossible_values_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_ends_of_ranges_are_possible():
    assert [ModelChoice(scale=scale).scale for scale in (1, 100.0)] == [1, 100.0]
    assert TrainConfig(samples=8, batch=4, parallel=ParallelChoice(accumulate=4)).parallel.accumulate == 4


def test_stages_end_at_the_batch_nearest_to_their_last_sample():
    config = TrainConfig(samples=100, batch=10, before=(Stage(samples=34), Stage(samples=22)))
    assert config.stage_steps == (3, 3, 4)
    assert [stage.samples for stage in config.stages] == [34, 22, 44]
    assert sum(config.stage_steps) == config.steps == 10
    assert replace(config, before=()).stage_steps == (10,)


def test_a_short_stage_has_at_least_one_step():
    assert TrainConfig(samples=100, batch=10, before=(Stage(samples=1),)).stage_steps == (1, 9)


def test_the_other_defaults():
    choice = CheckpointChoice()
    assert (choice.steps, choice.minutes, choice.keep, choice.best, choice.best_is) == (
        None, 15.0, 3, "held_out/r1", "largest",
    )  # fmt: skip
    assert (Care().on_nonfinite, Care().most_skips) == ("stop", 10)
    assert TrainConfig(samples=8, batch=8).steps == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimiserChoice(layer_decay=0.0), "layer_decay"),
        (lambda: TrainConfig(out="./"), "folder of the run's own"),
    ],
)
def test_impossible(make, message):
    with pytest.raises(ValueError, match=message):
        make()
