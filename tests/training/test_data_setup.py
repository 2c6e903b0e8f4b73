import io
import shlex
import tarfile
from dataclasses import replace
from itertools import islice

import pytest
import torch
from PIL import Image

from prolip.data.combined_loader import CombinedLoader
from prolip.data.loader import Loader
from prolip.data.open import open_data
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader
from prolip.model.create import create
from prolip.preprocessing.image_views import ImageViews
from prolip.preprocessing.images import resize_and_crop
from prolip.training.config import DataConfig, HeldOutConfig, Stage, TrainConfig
from prolip.training.data_setup import describe_data, make_loader, read_held_out_samples

SIMPLE = "scenes:simple,size=32,length=200"
HARD = "scenes:hard,size=32,length=100"


def write_tar(path, files):
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="module")
def model(tokenizer):
    return create("nano", tokenizer)


@pytest.fixture
def streams(tmp_path):
    """Four shards of five pictures, behind a command; samples of stream s have keys that begin with s."""

    def pictures(name, shard):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (40 * shard, 0, 0)).save(file, "png")
        return [
            member
            for n in range(5)
            for member in ((f"{name}{shard}{n}.png", file.getvalue()), (f"{name}{shard}{n}.txt", b"a star"))
        ]

    for name in "ab":
        for shard in range(4):
            write_tar(tmp_path / f"{name}{shard}.tar", pictures(name, shard))
    return tuple(f"pipe:cat {shlex.quote(str(tmp_path))}/{name}{{0..3}}.tar" for name in "ab")


def config(*source, **data):
    choice = DataConfig(source=source, workers=0, **data)
    return TrainConfig(samples=320, batch_size=16, seed=7, data=choice)


def load(run, model, source=None, steps=6, rank=0, world_size=1):
    specs = run.data.source if source is None else source
    return make_loader(run, specs, model, steps=steps, rank=rank, world_size=world_size)


def keys(loader, count=2):
    return [batch.keys for batch in islice(loader, count)]


def test_files_give_the_loaders_own_batches(model):
    run = config(SIMPLE, HARD, weights=(3.0, 1.0))
    loader = load(run, model)
    assert isinstance(loader, Loader)
    sources = [open_data(SIMPLE), open_data(HARD)]
    expected = Loader(
        sources, loader._reader.preprocessor, global_batch_size=16, weights=(3.0, 1.0), seed=7, window=16
    )
    assert keys(loader) == keys(expected)
    assert keys(load(replace(run, seed=8), model)) != keys(expected)


def test_ranks_share_the_batch(model):
    run = config(SIMPLE)
    whole = keys(load(run, model))
    parts = [keys(load(run, model, rank=rank, world_size=2)) for rank in (0, 1)]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole


def test_preparation_follows_the_choices(model):
    plain = load(
        config(SIMPLE, augment=False, caption_choice="first", max_pixels=5000), model
    )._reader.preprocessor
    assert (plain.augmentation, plain.caption, plain.max_pixels) == (None, "first", 5000)
    assert plain.pixels == model.config.image.preprocessing
    run = config(SIMPLE)
    assert load(run, model)._reader.preprocessor.augmentation == run.data.augmentation


def test_words_are_dropped_from_as_many_captions_as_asked_for(model):
    """The same samples and captions; a caption that lost words has some of its tokens, in order."""
    whole = next(iter(load(config(SIMPLE, augment=False), model)))
    for share in (0.5, 1.0):
        fewer = next(iter(load(config(SIMPLE, augment=False, token_dropout=share), model)))
        assert (fewer.keys, fewer.captions) == (whole.keys, whole.captions)
        shorter = 0
        for ids, less in zip(whole.token_ids.tolist(), fewer.token_ids.tolist(), strict=True):
            left = iter(token for token in ids if token)
            kept = [token for token in less if token]
            assert all(token in left for token in kept), "a part, in the same order"
            assert kept
            shorter += len(kept) < sum(map(bool, ids))
        assert 0 < shorter <= len(whole)


def test_crops_and_masks_of_the_config_reach_the_preprocessor(model):
    preprocessor = load(config(SIMPLE, text_crops=0.4, image_masks=0.2), model)._reader.preprocessor
    assert preprocessor.text_crops == 0.4
    assert preprocessor.image_views == ImageViews(crop_fraction=0.0, mask_fraction=0.2)
    plain = load(config(SIMPLE), model)._reader.preprocessor
    assert (plain.text_crops, plain.image_views) == (0.0, None)


def test_a_stream_has_crops_too(model, streams):
    run = config(streams[0], text_crops=1.0)
    assert {text for batch in load(run, model, steps=2) for text in batch.captions} == {"a", "star"}


def test_more_general_captions_come_with_the_batch(model):
    run = config(f"{SIMPLE},general=true")
    batch = next(iter(load(run, model)))
    assert batch.general_token_ids.shape == batch.token_ids.shape
    assert next(iter(load(config(SIMPLE), model))).general_token_ids is None


def test_a_stage_has_its_own_source_or_that_of_the_run(model):
    run = config(SIMPLE, SIMPLE, weights=(3.0, 1.0))
    of_the_run = keys(load(run, model, source=()))
    assert of_the_run == keys(load(run, model))
    assert keys(load(run, model, source=(HARD,))) == keys(load(config(HARD), model)) != of_the_run


def test_one_stream(model, streams):
    loader = load(config(streams[0]), model, steps=3)
    assert isinstance(loader, StreamLoader)
    assert len(loader) == 3
    batches = list(loader)
    assert [len(batch) for batch in batches] == [16, 16, 16]
    assert {key[0] for batch in batches for key in batch.keys} == {"a"}
    for rank in (0, 1):
        own = load(config(streams[0]), model, steps=3, rank=rank, world_size=2)
        expected = StreamLoader(
            TarStream(streams[0]),
            own._reader.preprocessor,
            batch_size=8,
            samples_per_epoch=48,
            seed=7,
            rank=rank,
            world_size=2,
        )
        assert len(own) == 3
        assert keys(own, 3) == keys(expected, 3)


@pytest.mark.parametrize(
    ("weights", "expected"), [(None, [8, 8]), ((3.0, 1.0), [12, 4]), ((2.0, 1.0), [11, 5])]
)
def test_several_streams_have_fixed_shares(model, streams, weights, expected):
    loader = load(config(*streams, weights=weights), model, steps=3)
    assert isinstance(loader, CombinedLoader)
    batches = list(loader)
    assert len(batches) == len(loader) == 3
    for batch in batches:
        assert [sum(key[0] == name for key in batch.keys) for name in "ab"] == expected


def test_streams_and_files_mix(model, streams):
    loader = load(config(streams[0], SIMPLE), model, steps=40, rank=1, world_size=2)
    assert len(loader) == 40  # more than the files have: they go on through further passes
    for batch in islice(loader, 2):
        assert [key[0] == "a" for key in batch.keys] == [True] * 4 + [False] * 4


def test_workers_are_shared_among_streams(model, streams):
    run = config(*streams)
    for workers, expected in ((0, 0), (1, 1), (5, 2)):
        loader = load(replace(run, data=replace(run.data, workers=workers)), model)
        assert [one._worker_settings["num_workers"] for one in loader.loaders] == [expected] * 2


def test_captions_and_images_of_streams_can_be_named(model, tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "png")
    members = ((".look", file.getvalue()), (".png", b"broken"), (".said", b"a thing"), (".txt", b"a star"))
    write_tar(tmp_path / "x.tar", [(f"{n}{end}", content) for n in range(20) for end, content in members])
    run = config(f"pipe:cat {shlex.quote(str(tmp_path))}/x.tar", captions=("said",), image="look")
    assert set(next(iter(load(run, model))).captions) == {"a thing"}


@pytest.mark.parametrize(
    ("run", "world_size", "message"),
    [
        (config(), 1, "there is no data to train on: set --data.source"),
        (config(SIMPLE), 3, "batch_size 16 is not a multiple of the number of ranks, 3"),
        (
            config("scenes:simple,length=8"),
            1,
            "^batch_size 16 is more than the 8 samples of data.source: reduce it",
        ),
        (
            config("pipe:cat a", SIMPLE, weights=(1.0, 99.0)),
            1,
            "part of a rank's batch of 16 is less than one",
        ),
        (config("pipe:cat a", SIMPLE, weights=(-1.0, 1.0)), 1, "a weight must be a positive number"),
    ],
)
def test_what_cannot_be_loaded(run, world_size, message, model):
    with pytest.raises(ValueError, match=message):
        load(run, model, world_size=world_size)


def test_a_model_without_a_tokenizer(tokenizer):
    model = create("nano", tokenizer)
    model.tokenizer = None
    with pytest.raises(ValueError, match=r"set --model\.tokenizer"):
        load(config(SIMPLE), model)


def held_out(source, samples=5):
    return replace(config(SIMPLE), held_out=HeldOutConfig(source=source, samples=samples))


def test_held_out_samples_are_the_first_as_for_evaluation(model):
    pixels, _, captions = read_held_out_samples(held_out(SIMPLE), model)
    source = open_data(SIMPLE)
    expected = [source.read(number) for number in range(5)]
    assert captions == [max(sample.captions, key=len) for sample in expected]
    assert torch.equal(
        pixels,
        torch.stack([resize_and_crop(sample.image, model.config.image.preprocessing) for sample in expected]),
    )
    assert pixels.dtype == torch.uint8
    assert read_held_out_samples(config(SIMPLE), model) is None


def pictures(folder, good):
    for number in range(4):
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"a star {number}")
        if number not in good:
            (folder / f"{number}.png").write_bytes(b"no picture")
    return str(folder)


def test_bad_held_out_samples_are_left_out(model, tmp_path):
    *_, captions = read_held_out_samples(held_out(pictures(tmp_path, good=(0, 2, 3)), samples=2), model)
    assert captions == ["a star 0", "a star 2"]


def test_too_few_held_out_samples(model, tmp_path):
    with pytest.raises(ValueError, match=r"1 of its 4 samples can be used.* at least 2"):
        read_held_out_samples(held_out(pictures(tmp_path, good=(1,))), model)
    with pytest.raises(ValueError, match="is a stream"):
        read_held_out_samples(held_out("pipe:cat x.tar"), model)


def test_a_description_for_the_run_folder():
    run = config(SIMPLE, "https://host/{0..3}.tar?token=abc")
    run = replace(run, initial_stages=(Stage(samples=160, source=(HARD,)), Stage(samples=16)))
    hard, simple, stream = describe_data(run)
    assert simple == {"source": SIMPLE, "samples": 200, "fingerprint": open_data(SIMPLE).fingerprint()}
    assert (hard["source"], hard["samples"]) == (HARD, 100)
    assert stream["samples"] is None
    assert "abc" not in stream["source"]
    assert stream["fingerprint"]


def test_large_pictures_are_left_out_of_held_out_data_too(model, tmp_path):
    source = pictures(tmp_path, good=range(4))
    Image.new("RGB", (40, 40)).save(tmp_path / "1.png")
    run = held_out(source, samples=3)
    run = replace(run, data=replace(run.data, max_pixels=1000))
    assert read_held_out_samples(run, model).captions == ["a star 0", "a star 2", "a star 3"]


def test_loaders_get_the_limit_of_bad_samples_and_the_window(model, streams, monkeypatch):
    asked = {}
    for name in ("Loader", "StreamLoader"):
        monkeypatch.setattr(
            f"prolip.training.data_setup.{name}", lambda *a, name=name, **o: asked.update({name: o})
        )
    load(config(SIMPLE, max_bad_fraction=0.5, shuffle_window=3), model)
    load(config(streams[0], max_bad_fraction=0.5), model)
    assert (asked["Loader"]["max_bad_fraction"], asked["Loader"]["window"]) == (0.5, 3)
    assert asked["StreamLoader"]["max_bad_fraction"] == 0.5
