"""The engine on the smallest recipe: what it learns, what it leaves behind, what it does when numbers go wrong."""

import json
import math
from dataclasses import replace

import pytest
import torch

import prolip
from prolip import recipes
from prolip.losses.objective import Objective
from prolip.train import engine, saves
from prolip.train.config import (
    Care,
    CheckpointChoice,
    HeldOut,
    LogChoice,
    OptimiserChoice,
    ParallelChoice,
    Stage,
    TrainConfig,
)
from prolip.train.metrics import read_metrics
from prolip.train.step import Towers

GOLDEN = [
    11.08839, 10.27421, 8.01750, 6.20351, 5.14234, 4.57967, 4.90744, 4.92035, 4.55186, 4.52318,
    4.59566, 4.64862, 4.65105, 4.57553, 4.50581, 4.49085, 4.47325, 4.46177, 4.46575, 4.46969,
]  # fmt: skip
"""The total loss of each of the twenty steps of the recipe nano."""

TIMES = {"samples_per_second", "data_wait", "memory"}


def nano(folder, **changes) -> TrainConfig:
    config = recipes.load("nano").config([f"out={folder}"])
    quiet = LogChoice(every=1, display="none", tensorboard=False)
    return replace(
        config, **{"log": quiet, "held_out": HeldOut(), "checkpoint": CheckpointChoice(), **changes}
    )


def losses(folder):
    return [line["loss"] for line in read_metrics(folder) if "loss" in line]


def timeless(folder):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(folder)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of the recipe as it is."""
    return engine.train(nano(tmp_path_factory.mktemp("runs") / "plain"))


def test_the_golden_trajectory(plain):
    assert losses(plain) == pytest.approx(GOLDEN, rel=2e-4)


def test_the_run_folder_holds_what_is_needed_to_repeat_it(plain):
    content = json.loads((plain / "config.json").read_text())
    again = TrainConfig.from_dict(content["config"])
    assert again == nano(plain)
    assert content["data"][0]["samples"] == 10_000
    assert content["data"][0]["fingerprint"]
    (session,) = map(json.loads, (plain / "sessions.jsonl").read_text().splitlines())
    assert session["from_step"] == 0
    assert session["packages"]["torch"] == torch.__version__
    model = prolip.load(plain / "model", device="cpu")
    assert model.embed_texts(["a red circle"]).uncertainty.item() > 0
    assert [path.name for path in saves.list_saves(plain / "checkpoints")] == ["step-000000020"]


def test_a_line_of_metrics_says_it_all(plain):
    line = read_metrics(plain)[-1]
    assert line["samples"] == 640
    assert 0 <= line["data_wait"] <= 1
    assert all(math.isfinite(value) for value in line.values())
    names = {"loss/ppcl", "loss/inclusion", "loss/masked_images", "loss/masked_texts", "loss/vib_images"}
    names |= {"loss/vib_texts", "scale", "bias", "gradient_norm", "rate", "samples_per_second", "memory"}
    names |= {f"{k}/uncertainty{q}" for k in ("image", "text") for q in ("", "_q05", "_q50", "_q95")}
    assert names <= set(line)


def test_a_second_run_needs_another_folder_or_resume(plain):
    with pytest.raises(ValueError, match="holds a run already"):
        engine.train(nano(plain))
    before = (plain / "metrics.jsonl").read_bytes()
    engine.train(nano(plain), resume=True)  # it is finished
    assert (plain / "metrics.jsonl").read_bytes() == before


def test_the_same_config_gives_the_same_run_and_another_seed_another(plain, tmp_path):
    assert timeless(engine.train(nano(tmp_path / "again"))) == timeless(plain)
    assert losses(engine.train(nano(tmp_path / "other", seed=1))) != losses(plain)


def test_a_held_out_check_changes_nothing_but_what_it_says(plain, tmp_path):
    check = HeldOut(source="scenes:simple,size=32,length=20,seed=1", samples=20, every=7)
    folder = engine.train(nano(tmp_path / "run", held_out=check))
    lines = timeless(folder)
    assert [line["step"] for line in lines if "held_out/r1" in line] == [7, 14, 20]
    assert [{k: v for k, v in line.items() if not k.startswith("held_out/")} for line in lines] == timeless(
        plain
    )
    best = max(line["held_out/r1"] for line in lines if "held_out/r1" in line)
    state = saves.facts(folder / "checkpoints" / "step-000000020")["facts"]
    assert state["best"] == best
    assert prolip.load(folder / "best", device="cpu").device.type == "cpu"


def test_the_smallest_can_be_the_best(tmp_path):
    check = HeldOut(source="scenes:simple,size=32,length=20,seed=1", samples=20, every=5)
    choice = CheckpointChoice(best="held_out/image_uncertainty", best_is="smallest")
    folder = engine.train(nano(tmp_path / "run", held_out=check, checkpoint=choice))
    seen = [line["held_out/image_uncertainty"] for line in read_metrics(folder) if "held_out/r1" in line]
    assert saves.facts(folder / "checkpoints" / "step-000000020")["facts"]["best"] == min(seen)


def test_accumulation_is_the_same_run(plain, tmp_path):
    folder = engine.train(nano(tmp_path / "run", parallel=ParallelChoice(accumulate=3)))
    assert losses(folder) == pytest.approx(losses(plain), rel=1e-4)


def test_stages_change_the_objective(tmp_path):
    first = Stage(samples=32 * 4, objective=Objective(ppcl=0, clip=1, inclusion=0, masked=0, vib=0))
    folder = engine.train(nano(tmp_path / "run", samples=32 * 8, before=(first,)))
    terms = [{k for k in line if k.startswith("loss/")} for line in read_metrics(folder)]
    assert terms[:4] == [{"loss/clip"}] * 4
    assert all("loss/ppcl" in names and "loss/clip" not in names for names in terms[4:])


def test_the_last_weights_are_the_models_and_the_averages_if_there_are_any(plain, tmp_path):
    optimiser = OptimiserChoice(lr=1e-3, warmup=5, ema=0.5)
    folder = engine.train(nano(tmp_path / "run", optimiser=optimiser))
    assert losses(folder) == losses(plain)
    raw, averaged = (prolip.load(run / "model", device="cpu").state_dict() for run in (plain, folder))
    assert any(not torch.equal(raw[name], averaged[name]) for name in raw)
    assert all((raw[name] - averaged[name]).abs().max() < 1e-2 for name in raw)


def test_frozen_parameters_stay(tmp_path):
    optimiser = OptimiserChoice(lr=1e-3, warmup=5, frozen=("image", "bias"))
    folder = engine.train(nano(tmp_path / "run", samples=96, optimiser=optimiser))
    start = prolip.create("nano", prolip.load(folder / "model", device="cpu").tokenizer, seed=0).state_dict()
    end = prolip.load(folder / "model", device="cpu").state_dict()
    same = {name for name in start if torch.equal(start[name], end[name])}
    assert {name for name in start if name.startswith("image.")} | {"bias"} <= same
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
        FloatingPointError, match=r"step 6: .*ppcl is nan.*not finite: 0-\d+.*did not reach the weights"
    ):
        engine.train(nano(tmp_path / "run", checkpoint=CheckpointChoice(steps=5)))
    assert saves.latest(tmp_path / "run" / "checkpoints").name == "step-000000005"


def test_or_is_left_out_and_counted(broken_at, plain, tmp_path):
    broken_at(6, 8)
    folder = engine.train(
        nano(tmp_path / "run", care=Care(on_nonfinite="skip"), optimiser=OptimiserChoice(ema=0.9))
    )
    notes = [line for line in read_metrics(folder) if "note" in line]
    assert [line["step"] for line in notes] == [6, 8]
    assert "left out" in notes[0]["note"]
    assert read_metrics(folder)[-1]["skipped"] == 2
    assert saves.facts(folder / "checkpoints" / "step-000000020")["facts"]["skipped"] == 2
    weights = prolip.load(folder / "model", device="cpu").state_dict()
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_too_many_skips_end_the_run(broken_at, tmp_path):
    broken_at(2, 3, 4)
    with pytest.raises(FloatingPointError, match="That makes 3 such steps"):
        engine.train(nano(tmp_path / "run", care=Care(on_nonfinite="skip", most_skips=2)))


def test_a_step_left_out_changes_no_weight(broken_at, tmp_path):
    """Of two runs, one has a bad third and last step."""
    two = engine.train(
        nano(tmp_path / "two", samples=96, optimiser=OptimiserChoice(schedule="constant", warmup=0))
    )
    at_two = prolip.load(two / "model", device="cpu").state_dict()
    broken_at(3)
    care = Care(on_nonfinite="skip")
    optimiser = OptimiserChoice(schedule="constant", warmup=0)
    three = engine.train(nano(tmp_path / "three", samples=96, care=care, optimiser=optimiser))
    short = engine.train(nano(tmp_path / "short", samples=64, optimiser=optimiser))
    left_out, reference = (prolip.load(run / "model", device="cpu").state_dict() for run in (three, short))
    assert all(torch.equal(left_out[name], reference[name]) for name in reference)
    assert any(not torch.equal(at_two[name], reference[name]) for name in reference)


def test_a_mask_token_is_wanted_where_tokens_are_masked(tmp_path, monkeypatch):
    config = nano(tmp_path / "run")
    make = engine.make_model

    def without_mask(choice, seed):
        model = make(choice, seed)
        tokens = replace(model.config.text.tokens, mask_id=None)
        model.config = replace(model.config, text=replace(model.config.text, tokens=tokens))
        return model

    monkeypatch.setattr(engine, "make_model", without_mask)
    with pytest.raises(ValueError, match="no mask token"):
        engine.train(config)


def test_errors_before_the_first_step_leave_no_run_behind(tmp_path):
    config = nano(tmp_path / "run")
    with pytest.raises(ValueError, match="no parameter is or lies below"):
        engine.train(replace(config, optimiser=OptimiserChoice(frozen=("images",))))
    with pytest.raises(ValueError, match="there is no data to train on"):
        engine.train(replace(config, data=replace(config.data, source=())))
    engine.train(replace(config, samples=32))  # the folder is still free


@pytest.mark.slow
def test_the_miniature_learns_scenes(tmp_path):
    """A thousand held-out scenes by their captions: chance is 0.1 %."""
    words = [
        "samples=25600",
        f"out={tmp_path / 'run'}",
        "log.display=none",
        "data.workers=0",
        "log.tensorboard=false",
    ]
    lines = read_metrics(engine.train(recipes.load("miniature").config(words)))
    terms = [line["loss/clip"] for line in lines if "loss/clip" in line]
    assert terms[-1] < terms[0] - 0.5
    assert lines[-1]["held_out/r1"] > 0.01
    assert lines[-1]["held_out/text_above_image"] > 0.9
