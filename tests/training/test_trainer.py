"""The engine on the smallest recipe: what it learns, what it leaves behind, what it does when numbers go wrong."""

import json
import math
import os
import shlex
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import prolip
from prolip.losses.objective import Objective
from prolip.training import checkpointing, recipes, trainer
from prolip.training.batches import BatchStream
from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    HeldOutConfig,
    LogConfig,
    MaskingConfig,
    NonFinitePolicy,
    OptimizerConfig,
    ParallelConfig,
    Stage,
    TrainConfig,
)
from prolip.training.metric_writers import read_metrics
from prolip.training.step import Towers
from tests.embeddings.shards import write_shards

GOLDEN = [
    11.59696, 10.41923, 8.19622, 6.19727, 5.26257, 4.60316, 4.78986, 4.88531, 4.56655, 4.48201,
    4.55699, 4.65523, 4.65535, 4.60419, 4.51840, 4.48837, 4.48654, 4.48311, 4.48639, 4.48139,
]  # fmt: skip
"""The total loss of each of the twenty steps of the recipe nano."""

TIMES = {"samples_per_second", "data_wait", "peak_memory"}


def nano(folder, **changes) -> TrainConfig:
    """Eight steps of the recipe nano."""
    config = recipes.load_recipe("nano").build_config({"out": folder})
    quiet = LogConfig(every_steps=1, display="none", tensorboard=False)
    defaults = {
        "samples": 32 * 8,
        "log": quiet,
        "held_out": HeldOutConfig(),
        "checkpoint": CheckpointConfig(),
    }
    return replace(config, **defaults | changes)


def losses(folder):
    return [line["loss"] for line in read_metrics(folder) if "loss" in line]


def timeless(folder):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(folder)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without changes."""
    return trainer.train(nano(tmp_path_factory.mktemp("runs") / "plain"))


def test_the_golden_trajectory(tmp_path):
    run = trainer.train(nano(tmp_path / "run", samples=32 * len(GOLDEN)))
    assert losses(run) == pytest.approx(GOLDEN, rel=2e-4)


def test_the_run_folder_holds_what_is_needed_to_repeat_it(plain):
    content = json.loads((plain / "config.json").read_text())
    again = TrainConfig.from_dict(content["config"])
    assert again == replace(nano(plain), parallel=replace(again.parallel, threads=torch.get_num_threads()))
    assert content["data"][0]["samples"] == 10_000
    assert content["data"][0]["fingerprint"]
    (session,) = map(json.loads, (plain / "sessions.jsonl").read_text().splitlines())
    assert session["from_step"] == 0
    assert session["packages"]["torch"] == torch.__version__
    model = prolip.load(plain / "model", device="cpu")
    assert model.embed_texts(["a red circle"]).uncertainty.item() > 0
    assert [path.name for path in checkpointing.list_checkpoints(plain / "checkpoints")] == ["step-000000008"]


def test_a_line_of_metrics_says_it_all(plain):
    line = read_metrics(plain)[-1]
    assert line["samples"] == 256
    assert 0 <= line["data_wait"] <= 1
    assert all(math.isfinite(value) for value in line.values())
    names = {"loss/ppcl", "loss/inclusion", "loss/masked_images", "loss/masked_texts", "loss/vib_images"}
    names |= {"loss/vib_texts", "scale", "logit_bias", "grad_norm", "lr", "samples_per_second", "peak_memory"}
    names |= {f"{k}/uncertainty{q}" for k in ("image", "text") for q in ("", "_q05", "_q50", "_q95")}
    assert names <= set(line)


def test_a_second_run_needs_another_folder_or_resume(plain):
    with pytest.raises(ValueError, match="already holds a run"):
        trainer.train(nano(plain))
    before = (plain / "metrics.jsonl").read_bytes()
    trainer.train(nano(plain), resume=True)  # it is finished
    assert (plain / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_the_same_config_gives_the_same_run_and_another_seed_another(plain, tmp_path):
    assert timeless(trainer.train(nano(tmp_path / "again"))) == timeless(plain)
    assert losses(trainer.train(nano(tmp_path / "other", seed=1))) != losses(plain)


def test_a_held_out_check_changes_nothing_but_what_it_says(plain, tmp_path):
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=3)
    folder = trainer.train(nano(tmp_path / "run", held_out=check))
    lines = timeless(folder)
    assert [line["step"] for line in lines if "held_out/r1" in line] == [3, 6, 8]
    assert [{k: v for k, v in line.items() if not k.startswith("held_out/")} for line in lines] == timeless(
        plain
    )
    best = max(line["held_out/r1"] for line in lines if "held_out/r1" in line)
    state = checkpointing.read_metadata(folder / "checkpoints" / "step-000000008")["state"]
    assert state["best"] == best
    assert prolip.load(folder / "best", device="cpu").device.type == "cpu"


def test_a_line_of_held_out_metrics_alone_has_its_samples(tmp_path):
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=3)
    quiet = LogConfig(every_steps=8, display="none", tensorboard=False)
    lines = read_metrics(trainer.train(nano(tmp_path / "run", held_out=check, log=quiet)))
    assert [(line["step"], line["samples"], "loss" in line) for line in lines] == [
        (3, 96, False), (6, 192, False), (8, 256, True),
    ]  # fmt: skip


def test_the_smallest_can_be_the_best(tmp_path):
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=2)
    choice = CheckpointConfig(best_metric="held_out/image_uncertainty", best_mode="min")
    folder = trainer.train(nano(tmp_path / "run", held_out=check, checkpoint=choice))
    seen = [line["held_out/image_uncertainty"] for line in read_metrics(folder) if "held_out/r1" in line]
    assert checkpointing.read_metadata(folder / "checkpoints" / "step-000000008")["state"]["best"] == min(
        seen
    )


def test_accumulation_is_the_same_run(plain, tmp_path):
    folder = trainer.train(nano(tmp_path / "run", parallel=ParallelConfig(accumulation_steps=3)))
    assert losses(folder) == pytest.approx(losses(plain), rel=1e-4)


GENERAL = {
    "data": DataConfig(source=("scenes:simple,size=32,length=10000,general=true",), workers=0),
    "masking": MaskingConfig(text_fraction=0.5, method="general"),
    "samples": 32 * 6,
}


@pytest.fixture(scope="module")
def general(tmp_path_factory):
    """A run whose masked texts are more general captions."""
    return trainer.train(nano(tmp_path_factory.mktemp("runs") / "general", **GENERAL))


def test_more_general_captions_are_learned_from(general, tmp_path):
    masked = trainer.train(
        nano(tmp_path / "masked", **GENERAL | {"masking": MaskingConfig(text_fraction=0.5, method="mask")})
    )
    (here, *_), (there, *_) = read_metrics(general), read_metrics(masked)
    assert len(losses(general)) == 6
    assert all(math.isfinite(loss) for loss in losses(general))
    assert here["loss/masked_texts"] > 0
    assert here["loss/masked_texts"] != there["loss/masked_texts"]
    for term in ("ppcl", "inclusion", "masked_images"):
        assert here[f"loss/{term}"] == pytest.approx(there[f"loss/{term}"], rel=1e-4), "the rest is the same"


def test_accumulation_with_general_captions_is_the_same_run(general, tmp_path):
    folder = trainer.train(nano(tmp_path / "run", **GENERAL, parallel=ParallelConfig(accumulation_steps=3)))
    assert losses(folder) == pytest.approx(losses(general), rel=1e-4)


def test_data_without_general_captions_can_not_be_masked_by_them(tmp_path):
    with pytest.raises(ValueError, match="no more general captions"):
        trainer.train(nano(tmp_path / "run", masking=MaskingConfig(method="general")))


def test_stages_change_the_objective(tmp_path):
    first = Stage(samples=32 * 4, objective=Objective(ppcl=0, clip=1, inclusion=0, masked=0, vib=0))
    folder = trainer.train(nano(tmp_path / "run", samples=32 * 8, initial_stages=(first,)))
    terms = [{k for k in line if k.startswith("loss/")} for line in read_metrics(folder)]
    assert terms[:4] == [{"loss/clip"}] * 4
    assert all("loss/ppcl" in names and "loss/clip" not in names for names in terms[4:])


def test_the_last_weights_are_the_models_and_the_averages_if_there_are_any(plain, tmp_path):
    optimizer = OptimizerConfig(lr=1e-3, warmup_steps=5, ema_decay=0.5)
    folder = trainer.train(nano(tmp_path / "run", optimizer=optimizer))
    assert losses(folder) == losses(plain)
    raw, averaged = (prolip.load(run / "model", device="cpu").state_dict() for run in (plain, folder))
    assert any(not torch.equal(raw[name], averaged[name]) for name in raw)
    assert all((raw[name] - averaged[name]).abs().max() < 1e-2 for name in raw)


def test_frozen_parameters_stay(tmp_path):
    optimizer = OptimizerConfig(lr=1e-3, warmup_steps=5, frozen=("image", "logit_bias"))
    folder = trainer.train(nano(tmp_path / "run", samples=96, optimizer=optimizer))
    start = prolip.create("nano", prolip.load(folder / "model", device="cpu").tokenizer, seed=0).state_dict()
    end = prolip.load(folder / "model", device="cpu").state_dict()
    same = {name for name in start if torch.equal(start[name], end[name])}
    assert {name for name in start if name.startswith("image.")} | {"logit_bias"} <= same
    assert "text.mean.weight" not in same


@pytest.fixture
def broken_at(monkeypatch):
    """Let the towers give NaN in a step's second image."""
    forward, calls = Towers.forward, []

    def install(*steps):
        def broken(self, part):
            calls.append(1)
            found = forward(self, part)
            if len(calls) in steps:
                found.images.mean.data[1] = torch.nan
            return found

        monkeypatch.setattr(Towers, "forward", broken)

    return install


def test_a_loss_that_is_not_finite_stops_with_its_reason(broken_at, tmp_path):
    broken_at(6)
    with pytest.raises(
        FloatingPointError, match=r"step 6: .*ppcl is nan.*not finite: 0-\d+.*The weights were not changed"
    ):
        trainer.train(nano(tmp_path / "run", checkpoint=CheckpointConfig(every_steps=5)))
    assert checkpointing.find_latest(tmp_path / "run" / "checkpoints").name == "step-000000005"


def test_or_is_left_out_and_counted(broken_at, plain, tmp_path):
    broken_at(6, 8)
    folder = trainer.train(
        nano(
            tmp_path / "run",
            nonfinite=NonFinitePolicy(action="skip"),
            optimizer=OptimizerConfig(ema_decay=0.9),
        )
    )
    notes = [line for line in read_metrics(folder) if "message" in line]
    assert [line["step"] for line in notes] == [6, 8]
    assert "skipped" in notes[0]["message"]
    assert read_metrics(folder)[-1]["skipped_steps"] == 2
    assert (
        checkpointing.read_metadata(folder / "checkpoints" / "step-000000008")["state"]["skipped_steps"] == 2
    )
    weights = prolip.load(folder / "model", device="cpu").state_dict()
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_too_many_skips_end_the_run(broken_at, tmp_path):
    broken_at(2, 3, 4)
    with pytest.raises(FloatingPointError, match=r"3 steps were skipped, more than .* = 2"):
        trainer.train(nano(tmp_path / "run", nonfinite=NonFinitePolicy(action="skip", max_skipped_steps=2)))


@pytest.mark.slow
def test_a_step_left_out_changes_no_weight(broken_at, tmp_path):
    """Of two runs, one has a bad third and last step."""
    two = trainer.train(
        nano(tmp_path / "two", samples=96, optimizer=OptimizerConfig(schedule="constant", warmup_steps=0))
    )
    at_two = prolip.load(two / "model", device="cpu").state_dict()
    broken_at(3)
    care = NonFinitePolicy(action="skip")
    optimizer = OptimizerConfig(schedule="constant", warmup_steps=0)
    three = trainer.train(nano(tmp_path / "three", samples=96, nonfinite=care, optimizer=optimizer))
    short = trainer.train(nano(tmp_path / "short", samples=64, optimizer=optimizer))
    left_out, reference = (prolip.load(run / "model", device="cpu").state_dict() for run in (three, short))
    assert all(torch.equal(left_out[name], reference[name]) for name in reference)
    assert any(not torch.equal(at_two[name], reference[name]) for name in reference)


def test_a_mask_token_is_wanted_where_tokens_are_masked(tmp_path, monkeypatch):
    config = nano(tmp_path / "run")
    make = trainer.make_model

    def without_mask(*args):
        model = make(*args)
        tokens = replace(model.config.text.tokenizer, mask_id=None)
        model.config = replace(model.config, text=replace(model.config.text, tokenizer=tokens))
        return model

    monkeypatch.setattr(trainer, "make_model", without_mask)
    with pytest.raises(ValueError, match="no mask token"):
        trainer.train(config)


def test_errors_before_the_first_step_leave_no_run_behind(tmp_path):
    config = nano(tmp_path / "run")
    with pytest.raises(ValueError, match="no parameter has the prefix 'images'"):
        trainer.train(replace(config, optimizer=OptimizerConfig(frozen=("images",))))
    with pytest.raises(ValueError, match="there is no data to train on"):
        trainer.train(replace(config, data=replace(config.data, source=())))
    trainer.train(replace(config, samples=32))  # the folder is still free


@pytest.mark.slow
@pytest.mark.long
def test_the_miniature_learns_scenes(tmp_path):
    """A thousand held-out scenes by their complete captions: chance is 0.1 %. All four stages are gone through."""
    values = {"samples": 25600, "out": tmp_path / "run", "log.display": "none", "log.tensorboard": False}
    config = recipes.load_recipe("miniature").build_config({**values, "data.workers": 0})
    lines = read_metrics(trainer.train(config))
    terms = [line["loss/clip"] for line in lines if "loss/clip" in line]
    assert terms[-1] < terms[0] - 0.5
    assert {"loss/ppcl", "loss/inclusion", "loss/masked_texts", "loss/vib_texts"} <= set(lines[-1])
    assert lines[-1]["held_out/r1"] > 0.01
    assert lines[-1]["held_out/text_above_image"] > 0.9


def short(folder, **changes):
    """Three steps."""
    return nano(folder, **{"samples": 96, **changes})


def steps_saved(folder):
    return [int(path.name[5:]) for path in checkpointing.list_checkpoints(folder / "checkpoints")]


@pytest.mark.parametrize("async_save", [False, True])
def test_metrics_are_safe_before_a_checkpoint_is_written(tmp_path, monkeypatch, async_save):
    """Skipped steps are looked for at once, also on a GPU, where that is not done at each step."""
    events, save, sync = [], checkpointing.save_checkpoint, trainer.TrainLogger.sync
    monkeypatch.setattr(checkpointing, "save_checkpoint", lambda *args: events.append("save") or save(*args))
    monkeypatch.setattr(trainer.TrainLogger, "sync", lambda self: events.append("sync") or sync(self))
    check, content = trainer.TrainLogger.check_nonfinite, trainer.TrainState.checkpoint_content
    monkeypatch.setattr(
        trainer.TrainLogger, "check_nonfinite", lambda self, step: events.append(step) or check(self, step)
    )
    monkeypatch.setattr(
        trainer.TrainState, "checkpoint_content", lambda self: events.append("content") or content(self)
    )
    choice = CheckpointConfig(every_steps=1, async_save=async_save)
    trainer.train(short(tmp_path / "run", samples=64, checkpoint=choice))
    assert [event for event in events if event in ("sync", "save")] == ["sync", "save"] * 2
    assert [event for event in events if event not in ("sync", "save")] == [1, 1, "content", 2, 2, "content"]


@pytest.mark.slow
def test_checkpoints_by_time(tmp_path, monkeypatch):
    """A step takes 20 seconds here; a checkpoint is due after more than one minute since the last."""
    watch, next_batch = SimpleNamespace(now=0.0), BatchStream.next_batch

    def slowly(self, step):
        watch.now += 20
        return next_batch(self, step)

    monkeypatch.setattr(BatchStream, "next_batch", slowly)
    monkeypatch.setattr("prolip.training.logger.time", SimpleNamespace(monotonic=lambda: watch.now))
    choice = CheckpointConfig(every_minutes=1.0, keep_last=10)
    assert steps_saved(trainer.train(short(tmp_path / "run", samples=320, checkpoint=choice))) == [4, 8, 10]


def test_as_many_checkpoints_stay_as_were_asked_for(tmp_path):
    choice = CheckpointConfig(every_steps=1, keep_last=2)
    assert steps_saved(trainer.train(short(tmp_path / "run", samples=160, checkpoint=choice))) == [4, 5]


def test_gradients_are_clipped_to_the_configs_length(tmp_path, monkeypatch):
    asked, clip_grad_norm = [], trainer.clip_grad_norm

    def noting(parameters, limit):
        asked.append(limit)
        return clip_grad_norm(parameters, limit)

    monkeypatch.setattr(trainer, "clip_grad_norm", noting)
    trainer.train(short(tmp_path / "run", samples=32, optimizer=OptimizerConfig(grad_clip_norm=0.25)))
    assert asked == [0.25]


def test_bfloat16_reaches_the_towers(tmp_path, monkeypatch):
    seen, forward = [], Towers.forward

    def noting(self, part):
        seen.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
        return forward(self, part)

    monkeypatch.setattr(Towers, "forward", noting)
    trainer.train(short(tmp_path / "run", samples=32, parallel=ParallelConfig(precision="bfloat16")))
    assert seen == [torch.bfloat16]


def test_scales_stay_within_their_limits(tmp_path):
    both = Objective(pml=1.0)
    optimizer = OptimizerConfig(lr=1e-3, warmup_steps=0, temperature_lr_multiplier=1e4)
    run = trainer.train(short(tmp_path / "run", objective=both, optimizer=optimizer))
    for name in ("scale", "pml/scale"):
        seen = [line[name] for line in read_metrics(run)]
        assert all(0.999 <= scale <= 100.001 for scale in seen)
        assert any(min(abs(scale - 1), abs(scale - 100)) < 1e-3 for scale in seen), "it has met a limit"


def test_the_average_is_what_is_checked_and_kept_as_best(tmp_path):
    """With an average that hardly moves, a check sees the weights of the start, and so does best/."""
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=1)
    optimizer = OptimizerConfig(lr=1e-2, warmup_steps=0, ema_decay=1 - 1e-7)
    run = trainer.train(short(tmp_path / "run", held_out=check, optimizer=optimizer))
    seen = [line["held_out/text_uncertainty"] for line in read_metrics(run)]
    assert seen == pytest.approx([seen[0]] * 3, rel=1e-4)
    best = prolip.load(run / "best", device="cpu")
    start = prolip.create("nano", best.tokenizer, seed=0).state_dict()
    assert all(torch.allclose(value, start[name], atol=1e-5) for name, value in best.state_dict().items())


def test_a_step_left_out_leaves_the_average_too(tmp_path, broken_at):
    broken_at(3)
    optimizer = OptimizerConfig(lr=1e-2, schedule="constant", warmup_steps=0, ema_decay=0.5)
    care = NonFinitePolicy(action="skip")
    run = trainer.train(short(tmp_path / "run", nonfinite=care, optimizer=optimizer))
    fewer = trainer.train(short(tmp_path / "short", samples=64, optimizer=optimizer))
    one, other = (prolip.load(folder / "model", device="cpu").state_dict() for folder in (run, fewer))
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.slow
def test_skips_are_counted_over_resumes(tmp_path, monkeypatch, broken_at):
    broken_at(2, 4)
    config = short(
        tmp_path / "run", samples=192, nonfinite=NonFinitePolicy(action="skip", max_skipped_steps=1)
    )
    config = replace(config, checkpoint=CheckpointConfig(every_steps=1))
    with monkeypatch.context() as inside:
        next_batch = BatchStream.next_batch

        def stopping(self, step):
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return next_batch(self, step)

        inside.setattr(BatchStream, "next_batch", stopping)
        trainer.train(config)
    with pytest.raises(FloatingPointError, match=r"2 steps were skipped, more than .* = 1"):
        trainer.train(config, resume=True)


def test_without_a_metric_there_is_no_best(tmp_path):
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=1)
    choice = CheckpointConfig(best_metric=None)
    run = trainer.train(short(tmp_path / "run", samples=32, held_out=check, checkpoint=choice))
    assert not (run / "best").exists()


def test_of_two_equally_good_the_first_is_the_best(tmp_path, monkeypatch):
    exported, export_model = [], trainer.export_model

    def noting(module, average, folder):
        exported.append(folder.name)
        export_model(module, average, folder)

    monkeypatch.setattr(trainer, "export_model", noting)
    monkeypatch.setattr(trainer.HeldOutEvaluator, "compute_metrics", lambda *_: {"held_out/r1": 0.5})
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=1)
    trainer.train(short(tmp_path / "run", held_out=check))
    assert exported == ["best", "model"]


def test_a_mask_token_is_wanted_by_an_earlier_stage_too(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(trainer, "require_mask_token", lambda *args: asked.append(args))
    plain = Objective(masked=0)
    trainer.train(
        short(
            tmp_path / "run",
            samples=64,
            objective=plain,
            initial_stages=(Stage(samples=32, objective=Objective()),),
        )
    )
    assert len(asked) == 1


def test_passwords_stay_here(tmp_path):
    secret = "https://host/{0..3}.tar?token=abc"
    config = TrainConfig(
        samples=64,
        batch_size=32,
        data=DataConfig(source=(secret,)),
        initial_stages=(Stage(samples=32, source=(secret,)),),
    )
    assert "abc" in json.dumps(config.to_dict())
    assert "abc" not in json.dumps(trainer._redact_config(config))


def test_loggers_elsewhere_get_the_config_without_passwords(tmp_path, monkeypatch):
    configs, metrics = [], trainer.MetricWriter

    def noting(folder, log, described, begin):
        configs.append(described)
        return metrics(folder, log, described, begin)

    monkeypatch.setattr(trainer, "MetricWriter", noting)
    monkeypatch.setattr(trainer, "redact_secrets", lambda spec: "hidden")
    trainer.train(short(tmp_path / "run", samples=32))
    assert configs[0]["data"]["source"] == ("hidden",)


def test_a_display_of_a_resumed_run_begins_where_it_goes_on(tmp_path, monkeypatch):
    begun, show = [], trainer.open_display

    def noting(*args, **options):
        begun.append(options["first_step"])
        return show(*args, **options)

    monkeypatch.setattr(trainer, "open_display", noting)
    config = short(tmp_path / "run", checkpoint=CheckpointConfig(every_steps=1))
    with monkeypatch.context() as inside:
        next_batch = BatchStream.next_batch

        def stopping(self, step):
            os.kill(os.getpid(), signal.SIGTERM)
            return next_batch(self, step)

        inside.setattr(BatchStream, "next_batch", stopping)
        trainer.train(config)
    trainer.train(config, resume=True)
    assert begun == [0, 1]


def test_batches_are_closed_however_a_run_ends(tmp_path, monkeypatch):
    closed, close = [], BatchStream.close
    monkeypatch.setattr(BatchStream, "close", lambda self: (closed.append(1), close(self)))
    trainer.train(short(tmp_path / "run", samples=32))
    before = len(closed)

    def fail(self, step):
        raise RuntimeError("no data")

    monkeypatch.setattr(BatchStream, "next_batch", fail)
    with pytest.raises(RuntimeError, match="no data"):
        trainer.train(short(tmp_path / "other", samples=32))
    assert (before, len(closed)) == (2, 4)  # entering the first data closes what was before it


@pytest.mark.slow
def test_a_users_random_numbers_follow_the_seed_and_the_callers_go_on(tmp_path, monkeypatch):
    drawn, forward = [], Towers.forward

    def drawing(self, part):
        drawn.append(torch.rand(1).item())
        return forward(self, part)

    monkeypatch.setattr(Towers, "forward", drawing)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        trainer.train(short(tmp_path / name, samples=32, seed=seed))
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_batch_that_is_too_small_is_an_error(tmp_path, monkeypatch):
    next_batch = BatchStream.next_batch

    def fewer(self, step):
        batch = next_batch(self, step)
        keep = slice(0, 31)
        return replace(
            batch, pixels=batch.pixels[keep], token_ids=batch.token_ids[keep], captions=batch.captions[keep],
            keys=batch.keys[keep], sample_indices=batch.sample_indices[keep],
        )  # fmt: skip

    monkeypatch.setattr(BatchStream, "next_batch", fewer)
    with pytest.raises(ValueError, match=r"step 1: .* 31 instead of 32 samples"):
        trainer.train(short(tmp_path / "run"))


def test_a_model_without_variances_has_no_inclusion(tmp_path):
    config = nano(tmp_path / "run", samples=32)
    plain = replace(config, model=replace(config.model, uncertainty="none"))
    with pytest.raises(ValueError, match=r"no variances .*the objective has ppcl, inclusion, masked, vib"):
        trainer.train(plain)
    siglip = Objective(ppcl=0, siglip=1, inclusion=0, masked=0, vib=0)
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20)
    best = CheckpointConfig(best_metric="held_out/text_uncertainty")
    with pytest.raises(
        ValueError, match=r"checkpoint\.best_metric held_out/text_uncertainty needs variances"
    ):
        trainer.train(replace(plain, objective=siglip, held_out=check, checkpoint=best))
    trainer.train(replace(plain, objective=siglip))


@pytest.mark.slow
def test_the_best_by_another_metric_is_looked_for_anew(tmp_path):
    check = HeldOutConfig(source="scenes:simple,size=32,length=20,seed=1", samples=20, every_steps=1)
    config = short(tmp_path / "run", held_out=check, checkpoint=CheckpointConfig(every_steps=1, keep_last=9))
    folder = trainer.train(config)
    for step in (2, 3):
        shutil.rmtree(folder / "checkpoints" / f"step-00000000{step}")
    other = replace(config, checkpoint=CheckpointConfig(best_metric="held_out/image_uncertainty"))
    trainer.train(other, resume=True)
    seen = [line["held_out/image_uncertainty"] for line in read_metrics(folder)]
    assert checkpointing.read_metadata(folder / "checkpoints" / "step-000000003")["state"]["best"] == max(
        seen[1:]
    )


def test_if_no_checkpoint_is_whole_nothing_is_begun_anew(tmp_path):
    config = short(tmp_path / "run", checkpoint=CheckpointConfig(every_steps=1))
    folder = trainer.train(config)
    for path in checkpointing.list_checkpoints(folder / "checkpoints"):
        (path / "complete.json").unlink()
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be used: remove that folder"):
        trainer.train(config, resume=True)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_finished_run_without_its_model_gets_it_again(tmp_path, caplog):
    config = short(tmp_path / "run")
    folder = trainer.train(config)
    weights = (folder / "model" / "model.safetensors").read_bytes()
    trainer.train(config, resume=True)
    assert "has finished training; its model is in" in caplog.text
    shutil.rmtree(folder / "model")
    trainer.train(config, resume=True)
    assert (folder / "model" / "model.safetensors").read_bytes() == weights


def test_a_run_that_has_ended_is_a_model(plain):
    assert torch.equal(
        prolip.load(plain, device="cpu").logit_scale, prolip.load(plain / "model", device="cpu").logit_scale
    )
    assert read_metrics(str(plain)) == read_metrics(plain)


def test_other_data_with_the_words_and_the_check_of_scenes_is_remarked(tmp_path, caplog):
    config = nano(tmp_path / "run", samples=32)
    trainer._warn_of_generated_defaults(config)
    assert not caplog.records
    check = HeldOutConfig(source="scenes:simple,size=32")
    trainer._warn_of_generated_defaults(
        replace(config, data=replace(config.data, source=("pairs.csv",)), held_out=check)
    )
    assert "model.tokenizer scenes is made for generated data" in caplog.text
    assert "held_out.source is scenes:simple,size=32, not your data" in caplog.text


def test_stages_are_announced(tmp_path, capfd):
    loud = LogConfig(display="plain", tensorboard=False)
    first = Stage(samples=64, objective=Objective(ppcl=0, clip=1, inclusion=0, masked=0, vib=0))
    trainer.train(nano(tmp_path / "run", samples=128, initial_stages=(first,), log=loud))
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("stage")]
    scenes = "scenes:simple,size=32,length=10000 (10,000 samples)"
    assert said == [
        f"stage 1 of 2, steps 1 to 2: clip on {scenes}",
        f"stage 2 of 2, steps 3 to 4: ppcl, inclusion, masked, vib on {scenes}",
    ]


def test_a_command_of_a_run_folder_is_run_only_if_told(tmp_path, monkeypatch):
    """Of one's own runs it is known; of others' it is refused before anything is opened."""
    write_shards(tmp_path / "d", [64])
    mark = tmp_path / "was_run"
    command = f"pipe:touch {shlex.quote(str(mark))}; cat {shlex.quote(str(tmp_path))}/d/00000.tar"
    config = replace(nano(tmp_path / "run", samples=32), data=DataConfig(source=(command,), workers=0))
    folder = trainer.train(config)
    mark.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(
        ValueError, match=r"config.json contains a command.*was_run.*--trust-pipe.*--data.source"
    ):
        prolip.train(folder)
    with pytest.raises(ValueError, match="contains a command"):
        prolip.train(folder, samples=64)
    assert not mark.exists()
    assert not (tmp_path / "another user").exists()
    assert prolip.train(folder, {"data.source": [command]}) == folder  # now this user has given it, too
    assert prolip.train(folder) == folder
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "third user"))
    assert prolip.train(folder, trust_pipe=True) == folder
    moved = folder.rename(tmp_path / "moved")
    monkeypatch.undo()
    assert prolip.train(moved) == moved
