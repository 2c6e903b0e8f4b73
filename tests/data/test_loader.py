"""The stream is a function of the seed: the same for any ranks, workers and interruptions; bad samples are counted."""

import gc
import io
import json
import logging
import multiprocessing
import os
import signal
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.data.batch import Preprocessor
from prolip.data.config import LoaderConfig, StreamLoaderConfig
from prolip.data.loader import Loader
from prolip.data.sample import BadSampleError, Sample
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.data.source import compute_fingerprint
from prolip.data.sources.tar_stream import TarStream
from prolip.preprocessing.augmentation import Augmentation
from prolip.preprocessing.images import ImagePreprocessing


class FakeSource:
    """Small noisy PNGs in memory; those of `bad` are refused, those of `broken` are no pictures."""

    def __init__(self, *chunks, name="fake", bad=(), broken=(), failing=()):
        self.name, self.chunks = name, np.array(chunks, dtype=np.int64)
        self.bad, self.broken, self.failing = frozenset(bad), frozenset(broken), frozenset(failing)

    def __len__(self):
        return int(self.chunks.sum())

    def read(self, index):
        if index in self.failing:
            raise PermissionError(13, "Permission denied")
        if index in self.bad:
            raise BadSampleError("no caption", f"{self.name}: row {index}")
        content = b"no picture"
        if index not in self.broken:
            file = io.BytesIO()
            noise = np.random.default_rng(index).integers(0, 256, (6, 7, 3), dtype=np.uint8)
            Image.fromarray(noise).save(file, "PNG")
            content = file.getvalue()
        return Sample(
            f"{self.name}{index}", f"{self.name}: row {index}", content, (f"a {index}", "a thing", "a star")
        )

    def fingerprint(self):
        return compute_fingerprint(self.name, *self.chunks)


@pytest.fixture
def preprocessor(tokenizer):
    return Preprocessor(pixels=ImagePreprocessing(size=4), tokenizer=tokenizer, augmentation=Augmentation())


@pytest.fixture
def loader(preprocessor):
    def make(source=None, **options):
        return Loader(
            source or FakeSource(10, 7, 7), preprocessor, **{"global_batch_size": 6, "seed": 3, **options}
        )

    return make


def batch_rows(batch):
    """All of a batch, to compare bit for bit."""
    return [
        (number, key, caption, pixels.tobytes(), ids.tolist())
        for number, key, caption, pixels, ids in zip(
            batch.sample_indices.tolist(),
            batch.keys,
            batch.captions,
            batch.pixels.numpy(),
            batch.token_ids,
            strict=True,
        )
    ]


def numbers(batches):
    return [number for batch in batches for number in batch.sample_indices.tolist()]


def streams(batches):
    return [batch_rows(batch) for batch in batches]


def without_ids(stream):
    """Rows of ids are as long as the longest caption of a rank's batch."""
    return [row[:-1] for batch in stream for row in batch]


def through_json(state):
    return json.loads(json.dumps(state))


# The stream


def test_every_sample_comes_once_an_epoch_and_each_epoch_is_another(loader):
    one = loader()
    epochs = [numbers(one) for _ in range(3)]
    assert all(sorted(epoch) == list(range(24)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert (one.epoch, one.position) == (3, 0)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("total", [24, 25, 29])
def test_ranks_share_the_same_global_stream(loader, total, drop_last):
    alone = loader(FakeSource(total), drop_last=drop_last)
    whole = without_ids(streams(alone))
    assert len({row[0] for row in whole}) == len(whole) == (24 if drop_last else total)
    for world_size in (2, 3):
        ranks = [
            loader(FakeSource(total), drop_last=drop_last, rank=r, world_size=world_size)
            for r in range(world_size)
        ]
        parts = [list(rank) for rank in ranks]
        assert [len(part) for part in parts] == [len(rank) for rank in ranks]
        steps = [[part[i] for part in parts if i < len(part)] for i in range(len(alone))]
        assert without_ids(streams(batch for step in steps for batch in step)) == whole
        full = steps[:4]
        assert all(len(batch) == 6 // world_size for step in full for batch in step)
        if not drop_last and total > 24:
            sizes = [len(batch) for batch in steps[4]]
            assert sum(sizes) == total - 24
            assert max(sizes) - min(sizes) <= 1
            assert len(sizes) == min(world_size, total - 24)


def test_what_drop_leaves_out_comes_in_other_epochs(loader):
    one = loader(FakeSource(29))
    left_out = [set(range(29)) - set(numbers(one)) for _ in range(4)]
    assert all(len(out) == 5 for out in left_out)
    assert not set.intersection(*left_out)


def test_with_samples_per_epoch_nothing_is_left_out(loader):
    one = loader(FakeSource(29), samples_per_epoch=14)
    assert len(one) == 2
    met = [number for _ in range(29) for number in numbers(one)]
    assert len(met) == 29 * 12
    assert all(sorted(met[start : start + 29]) == list(range(29)) for start in range(0, len(met), 29))


def test_unshuffled_is_as_the_sources_lie(loader):
    one = loader(
        [FakeSource(5, name="a"), FakeSource(3, name="b")],
        shuffle=False,
        drop_last=False,
        global_batch_size=3,
    )
    assert [key for batch in one for key in batch.keys] == [f"a{i}" for i in range(5)] + [
        f"b{i}" for i in range(3)
    ]


def test_weights_set_the_fraction_of_each_source_and_each_sample_comes_once_per_pass(loader):
    sources = [FakeSource(5, name="a"), FakeSource(40, name="b")]
    one = loader(sources, weights=[1, 3], samples_per_epoch=120)
    met = numbers(one) + numbers(one)
    of_a = [number for number in met if number < 5]
    assert 30 < len(of_a) < 90
    assert all(sorted(of_a[start : start + 5]) == list(range(5)) for start in range(0, len(of_a) - 4, 5))
    of_b = [number - 5 for number in met if number >= 5]
    assert all(sorted(of_b[start : start + 40]) == list(range(40)) for start in range(0, len(of_b) - 39, 40))


def test_augmentation_differs_by_epoch_but_not_by_run(loader):
    one, again = loader(), loader()
    first, second = ({row[0]: row[3] for batch in one for row in batch_rows(batch)} for _ in range(2))
    assert {row[0]: row[3] for batch in again for row in batch_rows(batch)} == first
    assert sum(first[number] == second[number] for number in first) < 3
    other = {row[0]: row[3] for batch in loader(seed=4) for row in batch_rows(batch)}
    assert sum(first[number] == other[number] for number in first) < 3


def test_the_global_generator_is_left_alone(loader):
    before = torch.get_rng_state()
    numbers(loader())
    assert torch.equal(torch.get_rng_state(), before)


# Interruptions


@pytest.mark.parametrize("bad", [(), (3, 9, 20)])
def test_resume_from_any_batch_gives_the_same_stream(loader, bad):
    def make():
        return loader(FakeSource(10, 7, 7, bad=bad), max_bad_fraction=0.5)

    whole = make()
    epochs = [streams(whole) for _ in range(2)]
    for done in range(5):
        first, second = make(), make()
        assert streams(islice(first, done)) == epochs[0][:done]
        assert first.position == done
        second.load_state_dict(through_json(first.state_dict()))
        assert streams(second) == epochs[0][done:]
        assert streams(second) == epochs[1]
        assert second.error_counts.state_dict() == whole.error_counts.state_dict()


def test_a_broken_off_loop_is_taken_up_by_the_next(loader):
    whole = streams(loader())
    one = loader()
    assert streams(islice(one, 1)) + streams(islice(one, 2)) + streams(one) == whole
    assert one.epoch == 1


def test_going_on_with_other_ranks(loader):
    whole = without_ids(streams(loader()))
    halves = [loader(rank=r, world_size=2) for r in range(2)]
    start = list(zip(*(islice(half, 2) for half in halves), strict=True))
    thirds = [loader(rank=r, world_size=3) for r in range(3)]
    for third in thirds:
        third.load_state_dict(through_json(halves[0].state_dict()))
    rest = list(zip(*thirds, strict=True))
    assert without_ids(streams(batch for step in start + rest for batch in step)) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed was 3, and is 4 now"),
        ({"global_batch_size": 8}, "global_batch_size was 6"),
        ({"shuffle": False}, "shuffle was True"),
        ({"window": 3}, "window was 16"),
        ({"weights": [1.0]}, "weights was None"),
        ({"samples_per_epoch": 12}, "samples_per_epoch was 24"),
        ({"drop_last": False}, "drop_last was True"),
        ({"source": FakeSource(12, 6, 6)}, "the data has changed"),
    ],
)
def test_a_position_of_another_stream_is_refused(loader, change, message):
    one = loader()
    next(iter(one))
    other = loader(**change)
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(through_json(one.state_dict()))
    assert (other.epoch, other.position) == (0, 0)


@pytest.mark.parametrize(
    "change", [{"epoch": -1}, {"batch": 5}, {"batch": "1"}, {"batch": None}, {"error_counts": 3}]
)
def test_load_state_dict_refuses_invalid_values(loader, change):
    one = loader()
    with pytest.raises(ValueError, match=r"[Ss]aved (position|state)|state of the error counts|saved state"):
        one.load_state_dict({**one.state_dict(), **change})
    with pytest.raises(ValueError, match="it has no 'version'"):
        one.load_state_dict({})


@pytest.mark.parametrize("done", [1, 4])
def test_a_loop_doesnt_go_on_in_a_loader_that_was_moved(loader, done):
    one = loader()
    start = one.state_dict()
    outer = iter(one)
    for _ in range(done):
        next(outer)
    one.load_state_dict(start)
    with pytest.raises(RuntimeError, match="closed, loaded a state or was iterated again"):
        next(outer)
    assert (one.epoch, one.position) == (0, 0)
    first = iter(one)
    next(first)
    next(iter(one))
    with pytest.raises(RuntimeError, match="closed, loaded a state or was iterated again"):
        next(first)


# Bad samples


def test_bad_samples_are_replaced_and_counted(loader, caplog):
    source = FakeSource(10, 7, 7, name="s", bad=[1, 8], broken=[5])
    one = loader(source, max_bad_fraction=0.5)
    with caplog.at_level(logging.WARNING, logger="prolip.data"):
        batches = list(one)
    assert all(len(batch) == 6 for batch in batches)
    assert all(len(set(batch.sample_indices.tolist())) == 6 for batch in batches)
    met = numbers(batches)
    assert set(met) == set(range(24)) - {1, 5, 8}
    reasons = one.error_counts.reasons
    assert one.error_counts.tried == 24 + one.error_counts.bad  # each bad one led to one more
    assert reasons["no caption"] >= 2
    assert reasons["unreadable image"] >= 1
    assert caplog.messages == [f"epoch 0: {one.error_counts.summary()}"]


def test_substitutes_of_a_weighted_source_come_from_it(loader):
    sources = [FakeSource(50, name="a", bad=range(0, 50, 5)), FakeSource(50, name="b")]
    good = [FakeSource(50, name="a"), FakeSource(50, name="b")]
    counts = [
        [
            sum(number < 50 for number in batch.sample_indices.tolist())
            for batch in loader(data, weights=[1, 1], max_bad_fraction=1)
        ]
        for data in (sources, good)
    ]
    assert counts[0] == counts[1]


def test_dropped_samples_are_counted_once_each(loader):
    one = loader(FakeSource(10, 7, 7, bad=[1, 8, 20]), on_bad="drop", max_bad_fraction=0.5)
    assert sorted(numbers(one)) == sorted(set(range(24)) - {1, 8, 20})
    assert (one.error_counts.tried, one.error_counts.bad) == (24, 3)
    numbers(one)
    assert (one.error_counts.tried, one.error_counts.bad) == (24, 3)  # the tally is of an epoch


def test_a_batch_of_which_all_is_dropped_is_passed_over(loader):
    one = loader(FakeSource(13, bad=[12]), on_bad="drop", shuffle=False, drop_last=False)
    assert [len(batch) for batch in one] == [6, 6]
    assert (one.error_counts.tried, one.epoch) == (13, 1)


def test_where_nothing_is_good_loading_ends_at_once(loader):
    one = loader(FakeSource(5000, name="bad.tar", bad=range(5000)), max_bad_fraction=1.0)
    with pytest.raises(TooManyBadSamplesError, match=r"26 of 26 samples .* bad.tar: row \d+: no caption"):
        next(iter(one))


def test_too_many_bad_samples_end_the_epoch(loader):
    one = loader(FakeSource(2400, bad=range(0, 2400, 8)), global_batch_size=60)
    with pytest.raises(TooManyBadSamplesError, match=r"max_bad_fraction=0.1"):
        numbers(one)
    assert one.error_counts.bad > 100
    assert one.error_counts.tried < 1000
    few = loader(FakeSource(24, bad=[0, 1, 2]), on_bad="drop")
    with pytest.raises(TooManyBadSamplesError, match="3 of 24"):
        numbers(few)
    assert few.position == 4  # only the end of the epoch could tell


def test_with_no_other_sample_left_the_batch_is_smaller(loader):
    one = loader(FakeSource(6, bad=[2]), max_bad_fraction=0.5)
    assert sorted(numbers(one)) == [0, 1, 3, 4, 5]


# Workers


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
def test_workers_make_no_difference(loader):
    source = FakeSource(10, 7, 7, bad=[3], broken=[11])
    plain = loader(source, max_bad_fraction=0.5)
    epochs = [streams(plain) for _ in range(2)]
    several = loader(source, max_bad_fraction=0.5, num_workers=3, prefetch_factor=1)
    assert [streams(several) for _ in range(2)] == epochs
    assert several.error_counts.state_dict() == plain.error_counts.state_dict()
    assert streams(islice(several, 1)) == streams(islice(plain, 1))  # leave with batches under way
    one = loader(source, max_bad_fraction=0.5, num_workers=1)
    one.load_state_dict(through_json(several.state_dict()))
    rest = streams(plain)
    assert streams(one) == rest
    assert streams(several) == rest


def test_workers_end_with_the_loader(loader):
    one = loader(num_workers=2)
    loop = iter(one)
    next(loop)
    assert len(multiprocessing.active_children()) == 2
    one.close()
    assert not multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="closed"):
        next(loop)
    assert len(streams(islice(one, 1))) == 1
    del one
    gc.collect()
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_spawned_workers_make_no_difference(loader):
    whole = streams(loader())
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        assert streams(loader(num_workers=1)) == whole
    finally:
        multiprocessing.set_start_method(before, force=True)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_disk_stays_an_os_error(loader, workers):
    one = loader(FakeSource(24, failing=[13]), num_workers=workers, shuffle=False)
    with pytest.raises(PermissionError) as error:
        numbers(one)
    assert str(error.value) == "[Errno 13] Permission denied"  # whoever read it
    assert one.position == 2
    assert not multiprocessing.active_children()


def test_loader_raises_worker_errors_that_cant_be_pickled(loader, monkeypatch):
    class OddError(ValueError):
        def __init__(self, what, where):
            super().__init__(f"{what} in {where}")

    def read(self, index):
        raise OddError("nonsense", "row 3")

    monkeypatch.setattr(FakeSource, "read", read)
    with pytest.raises(RuntimeError, match="OddError: nonsense in row 3"):
        numbers(loader(num_workers=1))


# Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch_size": 0}, "global_batch_size must be"),
        ({"world_size": 4, "rank": 0}, "global_batch_size 6 .* 4 ranks"),
        ({"world_size": 2, "rank": 2}, "rank must be from 0"),
        ({"global_batch_size": 25}, "24 samples .* 25"),
        ({"samples_per_epoch": 5}, "5 samples .* 6"),
        ({"max_bad_fraction": 1.5}, "max_bad_fraction must be"),
        ({"max_bad_fraction": float("nan")}, "max_bad_fraction must be"),
        ({"num_workers": -1}, "num_workers must be"),
        ({"prefetch_factor": 0}, "prefetch_factor must be"),
        ({"on_bad": "ignore"}, "on_bad 'ignore'"),
        ({"source": [FakeSource(24), FakeSource(0, name="none.csv")]}, "none.csv"),
    ],
)
def test_settings_are_checked(loader, options, message):
    with pytest.raises(ValueError, match=message):
        loader(**options)


def test_equal_samples_of_two_sources_are_augmented_differently(preprocessor):
    loader = Loader([FakeSource(6), FakeSource(6)], preprocessor, global_batch_size=12, seed=3)
    (batch,) = loader
    pixels = dict(zip(batch.sample_indices.tolist(), batch.pixels.numpy(), strict=True))
    assert any((pixels[n] != pixels[n + 6]).any() for n in range(6))


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_with_bad_samples_too_the_ranks_share_one_stream(loader, world_size):
    source = FakeSource(60, 60, 60, 60, bad=range(0, 240, 7))
    options = {"global_batch_size": 24, "max_bad_fraction": 1.0}
    one = [batch_rows(batch) for batch in loader(source, **options)]
    ranks = [list(loader(source, **options, rank=rank, world_size=world_size)) for rank in range(world_size)]
    together = [[row for part in parts for row in batch_rows(part)] for parts in zip(*ranks, strict=True)]
    assert together == one
    for batch in one:
        assert len(batch) == 24
        assert len({row[0] for row in batch}) == 24, "no sample twice in a global batch"


def test_other_batches_get_other_substitutes(loader):
    source = FakeSource(400, bad=range(0, 400, 5))
    drawn = [set(numbers([batch])) for batch in loader(source, global_batch_size=40, max_bad_fraction=1.0)]
    regular = [
        set(numbers([batch]))
        for batch in loader(source, global_batch_size=40, max_bad_fraction=1.0, on_bad="drop")
    ]
    substitutes = [batch - good for batch, good in zip(drawn, regular, strict=True)]
    assert all(substitutes)
    assert len({frozenset(found) for found in substitutes}) == len(substitutes)


def test_the_window_is_how_many_chunks_are_mixed(loader):
    source = FakeSource(*(10,) * 20)
    for window in (1, 4):
        order = np.array(numbers(loader(source, window=window, global_batch_size=10, drop_last=False))) // 10
        mixed = [len(set(order[start : start + 10 * window])) for start in range(0, 200, 10 * window)]
        assert set(mixed) == {window}


def broken(count, of):
    """Shards of ten, of which some have nothing but damage."""

    class Broken(FakeSource):
        def read(self, index):
            if index % 10 == 0 and index // 10 < count:
                raise BadSampleError("broken shard", f"{index // 10}.tar")
            return super().read(index)

    return Broken(*(10,) * of)


def test_broken_shards_have_a_limit_of_their_own(loader):
    """Each is one bad sample of 300, but what is lost with it is not known."""
    assert len(list(loader(broken(3, of=30), on_bad="drop", drop_last=False))) == 50
    with pytest.raises(
        TooManyBadSamplesError, match=r"4 of 30 shards are broken, more than max_bad_fraction=0.1"
    ):
        list(loader(broken(4, of=30), on_bad="drop", drop_last=False))
    assert list(loader(broken(1, of=3), on_bad="drop"))  # one is always borne


@pytest.mark.parametrize(
    "change", [{"caption": "first"}, {"augmentation": None}, {"max_pixels": 99}, {"tokenizer": None}]
)
def test_a_position_in_samples_that_were_prepared_otherwise_is_refused(preprocessor, change):
    state = Loader(FakeSource(12), preprocessor, global_batch_size=6).state_dict()
    Loader(FakeSource(12), replace(preprocessor), global_batch_size=6).load_state_dict(state)
    with pytest.raises(ValueError, match="preprocessing has changed"):
        Loader(FakeSource(12), replace(preprocessor, **change), global_batch_size=6).load_state_dict(state)


def test_loader_takes_a_config_or_its_fields(preprocessor):
    options = {"global_batch_size": 6, "seed": 3, "weights": [2, 1], "window": 1, "samples_per_epoch": 12}
    sources = [FakeSource(10, 7), FakeSource(9, name="other")]
    one, other = (
        Loader(sources, preprocessor, LoaderConfig(**options)),
        Loader(sources, preprocessor, **options),
    )
    assert one.state_dict() == other.state_dict()
    assert streams(one) == streams(other)
    with pytest.raises(
        TypeError, match=r"^Loader\(\) has no option 'batch_size': did you mean global_batch_size\?"
    ):
        Loader(sources, preprocessor, batch_size=6)
    with pytest.raises(TypeError, match=r"^Loader\(\): config must be LoaderConfig, not StreamLoaderConfig"):
        Loader(sources, preprocessor, StreamLoaderConfig(batch_size=6))


def test_a_seed_is_a_whole_number_of_any_kind(loader):
    assert streams(loader(seed=np.int64(3))) == streams(loader(seed=3))
    json.dumps(loader(seed=np.int64(3)).state_dict())
    for wrong in (1.5, None, "a"):
        with pytest.raises(TypeError):
            loader(seed=wrong)


def test_killed_worker_raises_child_process_error(loader):
    one = loader(FakeSource(600), num_workers=1, prefetch_factor=1)
    with pytest.raises(ChildProcessError, match="was killed"):  # noqa: PT012
        for _ in one:
            for child in multiprocessing.active_children():
                child.kill()
    assert not multiprocessing.active_children()
    done = one.position
    assert len(list(one)) == len(one) - done
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, 16])
def test_regular_damage_doesnt_starve_the_substitutes(loader, every):
    """Every fourth row bad, and 64 places a batch: no place may have bad substitutes only."""
    source = FakeSource(4000, bad=range(0, 4000, every))
    one = loader(source, global_batch_size=64, max_bad_fraction=1.0)
    assert {len(batch) for batch in islice(one, 20)} == {64}
    assert one.error_counts.bad / one.error_counts.tried == pytest.approx(1 / every, rel=0.25)


def test_loader_refuses_what_is_not_a_source(preprocessor):
    with pytest.raises(TypeError, match=r"open_data\('some/path'\)"):
        Loader("some/path", preprocessor, global_batch_size=4)
    with pytest.raises(TypeError, match="StreamLoader"):
        Loader(TarStream(["pipe:true"]), preprocessor, global_batch_size=4)


def test_a_batch_shows_itself_without_its_pixels(loader):
    text = repr(next(iter(loader())))
    assert "fake" in text
    assert len(text) < 1000


def test_a_batch_is_read_as_it_lies(loader):
    """Parquet's row groups, and shards, are then met once a batch."""

    class Noted(FakeSource):
        read_calls = ()

        def read(self, index):
            self.read_calls += (index,)
            return super().read(index)

    source = Noted(10, 7, 7)
    for batch in loader(source):
        assert (
            list(source.read_calls) == sorted(batch.sample_indices.tolist()) != batch.sample_indices.tolist()
        )
        source.read_calls = ()


def test_with_weights_nothing_is_left_out(loader):
    """The default epoch, 31 samples in batches of 6, is 30: the next one goes on where it ended."""
    one = loader([FakeSource(13, name="a"), FakeSource(18, name="b")], weights=[1, 1])
    assert len(one) == 5
    met = [number for _ in range(12) for number in numbers(one)]
    of_a = [number for number in met if number < 13]
    assert all(sorted(of_a[start : start + 13]) == list(range(13)) for start in range(0, len(of_a) - 12, 13))
    of_b = [number - 13 for number in met if number >= 13]
    assert all(sorted(of_b[start : start + 18]) == list(range(18)) for start in range(0, len(of_b) - 17, 18))


def test_without_drop_last_all_samples_of_an_epoch_come(loader):
    one = loader(FakeSource(29), samples_per_epoch=14, drop_last=False)
    assert [len(batch) for batch in one] == [6, 6, 2]
    assert [len(batch) for batch in loader(FakeSource(4), drop_last=False)] == [4]
    weighted = loader([FakeSource(5, name="a"), FakeSource(8, name="b")], weights=[1, 1], drop_last=False)
    assert sum(map(len, weighted)) == 13


@pytest.mark.parametrize(("world_size", "count", "borne"), [(1, 3, True), (3, 4, False)])
def test_limit_of_broken_shards_is_divided_among_ranks(loader, world_size, count, borne):
    one = loader(
        broken(count, of=30), on_bad="drop", drop_last=False, shuffle=False, global_batch_size=300,
        world_size=world_size, rank=0, max_bad_fraction=0.1,
    )  # fmt: skip
    if borne:
        assert list(one)
    else:
        with pytest.raises(TooManyBadSamplesError, match="4 of 10 shards are broken"):
            list(one)


def test_the_limit_of_broken_shards_is_of_all_sources(loader):
    assert list(loader([FakeSource(20, name="a"), broken(3, of=30)], on_bad="drop", drop_last=False))


def test_a_bad_sample_is_tried_once_a_batch(loader):
    """A weighted source's substitutes come from it first, then from all: among them are its own again."""
    sources = [FakeSource(24, name="a", bad=range(24)), FakeSource(24, name="b", bad=range(0, 24, 2))]
    one = loader(sources, weights=[1, 1], max_bad_fraction=1.0)
    for number in range(len(one)):
        locations = [error.location for error in one._reader[0, number].errors]
        assert len(set(locations)) == len(locations) > 6


def test_a_weighted_source_without_a_good_sample_is_replaced_by_others(loader):
    sources = [FakeSource(24, name="a", bad=range(24)), FakeSource(240, name="b")]
    one = loader(sources, weights=[1, 1], max_bad_fraction=1.0)
    assert all(len(batch) == 6 and min(batch.sample_indices.tolist()) >= 24 for batch in one)
    nothing = loader(
        [FakeSource(500, bad=range(500)), FakeSource(500, bad=range(500))],
        weights=[1, 1],
        max_bad_fraction=1.0,
    )
    with pytest.raises(TooManyBadSamplesError, match="26 of 26 samples"):
        next(iter(nothing))


@pytest.mark.slow
def test_weighted_ranks_share_one_stream_with_bad_samples_too(loader):
    sources = [FakeSource(29, name="a", bad=range(29)), FakeSource(120, name="b", bad=range(0, 120, 2))]
    options = {"weights": [1, 1], "global_batch_size": 24, "max_bad_fraction": 1.0, "samples_per_epoch": 240}
    one = [batch.sample_indices.tolist() for batch in loader(sources, **options)]
    ranks = [list(loader(sources, **options, rank=rank, world_size=3)) for rank in range(3)]
    together = [
        [n for part in parts for n in part.sample_indices.tolist()] for parts in zip(*ranks, strict=True)
    ]
    assert together == one
    assert all(len(set(batch)) == len(batch) for batch in together)


def test_without_weights_substitutes_come_from_all_sources(loader):
    sources = [FakeSource(50, name="a", bad=range(0, 50, 5)), FakeSource(50, name="b")]
    drawn, regular = (
        [set(numbers([batch])) for batch in loader(sources, max_bad_fraction=1, on_bad=on_bad, seed=1)]
        for on_bad in ("replace", "drop")
    )
    substitutes = set().union(*(batch - good for batch, good in zip(drawn, regular, strict=True)))
    assert min(substitutes) < 50 <= max(substitutes)


@pytest.mark.slow
def test_substitutes_differ_by_batch_and_epoch(loader):
    """Unshuffled, the bad ones stand at the same places of every second batch."""
    bad = [number for number in range(0, 800, 5) if number // 40 % 2 == 0]
    one = loader(FakeSource(800, bad=bad), global_batch_size=40, max_bad_fraction=1.0, shuffle=False)
    epochs = [[batch.sample_indices.tolist()[::5] for batch in one][::2] for _ in range(2)]
    assert all(len(set(place)) > 2 for place in zip(*epochs[0], strict=True))
    assert sum(a == b for a, b in zip(*epochs, strict=True)) < 3


def test_worker_error_has_the_worker_traceback(loader):
    with pytest.raises(PermissionError) as error:
        numbers(loader(FakeSource(24, failing=[13]), num_workers=1, shuffle=False))
    (note,) = error.value.__notes__
    assert note.startswith("In a worker of the loader:\n")
    assert "in read" in note


def test_workers_leave_sigterm_to_their_parent(loader):
    """A scheduler signals the whole group: the parent saves, and may still want batches for that."""
    found = loader(num_workers=1)
    batches = iter(found)
    next(batches)
    for worker in found._pool._iterator._workers:
        os.kill(worker.pid, signal.SIGTERM)
    assert len(list(batches)) == len(found) - 1
    found.close()


def test_load_state_dict_refuses_a_state_of_another_version(loader):
    one = loader()
    with pytest.raises(ValueError, match=r"version 1; this release reads version 2"):
        one.load_state_dict({**one.state_dict(), "version": 1})
