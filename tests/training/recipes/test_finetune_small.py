"""finetune-small: what it chooses by the number of pairs, what the user's settings keep, and what it refuses."""

import re
from itertools import pairwise

import pytest

import prolip
from prolip.cli.train_flags import parse_flags
from prolip.data.open import open_data
from prolip.training.metric_writers import read_metrics
from prolip.training.recipes import load_recipe
from prolip.training.recipes.finetune_small import SCENES, choose_batch_size, choose_epochs
from tests.data.test_splits import write_table

RECIPE = load_recipe("finetune-small")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = [(i, f"{('red', 'green', 'dark')[i % 3]} square number {i}") for i in range(80)]
    return write_table(tmp_path_factory.mktemp("own"), rows)


def make(**values):
    return RECIPE.build_config(values)


def test_sizes_follow_the_number_of_pairs():
    sizes = (40, 417, 500, 5_000, 50_000)
    assert [choose_batch_size(n) for n in sizes] == [16, 32, 32, 256, 256]
    assert [choose_epochs(n) for n in sizes] == [30, 30, 30, pytest.approx(30 / 10**0.5), 3]
    for few, more in pairwise(range(40, 30_000, 97)):
        assert choose_batch_size(few) <= choose_batch_size(more) <= more
        assert choose_epochs(few) * few < choose_epochs(more) * more


def test_choices_for_a_small_table(table):
    run = make(**{"data.source": table})
    train, held_out = open_data(run.data.source[0]), open_data(run.held_out.source)
    assert (len(train), len(held_out)) == (72, 8)
    assert (run.batch_size, run.samples) == (16, 16 * round(30 * 72 / 16))
    assert run.optimizer.lr == pytest.approx(5.1e-4)
    assert run.optimizer.warmup_steps == run.steps // 10
    assert run.objective.likelihood == 1
    assert run.objective.ppcl == 0
    assert (run.held_out.reference, run.held_out.at_start) == (SCENES, True)
    assert (run.model.pretrained, run.out) == ("scenes-tiny", "runs/finetune-small")


def test_settings_of_the_user_stay(table):
    values = {
        "data.source": table, "held_out.source": table, "samples": 64, "batch_size": 8, "optimizer.lr": 1e-3,
        "optimizer.warmup_steps": 2, "objective.ppcl": 1.0, "held_out.reference": None, "held_out.every_steps": 3,
        "log.every_steps": 7,
    }  # fmt: skip
    run = make(**values)
    assert (run.data.source, run.held_out.source, run.samples, run.batch_size) == ((table,), table, 64, 8)
    assert (run.optimizer.lr, run.optimizer.warmup_steps, run.objective.ppcl) == (1e-3, 2, 1.0)
    assert (run.held_out.reference, run.held_out.every_steps, run.log.every_steps) == (None, 3, 7)
    words = [
        "--data.source",
        table,
        "--samples",
        "64",
        "--optimizer.lr",
        "1e-3",
        "--held-out.reference",
        "None",
    ]
    flags = parse_flags(RECIPE, words)
    assert (flags.samples, flags.optimizer.lr, flags.held_out.reference) == (64, 1e-3, None)
    assert flags.batch_size == 16


def test_lora_and_new_weights_have_higher_rates(table):
    full, lora = (make(**{"data.source": table, "model.lora_rank": rank}) for rank in (None, 8))
    assert lora.optimizer.lr == pytest.approx(4 * full.optimizer.lr, rel=0.05)
    new = make(
        **{"data.source": table, "model.pretrained": None, "model.size": "nano", "model.tokenizer": "train"}
    )
    assert new.objective.ppcl == 1
    assert new.held_out.reference is None
    assert new.optimizer.lr > full.optimizer.lr


def test_generated_data_beside_the_users_is_not_split(table):
    scenes = "scenes:simple,size=48,length=1000"
    run = make(**{"data.source": [table, scenes], "data.weights": [0.7, 0.3]})
    assert run.data.source == (f"split:train@0.1:{table}", scenes)
    assert run.batch_size == 16  # by the user's own pairs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.source": ["a.csv", "b.csv"]}, "2 data sets"),
        ({"data.source": "scenes:simple"}, "0 data sets"),
        ({"data.source": "pipe:cat a.tar"}, "no data on disk"),
        ({"model.pretrained": "photos-small"}, "prolip adapt"),
        ({"model.pretrained": None, "model.size": "huge"}, "unknown size"),
    ],
)
def test_what_it_refuses(table, changes, message):
    with pytest.raises(ValueError, match=message):
        make(**({"data.source": table} | changes))


def test_too_few_pairs_are_refused(tmp_path):
    table = write_table(tmp_path / "t", [(i, f"text {i}") for i in range(20)])
    with pytest.raises(ValueError, match="18 pairs"):
        make(**{"data.source": table})


def test_a_run_says_what_it_chose_and_what_came_out(table, tmp_path, capfd):
    changes = {"data.source": table, "data.workers": 0, "log.display": "plain", "log.tensorboard": False}
    run = prolip.train("finetune-small", changes, out=tmp_path / "run", samples=64, device="cpu")
    said = capfd.readouterr().err
    for text in (
        "start: scenes-tiny; 270,596 parameters are trained",
        "4 steps of 16 samples, 0.889 epochs of 72, learning rate 0.00051 after 1 warm-up steps",
        f"held out: split:held-out@0.1:{table}",
        f"stage 1 of 1, steps 1 to 4: likelihood, inclusion, masked, vib on split:train@0.1:{table} (72 samples)",
        "held-out R@1 (n = 8): ",
    ):
        assert text in said
    assert re.search(r"R@1 on the reference \(n = 500\): 7\d\.\d% before, \d+\.\d% after", said)
    assert any("held_out/reference_r1" in line for line in read_metrics(run))
    assert prolip.load(run, device="cpu").embed_texts(["red"]).mean.shape == (1, 64)


def test_lora_says_how_many_parameters_are_trained(table, tmp_path, capfd):
    pytest.importorskip("peft")
    changes = {"data.source": table, "data.workers": 0, "log.display": "plain", "model.lora_rank": 2}
    prolip.train("finetune-small", changes, out=tmp_path / "run", samples=32, device="cpu")
    assert "7,680 of 278,276 parameters are trained (LoRA of rank 2)" in capfd.readouterr().err
    assert (tmp_path / "run" / "model" / "adapter" / "adapter_model.safetensors").is_file()
