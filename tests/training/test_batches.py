import itertools
from dataclasses import replace

import pytest
import torch

from prolip.losses.objective import Objective
from prolip.model.create import create
from prolip.scenes import make_tokenizer
from prolip.training import batches as batches_module
from prolip.training.batches import BatchStream, find_data_spans, get_stage
from prolip.training.config import DataConfig, Stage, TrainConfig

A, B = "scenes:simple,size=32,length=40", "scenes:simple,size=32,length=40,seed=9"


@pytest.fixture(scope="module")
def model():
    return create("nano", make_tokenizer(16), seed=0)


def config(*before, steps=12, source=A):
    data = DataConfig(source=(source,), workers=0, augment=False)
    return TrainConfig(samples=8 * steps, batch_size=8, data=data, initial_stages=before)


def keys(batches, steps):
    return [batches.next_batch(step).keys for step in steps]


def test_stages_on_the_same_data_are_one_span():
    run = config(Stage(samples=16), Stage(samples=16, source=(B,)), Stage(samples=16, source=(B,)))
    assert [(span.source, span.num_steps) for span in find_data_spans(run)] == [
        ((A,), 2),
        ((B,), 4),
        ((A,), 6),
    ]


def test_stage_at_each_step():
    run = config(Stage(samples=16, objective=Objective(clip=1, ppcl=0)), Stage(samples=24))
    which = [run.stages.index(get_stage(run, step)) for step in range(run.steps)]
    assert which == [0] * 2 + [1] * 3 + [2] * 7
    with pytest.raises(ValueError, match="step 12 is after the last"):
        get_stage(run, run.steps)


def test_epoch_after_epoch_each_sample_once(model):
    batches = keys(BatchStream(config(steps=15), model), range(15))
    for epoch in range(3):
        seen = list(itertools.chain(*batches[5 * epoch : 5 * epoch + 5]))
        assert sorted(seen) == sorted({f"0-{i}" for i in range(40)})
    assert batches[:5] != batches[5:10]


def test_a_second_stage_reads_on_in_the_same_data_and_begins_other_data(model):
    plain = keys(BatchStream(config(), model), range(12))
    assert keys(BatchStream(config(Stage(samples=24)), model), range(12)) == plain
    other = keys(BatchStream(config(Stage(samples=24, source=(B,))), model), range(12))
    assert all(key.startswith("9-") for batch in other[:3] for key in batch)
    assert other[3:] != plain[:9]  # other data came before: another order
    assert set(itertools.chain(*other[3:8])) == set(itertools.chain(*plain[:5]))


def test_coming_back_to_earlier_data_is_not_a_repetition(model):
    run = config(Stage(samples=24), Stage(samples=24, source=(B,)), steps=9)
    seen = keys(BatchStream(run, model), range(9))
    assert seen[6:] != seen[:3]


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 6, 7, 10, 11])
def test_from_any_step_on(model, stop):
    """Epochs end after 5 steps; the data changes after 6."""
    run = config(Stage(samples=48, source=(B,)))
    whole = keys(BatchStream(run, model), range(12))
    first = BatchStream(run, model)
    keys(first, range(stop))
    second = BatchStream(run, model)
    second.load_state_dict(first.state_dict())
    assert keys(second, range(stop, 12)) == whole[stop:]


def test_pixels_are_the_same_after_a_resume(model):
    run = replace(config(), data=DataConfig(source=(A,), workers=0))
    first, second = BatchStream(run, model), BatchStream(run, model)
    keys(first, range(3))
    second.load_state_dict(first.state_dict())
    a, b = first.next_batch(3), second.next_batch(3)
    assert torch.equal(a.pixels, b.pixels)
    assert a.captions == b.captions


def test_the_loader_of_a_stage_is_closed_when_the_next_begins(monkeypatch):
    closed, make = [], batches_module.make_loader

    def noting(config, source, *args, **options):
        loader = make(config, source, *args, **options)
        close = loader.close
        loader.close = lambda: (closed.append(source), close())
        return loader

    monkeypatch.setattr(batches_module, "make_loader", noting)
    batches = BatchStream(
        config(Stage(samples=8, source=(B,)), steps=2), create("nano", make_tokenizer(16), seed=0)
    )
    keys(batches, range(2))
    assert closed == [(B,)]
