"""`adapt` with Python objects: pairs, folders, resuming, bad input."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from prolip.adaptation import AdaptConfig, Encoders, adapt_encoders
from prolip.adaptation.adapt import adapt
from prolip.adaptation.features import compute_features, iter_features
from prolip.adaptation.heads import ONE_SIDED, SIGLIP
from prolip.adaptation.pairs import split_samples
from prolip.adaptation.sizes import MAX_EPOCHS, MIN_EPOCHS, choose_sizes
from prolip.data.feature_pairs import FeaturePairs
from prolip.data.sample import Sample
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.losses.vmf_likelihood import GAMMA
from prolip.model.prolip import ProLIP
from prolip.training import trainer
from prolip.training.metric_writers import read_metrics
from prolip.weights.load import load
from tests.adaptation.pictures import Pictures, describe, draw, write_shard
from tests.weights.encoders.tiny import Images, Texts

FAST = AdaptConfig(
    dim=8, batch_size=16, epochs=2.0, image_views=1, text_crops=1, components=8, progress=False
)


def make_encoders(**options):
    return Encoders.from_objects(Images(**options), Texts())


def read_weights(out):
    return ProLIP.from_folder(out / "model").state_dict()


def are_equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    out = tmp_path_factory.mktemp("adapted") / "out"
    return adapt_encoders(make_encoders(), Pictures(80), out, FAST), out


def test_the_model_is_that_of_the_folder_and_has_widths(adapted):
    model, out = adapted
    loaded = load(out).set_encoders(Images(), Texts())
    texts = ["a red circle", "a blue star left of the small blue square"]
    a, b = model.embed_texts(texts), loaded.embed_texts(texts)
    assert torch.equal(a.mean, b.mean)
    assert torch.equal(a.log_var, b.log_var)
    assert (a.log_var == a.log_var[:, :1]).all()
    assert a.uncertainty[0] != a.uncertainty[1]
    assert model.embed_images([draw(0)]).shape == (1, 8)
    assert not model.training


def test_means_also_learn_from_losses_whose_temperatures_are_not_the_models(adapted):
    model, out = adapted
    lines = [line for line in read_metrics(out / "training") if "loss" in line]
    for line in lines:
        one_sided = line["loss/one_sided_images"] + line["loss/one_sided_texts"]
        assert line["loss"] == pytest.approx(
            line["loss/likelihood"] + ONE_SIDED * one_sided + SIGLIP * line["loss/siglip"], rel=1e-5
        )
    assert len(lines) > 2
    assert model.logit_parameters.gamma == GAMMA  # matches are the likelihood's


@pytest.mark.parametrize("num_images", [20, 500, 2_000, 6_000, 200_000, 10_000_000])
def test_sizes_are_sensible_for_any_number_of_images(num_images):
    sizes, larger = (choose_sizes(count, AdaptConfig()) for count in (num_images, 2 * num_images))
    assert sizes.batch_size <= num_images / 2
    assert MIN_EPOCHS <= larger.epochs <= sizes.epochs <= MAX_EPOCHS
    assert larger.count_samples(2 * num_images) > sizes.count_samples(num_images)
    assert 0 <= larger.image_dropout <= sizes.image_dropout < 1
    assert 0 < sizes.components <= larger.components
    steps = sizes.count_samples(num_images) // sizes.batch_size
    assert 20 <= steps < 1e5


def test_feature_pairs_are_the_mapped_features_of_the_encoders(adapted):
    """Each row of the arrays, computed again from its picture and captions."""
    model, out = adapted
    found = {}
    for part in ("train", "held_out"):
        pairs = FeaturePairs(out / "pairs" / part)
        for row, (first, last) in enumerate(pairwise(pairs.offsets)):
            found[tuple(pairs.captions[first:last]), part, row] = (
                pairs.images[row, 0],
                pairs.texts[first:last, 0],
            )
    assert len(found) == 80
    numbers = {tuple(describe(i)): [j for j in range(80) if describe(j) == describe(i)] for i in range(80)}
    for (captions, _, _), (image, texts) in found.items():
        with torch.no_grad():
            maps = [
                model.image.feature_map(torch.from_numpy(Images().encode(draw(i)[None])).half().float())[
                    0
                ].numpy()
                for i in numbers[captions]
            ]
            expected = model.text.feature_map(
                torch.from_numpy(Texts().encode(list(captions))).half().float()
            ).numpy()
        assert min(np.abs(one - image).max() for one in maps) < 0.02
        np.testing.assert_allclose(texts, expected, atol=0.02)


def test_held_out_images_are_not_trained_on(adapted):
    _, out = adapted
    train, held_out = (FeaturePairs(out / "pairs" / part) for part in ("train", "held_out"))
    assert len(train) + len(held_out) == 80
    rows = {row.tobytes() for row in train.images[:, 0]}
    assert not any(row.tobytes() in rows for row in held_out.images[:, 0])


def test_a_finished_run_is_not_computed_again(adapted):
    _, out = adapted
    before = read_weights(out)

    class Unread(Pictures):
        def read(self, index):
            assert index in (0, 79) or index < 80  # examples of metadata may be read
            return super().read(index)

    class Unused(Images):
        calls = 0

        def encode(self, batch):
            Unused.calls += len(batch)
            return super().encode(batch)

    adapt_encoders(Encoders.from_objects(Unused(), Texts()), Unread(80), out, FAST)
    assert Unused.calls == 1  # the probe
    assert are_equal(read_weights(out), before)


@pytest.mark.parametrize("fail_at", [0, 40])
def test_stopped_features_are_continued(adapted, tmp_path, fail_at):
    out, source = tmp_path / "out", Pictures(80, fail_at=fail_at)
    with pytest.raises(KeyboardInterrupt):
        adapt_encoders(make_encoders(), source, out, FAST)
    assert not (out / "model").exists()
    source.fail_at = None
    adapt_encoders(make_encoders(), source, out, FAST)
    assert are_equal(read_weights(out), read_weights(adapted[1]))


def test_features_that_stop_in_a_view_are_continued(adapted, tmp_path, monkeypatch):
    out, calls = tmp_path / "out", []
    encode = Texts.encode

    def fail(self, batch):
        calls.append(len(batch))
        if len(calls) == 3:  # the probe, the captions, then the crops
            raise RuntimeError("killed")
        return encode(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Texts, "encode", fail)
        with pytest.raises(RuntimeError, match="killed"):
            adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert are_equal(read_weights(out), read_weights(adapted[1]))


def test_a_training_that_was_killed_is_continued(adapted, tmp_path, monkeypatch):
    out = tmp_path / "out"
    step = trainer.Trainer._step

    def fail(self, batch):
        if self.state.step == 2:
            raise RuntimeError("killed")
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", fail)
        with pytest.raises(RuntimeError, match="killed"):
            adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    torch.manual_seed(9)
    adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert are_equal(read_weights(out), read_weights(adapted[1]))


def test_a_signal_in_training_stops_and_the_next_call_continues(adapted, tmp_path, monkeypatch, capfd):
    import os
    import signal

    out = tmp_path / "out"
    step = trainer.Trainer._step

    def interrupt(self, batch):
        if self.state.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", interrupt)
        with pytest.raises(KeyboardInterrupt, match="continues"):
            adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    printed = "".join(capfd.readouterr())
    assert "to continue: the same `prolip adapt` command" in printed
    assert "--resume" not in printed
    adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert are_equal(read_weights(out), read_weights(adapted[1]))


def test_bad_images_disappear_with_their_captions(tmp_path):
    """The others keep theirs: rows say which picture they are."""
    bad, blank = (3, 40, 59), (7, 41)
    data = write_shard(tmp_path / "a.tar", 60, bad=bad, blank=blank)
    config = replace(FAST, captions=("json:caption",))
    adapt_encoders(make_encoders(), data, tmp_path / "out", config)
    good = [i for i in range(60) if i not in (*bad, *blank)]
    seen = []
    for part in ("train", "held_out"):
        pairs = FeaturePairs(tmp_path / "out" / "pairs" / part)
        seen += [tuple(pairs.captions[a:b]) for a, b in pairwise(pairs.offsets)]
    assert sorted(seen) == sorted(tuple(describe(i)) for i in good)
    datasets = compute_features(make_encoders(), str(data), tmp_path / "out" / "features", config)
    split = split_samples(datasets, config.held_out, config.seed)
    assert sorted([*split.train, *split.held_out]) == good
    for indices, features, _ in iter_features(datasets.images[0]):
        for index, row in zip(indices, features, strict=True):
            np.testing.assert_allclose(row, Images().encode(draw(index)[None])[0], rtol=2e-3, atol=2e-3)
    # the rows of the arrays, in order, are those of the indices of the split
    pairs = FeaturePairs(tmp_path / "out" / "pairs" / "train")
    texts = [tuple(pairs.captions[a:b]) for a, b in pairwise(pairs.offsets)]
    assert texts == [tuple(describe(i)) for i in split.train]


def test_too_many_bad_images_end_the_run(tmp_path):
    data = write_shard(tmp_path / "a.tar", 60, bad=range(30))
    with pytest.raises(TooManyBadSamplesError):
        adapt_encoders(make_encoders(), data, tmp_path / "out", replace(FAST, captions=("json:caption",)))


@pytest.mark.parametrize("count", [0, 1, 19])
def test_too_few_images_are_refused(tmp_path, count):
    with pytest.raises(ValueError, match="20" if count else "no samples|20"):
        adapt_encoders(make_encoders(), Pictures(count), tmp_path / "out", FAST)


def test_twenty_images_are_enough(tmp_path):
    model = adapt_encoders(make_encoders(), Pictures(20), tmp_path / "out", FAST)
    assert model.embed_images([draw(0)]).uncertainty.isfinite().all()


def test_data_without_captions_is_refused(tmp_path):
    class Silent(Pictures):
        def read(self, index):
            return Sample(key=str(index), location="x", image=super().read(index).image, captions=())

    with pytest.raises(ValueError, match="caption"):
        adapt_encoders(make_encoders(), Silent(40), tmp_path / "out", FAST)


def test_a_wrong_first_call_does_not_stand_in_the_way(tmp_path):
    data, out = write_shard(tmp_path / "a.tar", 40), tmp_path / "out"
    right = replace(FAST, captions=("json:caption",))
    with pytest.raises(FileNotFoundError):
        adapt(tmp_path / "nowhere.tar", out, replace(FAST, lr=0.1))
    with pytest.raises(FileNotFoundError):
        adapt(data, out, replace(right, image_encoder=str(tmp_path / "no-model")))
    with pytest.raises(ValueError, match="captions"):
        adapt_encoders(make_encoders(), data, out, FAST)  # captions in txt: there are none

    class Infinite(Images):
        digest = "infinite"

        def encode(self, batch):
            return super().encode(batch) * np.inf

    with pytest.raises(ValueError, match=r"finite|NaN"):
        adapt_encoders(Encoders.from_objects(Infinite(), Texts()), data, out, replace(right, seed=5))
    assert not (out / "adapt.json").exists()
    adapt_encoders(make_encoders(), data, out, right)
    assert load(out).set_encoders(Images(), Texts()).embed_texts(["a star"]).uncertainty.isfinite().all()


def test_a_failed_call_keeps_the_features_of_an_earlier_one(adapted, tmp_path, monkeypatch):
    out = tmp_path / "out"

    def fail(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("prolip.adaptation.adapt.split_samples", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert (out / "adapt.json").exists()
    with pytest.raises(ValueError, match="lr"):
        adapt_encoders(make_encoders(), Pictures(80), out, replace(FAST, lr=0.1))
    adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert are_equal(read_weights(out), read_weights(adapted[1]))


@pytest.mark.parametrize("data", ["pipe:cat a.tar", "https://example.org/a.tar"])
def test_streams_are_refused(tmp_path, data):
    with pytest.raises(ValueError, match="stream"):
        adapt_encoders(make_encoders(), data, tmp_path / "out", FAST)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.1}, r"lr 0\.001 instead of 0\.1"),
        ({"text_crops": 0}, "text_crops 1 instead of 0"),
        ({"seed": 3}, "seed"),
    ],
)
def test_the_folder_of_other_options_is_refused(adapted, changes, message):
    with pytest.raises(ValueError, match=message):
        adapt_encoders(make_encoders(), Pictures(80), adapted[1], replace(FAST, **changes))


def test_the_folder_of_other_encoders_is_refused(adapted):
    texts = Texts()
    texts.digest = "2"
    with pytest.raises(ValueError, match=r"text encoder [0-9a-f]{16} instead of"):
        adapt_encoders(Encoders.from_objects(Images(), texts), Pictures(80), adapted[1], FAST)


def test_the_folder_of_other_data_is_refused(adapted):
    with pytest.raises(ValueError, match="data"):
        adapt_encoders(make_encoders(), Pictures(81), adapted[1], FAST)


def test_a_folder_with_other_content_is_left_alone(tmp_path, nano_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        adapt_encoders(make_encoders(), Pictures(40), tmp_path, FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="is a file"):
        adapt_encoders(make_encoders(), Pictures(40), file, FAST)


def test_a_damaged_run_file_is_refused(tmp_path):
    (tmp_path / "adapt.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(ValueError, match=r"adapt\.json"):
        adapt_encoders(make_encoders(), Pictures(40), tmp_path, FAST)


def test_features_beyond_float16_give_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"float16 ends at 6\.55e\+04"):
        adapt_encoders(make_encoders(scale=1e5), Pictures(40), tmp_path / "out", FAST)


def test_features_that_are_nan_name_the_encoder(tmp_path):
    class Broken(Images):
        def encode(self, batch):
            features = super().encode(batch)
            return features if batch.max() == 0 else features * np.nan

    with pytest.raises(ValueError, match="python:cells returned features that are NaN"):
        adapt_encoders(Encoders.from_objects(Broken(), Texts()), Pictures(40), tmp_path / "out", FAST)


def test_damaged_feature_pairs_are_written_again(adapted, tmp_path):
    import shutil

    out = shutil.copytree(adapted[1], tmp_path / "out")
    for run in ("training", "distillation"):
        shutil.rmtree(out / run)
    (out / "pairs" / "train" / "images.npy").write_bytes(b"")
    adapt_encoders(make_encoders(), Pictures(80), out, FAST)
    assert len(FeaturePairs(out / "pairs" / "train")) > 0


def test_no_view_fractions_without_views(tmp_path):
    config = replace(FAST, image_views=0, text_crops=0)
    adapt_encoders(make_encoders(), Pictures(40), tmp_path / "out", config)
    assert FeaturePairs(tmp_path / "out" / "pairs" / "train").images.shape[1] == 1


@pytest.mark.parametrize(
    "changes",
    [{"held_out": 0.0}, {"held_out": 1.0}, {"image_views": -1}, {"lr": 0.0}, {"epochs": 0.0}, {"dim": 0},
     {"batch_size": 0}, {"batch_size": 1}, {"components": 0}, {"dropout": 1.0}, {"text_crop_fraction": 1.5},
     {"contrastive": -1.0}],
)  # fmt: skip
def test_invalid_options_are_refused_by_name(changes):
    with pytest.raises((ValueError, TypeError), match=next(iter(changes))):
        replace(FAST, **changes)
