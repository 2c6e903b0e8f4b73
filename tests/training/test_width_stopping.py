"""Early stop of widths by the held-out loss."""

import logging
from dataclasses import replace
from functools import cache

import pytest
import torch

from prolip.adaptation.config import AdaptConfig
from prolip.adaptation.features import Encoders, compute_features
from prolip.adaptation.heads import make_initial_model, make_train_config
from prolip.adaptation.pairs import fit_map, split_samples, write_pairs
from prolip.adaptation.sizes import choose_sizes
from prolip.data.feature_pairs import FeatureLoader, FeaturePairs, ViewFractions
from prolip.gaussian import Gaussian
from prolip.losses.objective import ONE_SIDED, Objective
from prolip.model.prolip import ProLIP
from prolip.training import trainer
from prolip.training.config import CheckpointConfig, HeldOutConfig, LogConfig, ModelSpec
from prolip.training.metric_writers import read_metrics
from prolip.training.step import TrainModule
from prolip.training.trainer import train
from prolip.training.width_stopping import PASSES, WidthStopper, make_width_stopper
from tests.adaptation.pictures import Pictures
from tests.weights.encoders.tiny import Images, Texts

OBJECTIVE = Objective(ppcl=1.0, likelihood=1.0, inclusion=0.0, masked=0.0, vib=0.0)
ADAPT = AdaptConfig(
    dim=8, batch_size=16, epochs=3.0, image_views=1, text_crops=1, components=8, lr=0.01, progress=False
)
OF_TIME = ("samples_per_second", "data_wait", "peak_memory")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with pairs and an initial model; all but the training of an adaptation."""
    folder = tmp_path_factory.mktemp("heads")
    encoders = Encoders.from_objects(Images(), Texts())
    datasets = compute_features(encoders, Pictures(100), folder / "features", ADAPT)
    split = split_samples(datasets, 0.4, 0)
    sizes = choose_sizes(len(split.train), ADAPT)
    maps = fit_map(datasets.images[0], split.train, 8), fit_map(datasets.texts[0], split.train, 8)
    write_pairs(folder / "pairs" / "train", datasets, split.train, maps)
    write_pairs(folder / "pairs" / "held_out", datasets, split.held_out, maps)
    make_initial_model(encoders, maps, sizes, ADAPT).save_pretrained(folder / "initial")
    return folder, make_train_config(folder, sizes, len(split.train), ADAPT)


@pytest.fixture
def module(prepared):
    return TrainModule(ProLIP.from_folder(prepared[0] / "initial"), [OBJECTIVE])


def make_batches(folder):
    pairs = FeaturePairs(folder / "pairs" / "held_out")
    return list(FeatureLoader(pairs, 16, ViewFractions(images=0.3, texts=0.4), seed=0))


def read_widths(module):
    return {name: value.detach().clone() for name, value in module.named_parameters() if ".log_var." in name}


def read_average(stopper):
    return {name: value.clone() for name, value in stopper._average.items()}


def are_equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def train_a_little(stopper, generator):
    """Change every parameter of a stopper's module, as a step does."""
    with torch.no_grad():
        for value in stopper._module.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.1)
    if not stopper.stopped:  # a step after the stop would be undone
        stopper.after_step()


def test_one_sided_likelihoods_start_as_concentrated_as_the_models_own(module):
    temperatures = TrainModule(module.model, [replace(OBJECTIVE, one_sided=1.0)]).temperatures
    zeros = torch.zeros(1, module.model.config.embed_dim)
    z = Gaussian(zeros, zeros + module.model.config.init.log_var)
    own = temperatures["likelihood"]
    for name in ONE_SIDED:
        assert temperatures[name].gamma != own.gamma
        torch.testing.assert_close(temperatures[name].concentration(z), own.concentration(z))
        assert temperatures[name].logit_bias.item() == own.logit_bias.item()


def test_the_best_widths_are_kept_and_the_means_go_on(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=2)
    losses = [(5.0, 5.0), (4.0, 5.0), (4.5, 4.0), (3.0, 4.0), (3.0, 3.0), (3.5, 3.0), (2.0, 3.0)]
    history = []
    for present, kept in losses:  # an equal loss is no improvement
        train_a_little(stopper, generator)
        history.append(read_widths(module))
        assert not stopper.stopped or present == 2.0
        stopper.update(present, kept)
    assert stopper.stopped
    assert are_equal(read_widths(module), history[6])  # restored at index 5; then it was not asked again
    stopper.restore()
    assert are_equal(read_widths(module), history[3])


def test_stopping_restores_at_once_and_leaves_other_parameters(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=1)
    stopper.update(1.0, 1.0)
    best = read_widths(module)
    train_a_little(stopper, generator)
    others = {name: value.clone() for name, value in module.named_parameters() if ".log_var." not in name}
    stopper.update(1.5, 1.0)
    assert are_equal(read_widths(module), best)
    assert all(
        torch.equal(value, others[name]) for name, value in module.named_parameters() if name in others
    )
    assert len(others) > 4


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_the_average_is_a_mean_at_first_and_then_a_moving_one(prepared, module, generator, steps):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=1, averaged_steps=steps)
    history = []
    for _ in range(8):
        train_a_little(stopper, generator)
        history.append(read_widths(module))
    last = read_widths(module)
    present, _ = stopper.compare(OBJECTIVE)
    assert are_equal(read_widths(module), last)  # training goes on where it was
    stopper.update(present, present)
    stopper.restore()
    assert stopper.compute_loss(OBJECTIVE) == present
    for name, value in read_widths(module).items():
        expected = sum(widths[name].double() for widths in history[:steps]) / len(history[:steps])
        for widths in history[steps:]:
            expected = expected + (widths[name].double() - expected) / steps
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_step_after_the_stop_leaves_widths_as_they_were(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=1)
    train_a_little(stopper, generator)
    stopper.update(1.0, 1.0)
    best = read_widths(module)
    stopper.update(2.0, 1.0)
    assert stopper.stopped
    train_a_little(stopper, generator)
    assert not are_equal(read_widths(module), best)
    stopper.after_step()
    assert are_equal(read_widths(module), best)


def test_nothing_is_restored_before_the_first_evaluation(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=1)
    train_a_little(stopper, generator)
    before = read_widths(module)
    stopper.restore()
    assert are_equal(read_widths(module), before)


def test_a_loss_that_is_nan_is_no_improvement(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=1)
    stopper.update(1.0, 1.0)
    best = read_widths(module)
    train_a_little(stopper, generator)
    stopper.update(float("nan"), 1.0)
    assert stopper.stopped
    assert are_equal(read_widths(module), best)


def test_earlier_widths_are_compared_at_the_present_means(prepared, module, generator):
    stopper = WidthStopper(module, make_batches(prepared[0]), patience=3)
    present, kept = stopper.compare(OBJECTIVE)
    assert present == kept  # before the first evaluation there are no others
    stopper.update(present, kept)
    early = read_widths(module)
    train_a_little(stopper, generator)
    late = read_widths(module)
    present, kept = stopper.compare(OBJECTIVE)
    assert are_equal(read_widths(module), late)
    assert present == stopper.compute_loss(OBJECTIVE)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if name in early:
                value.copy_(early[name])
    assert kept == stopper.compute_loss(OBJECTIVE)
    assert present != kept


def test_the_loss_is_that_of_the_batches_without_dropout(prepared, module):
    batches = make_batches(prepared[0])
    stopper = WidthStopper(module, batches, patience=1)
    module.train()
    first, second = stopper.compute_loss(OBJECTIVE), stopper.compute_loss(OBJECTIVE)
    assert first == second
    assert module.model.training
    model, total = module.model.eval(), 0.0
    with torch.no_grad():
        for batch in batches:
            images = model.encode_components(batch.pixels, "image")
            texts = model.encode_components(batch.token_ids, "text")
            total += float(OBJECTIVE(images, texts, module.temperatures).total)
    assert first == pytest.approx(total / len(batches), rel=1e-6)


def test_make_width_stopper_reads_the_held_out_features_with_views(prepared, module):
    stopper = make_width_stopper(prepared[1], module)
    pairs = FeaturePairs(prepared[0] / "pairs" / "held_out")
    assert len(stopper._batches) == PASSES * (len(pairs) // 16)
    captions = [tuple(batch.captions) for batch in stopper._batches]
    assert len(set(captions)) == len(captions)
    again = make_width_stopper(prepared[1], module)
    assert stopper.compute_loss(OBJECTIVE) == again.compute_loss(OBJECTIVE)


def test_without_patience_there_is_no_stopper(prepared, module):
    config = replace(prepared[1], held_out=replace(prepared[1].held_out, width_patience=None))
    assert make_width_stopper(config, module) is None


@pytest.mark.parametrize("source", [None, "scenes:simple,length=20"])
def test_patience_needs_held_out_features(prepared, module, source):
    config = replace(prepared[1], held_out=HeldOutConfig(source=source, width_patience=2))
    with pytest.raises(ValueError, match="features:FOLDER"):
        make_width_stopper(config, module)


def make_config(prepared, out, patience):
    config = prepared[1]
    steps = config.samples // config.batch_size
    assert steps >= 9
    return replace(
        config, out=str(out), checkpoint=CheckpointConfig(every_steps=2, keep_last=2, best_metric=None),
        held_out=replace(config.held_out, every_steps=1, width_patience=patience),
        log=LogConfig(every_steps=1, display="none"),
    )  # fmt: skip


def read_run(folder):
    weights = ProLIP.from_folder(folder / "model").state_dict()
    metrics = [{k: v for k, v in line.items() if k not in OF_TIME} for line in read_metrics(folder)]
    return weights, metrics


def test_a_run_ends_with_the_widths_that_were_better_than_all_before(prepared, tmp_path, monkeypatch):
    history = []
    update = WidthStopper.update

    def record(self, present, kept):
        history.append((present, kept, read_average(self)))
        update(self, present, kept)

    monkeypatch.setattr(WidthStopper, "update", record)
    config = make_config(prepared, tmp_path / "run", patience=100)
    folder = train(replace(config, samples=3 * config.samples))  # so long that widths overfit
    better = [entry for index, entry in enumerate(history) if index == 0 or entry[0] < entry[1]]
    best = better[-1][2]
    assert 1 < len(better) < len(history)
    weights, metrics = read_run(folder)
    assert are_equal({name.removeprefix("model."): value for name, value in best.items()},
                     {name: value for name, value in weights.items() if ".log_var." in f".{name}"})  # fmt: skip
    logged = [line["held_out/loss"] for line in metrics if "held_out/loss" in line]
    assert logged == [present for present, _, _ in history]


def test_widths_stop_in_a_run_and_means_go_on(prepared, tmp_path, monkeypatch, caplog):
    losses = iter([(3.0, 3.0), (2.0, 3.0), (2.5, 2.0), (2.5, 2.0), *[(9.0, 2.0)] * 100])
    seen = []

    def compute(self, objective):
        seen.append((read_average(self), read_widths(self._module)))
        return next(losses)

    monkeypatch.setattr(WidthStopper, "compare", compute)
    with caplog.at_level(logging.INFO, "prolip.training"):
        folder = train(make_config(prepared, tmp_path / "run", patience=2))
    weights, _ = read_run(folder)
    best = {name.removeprefix("model."): value for name, value in seen[1][0].items()}
    assert all(torch.equal(weights[name], value) for name, value in best.items())
    assert all(are_equal(widths, seen[1][0]) for _, widths in seen[4:])
    assert not are_equal(*seen[1])
    assert "widths stopped at step 4" in caplog.text


@pytest.fixture(scope="module")
def whole_runs(prepared, tmp_path_factory):
    """whole_runs(1): weights and metrics of a run of this patience, trained once."""
    return cache(
        lambda patience: read_run(train(make_config(prepared, tmp_path_factory.mktemp("whole"), patience)))
    )


@pytest.mark.parametrize(
    "stop_at", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(7, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("patience", [1, 100])
def test_a_killed_run_that_is_resumed_equals_one_that_was_not(
    prepared, tmp_path, monkeypatch, whole_runs, patience, stop_at
):
    expected_weights, expected_metrics = whole_runs(patience)
    config = make_config(prepared, tmp_path / "killed", patience)
    step = trainer.Trainer._step

    def fail(self, batch):
        if self.state.step == stop_at:
            raise RuntimeError("killed")
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", fail)
        with pytest.raises(RuntimeError, match="killed"):
            train(config)
    torch.manual_seed(123)  # dropout must not depend on what came before
    weights, metrics = read_run(train(config, resume=True))
    assert are_equal(weights, expected_weights)
    assert metrics == expected_metrics


def test_features_are_no_data_of_other_models(prepared, tmp_path, nano_path):
    config = make_config(prepared, tmp_path / "run", 2)
    model = ModelSpec(pretrained=nano_path)
    objective = Objective(inclusion=0.0, masked=0.0)
    held_out = replace(config.held_out, width_patience=None)
    with pytest.raises(ValueError, match="no frozen encoders"):
        train(replace(config, model=model, objective=objective, held_out=held_out))
