"""The reference: measured at the start and the end, zero-shot accuracy for labels, and an alarm when it falls."""

import io
from dataclasses import replace

import pytest
import torch
from PIL import Image

import prolip
from prolip.data.sources.labeled import open_labeled
from prolip.losses import Objective
from prolip.training import trainer
from prolip.training.config import (
    DataConfig,
    HeldOutConfig,
    LogConfig,
    ModelSpec,
    OptimizerConfig,
    ParallelConfig,
    TrainConfig,
)
from prolip.training.held_out import HeldOutEvaluator
from prolip.training.metric_writers import read_metrics
from prolip.training.reference import (
    RECALL,
    REFERENCE,
    ClassCaptions,
    describe_outcome,
    find_lost_ability,
    read_reference,
)
from tests.data.tar_files import write_tar

SCENES = "scenes:simple,size=48,length=40,seed=1,complete=1,levels=0/0/0/1"
HELD_OUT = HeldOutConfig(
    source="scenes:simple,size=48,length=20,seed=2", samples=40, at_start=True, reference=SCENES
)


def config(out, lr=1e-5, display="none", held_out=HELD_OUT):
    return replace(
        TrainConfig(), out=str(out), samples=48, batch_size=8, model=ModelSpec(pretrained="scenes-tiny"),
        data=DataConfig(source=("scenes:simple,size=48,length=30",), workers=0), held_out=held_out,
        objective=Objective(ppcl=0, likelihood=1, masked=0, inclusion=0, vib=0),
        optimizer=OptimizerConfig(lr=lr, warmup_steps=1), parallel=ParallelConfig(device="cpu"),
        log=LogConfig(display=display, tensorboard=False, every_steps=3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return prolip.load("scenes-tiny", device="cpu")


@pytest.fixture
def task(tmp_path):
    """Two classes, red and blue circles, in the layout of DataComp's tasks; one label can't be read."""
    files = []
    for number in range(12):
        file = io.BytesIO()
        Image.new("RGB", (48, 48), ("red", "blue")[number % 2]).save(file, "PNG")
        label = b"x" if number == 5 else str(number % 2).encode()
        files += [(f"{number:02}.png", file.getvalue()), (f"{number:02}.cls", label)]
    folder = tmp_path / "task"
    (folder / "test").mkdir(parents=True)
    (folder / "classnames.txt").write_text("red\nblue\n")
    (folder / "zeroshot_classification_templates.txt").write_text("a {c} thing\na {c} one\n")
    write_tar(folder / "test" / "0.tar", files)
    return str(folder)


def test_labeled_images_get_the_prompt_of_their_class(task):
    source = ClassCaptions(open_labeled(task))
    assert [source.read(i).captions for i in (0, 1, 2)] == [
        ("a red thing",),
        ("a blue thing",),
        ("a red thing",),
    ]
    with pytest.raises(ValueError, match="no integer"):
        source.read(5)


def test_accuracy_on_labels_is_that_of_a_loop(task, model):
    held_out = replace(HELD_OUT, reference=task)
    samples = read_reference(config("x", held_out=held_out), model)
    assert len(samples.captions) == 11
    evaluator = HeldOutEvaluator(model, samples)
    accuracy = evaluator.compute_recall(evaluator.embed(), of_images=True)
    names = ["a red thing", "a blue thing"]
    images, texts = (Image.new("RGB", (48, 48), color) for color in ("red", "blue")), model.embed_texts(names)
    answers = [
        int(model.match_probability_matrix(model.embed_images([image]), texts).argmax()) for image in images
    ]
    counts = [6, 5]  # images of each class
    assert accuracy == pytest.approx(sum(counts[i] * (answer == i) for i, answer in enumerate(answers)) / 11)


def test_samples_of_a_reference_are_spread_over_it(model):
    held_out = replace(HELD_OUT, samples=4)
    few, all_samples = (read_reference(config("x", held_out=held), model) for held in (held_out, HELD_OUT))
    assert few.captions == [all_samples.captions[i] for i in (0, 13, 26, 39)]


def test_run_measures_its_start_and_its_end(tmp_path, model):
    run = trainer.train(config(tmp_path / "run"))
    lines = [line for line in read_metrics(run) if REFERENCE in line]
    assert [line["step"] for line in lines] == [0, 6]
    evaluator = HeldOutEvaluator(model, read_reference(config("x"), model))
    assert lines[0][REFERENCE] == evaluator.compute_metrics(evaluator.embed())[RECALL]
    messages = [line["message"] for line in read_metrics(run) if "message" in line]
    assert messages[0].startswith("held-out R@1 (n = 20)")
    assert messages[1].startswith("R@1 on the reference (n = 40)")
    assert len(messages) == 2


def test_alarm_is_shown_and_written_when_the_ability_is_lost(tmp_path, capfd):
    run = trainer.train(config(tmp_path / "run", lr=0.1, display="plain"))
    messages = [line["message"] for line in read_metrics(run) if "ABILITY LOST" in str(line.get("message"))]
    assert len(messages) == 1
    message = messages[0]
    assert message in capfd.readouterr().err
    assert "--model.lora-rank" in message


def test_measuring_does_not_change_the_run(tmp_path):
    runs = [
        trainer.train(config(tmp_path / name, held_out=held_out))
        for name, held_out in (("with", HELD_OUT), ("without", HeldOutConfig()))
    ]
    one, other = (prolip.load(run, device="cpu").state_dict() for run in runs)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_resumed_run_is_compared_with_its_start(tmp_path):
    settings = config(tmp_path / "run")
    short = replace(settings, checkpoint=replace(settings.checkpoint, every_steps=2, async_save=False))
    whole = trainer.train(replace(short, out=str(tmp_path / "whole")))
    step = trainer.Trainer._step

    def fail(self, batch):
        if self.state.step == 3:
            raise KeyboardInterrupt
        return step(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", fail)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(short)
    resumed = trainer.train(short, resume=True)
    names = ("step", "message", RECALL, REFERENCE)
    whole_lines, resumed_lines = (
        [
            {name: line.get(name) for name in names}
            for line in read_metrics(run)
            if "message" in line or RECALL in line
        ]
        for run in (whole, resumed)
    )
    assert whole_lines == resumed_lines
    assert len(whole_lines) == 4  # the start, the end, and a message on each metric


@pytest.mark.parametrize(("after", "is_lost"), [(0.8, False), (0.76, False), (0.74, True)])
def test_a_drop_beyond_the_limit_is_a_loss(after, is_lost):
    start, end = {REFERENCE: 0.8, RECALL: 0.1}, {REFERENCE: after, RECALL: 0.2}
    assert (find_lost_ability(HELD_OUT, start, end) is not None) == is_lost
    lines = describe_outcome(HELD_OUT, start, end, {RECALL: 20, REFERENCE: 40})
    assert lines[0] == "held-out R@1 (n = 20): 10.0% before, 20.0% after"
    assert len(lines) == 2 + is_lost


def test_nothing_is_said_of_what_was_not_measured():
    assert describe_outcome(HeldOutConfig(), {}, {RECALL: 0.1}, {}) == []
    assert find_lost_ability(HeldOutConfig(), {REFERENCE: 1.0}, {REFERENCE: 0.0}) is None


@pytest.mark.parametrize("reference", ["pipe:cat a.tar", "features:x"])
def test_a_reference_must_be_files(reference, model):
    with pytest.raises(ValueError, match=r"held_out.reference"):
        read_reference(config("x", held_out=replace(HELD_OUT, reference=reference)), model)
