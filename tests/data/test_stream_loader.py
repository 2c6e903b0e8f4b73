"""Streams of unknown length: each sample once a pass, the same stream for any workers, resumable anywhere."""

import json
import logging
import multiprocessing
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from PIL import Image

from prolip.data.batch import Preprocessor
from prolip.data.sample import Sample, SampleError
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.data.shard_reader import ReaderState
from prolip.data.source import compute_fingerprint
from prolip.data.stream_loader import StreamLoader
from prolip.preprocessing.augmentation import Augmentation
from prolip.preprocessing.images import ImagePreprocessing
from tests.data.test_loader import batch_rows, streams, through_json

LENGTHS = (5, 0, 9, 3, 7, 1, 8, 4, 6, 2)


class FakeShards:
    """Shards of pictures in memory; `bad` are (shard, number)."""

    def __init__(self, lengths=LENGTHS, bad=(), failing=None):
        self.name, self.shards = "fake", tuple(f"shard{i}.tar" for i in range(len(lengths)))
        self.lengths, self.bad, self.failing = tuple(lengths), frozenset(bad), failing
        self.read_calls = []

    def read(self, shard, skip=0):
        self.read_calls.append((shard, skip))
        for number in range(skip, self.lengths[shard]):
            if (shard, number) == self.failing:
                raise OSError(5, "Input/output error")
            where = f"{self.shards[shard]}: {number}"
            if (shard, number) in self.bad:
                yield SampleError("no image", where)
                continue
            noise = np.random.default_rng([shard, number]).integers(0, 256, (6, 7, 3), dtype=np.uint8)
            yield Sample(f"{shard}/{number}", where, Image.fromarray(noise), ("a star", "a thing"))

    def fingerprint(self):
        return compute_fingerprint(*self.shards, *self.lengths)


def all_keys(lengths=LENGTHS, bad=()):
    keys = {f"{s}/{n}" for s, length in enumerate(lengths) for n in range(length)}
    return keys - {f"{s}/{n}" for s, n in bad}


def keys(batches):
    return [key for batch in batches for key in batch.keys]


@pytest.fixture
def loader(tokenizer):
    preprocessor = Preprocessor(
        pixels=ImagePreprocessing(size=4), tokenizer=tokenizer, augmentation=Augmentation()
    )

    def make(stream=None, **options):
        return StreamLoader(
            stream or FakeShards(),
            preprocessor,
            **{"batch_size": 4, "num_readers": 3, "buffer_size": 5, "seed": 3, **options},
        )

    return make


# One pass


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("num_readers", [1, 3, 12])
def test_one_pass_has_every_sample_once(loader, world_size, num_readers):
    ranks = [loader(num_readers=num_readers, rank=rank, world_size=world_size) for rank in range(world_size)]
    for epoch in range(2):
        met = [key for rank in ranks for key in keys(rank)]
        assert len(met) == 45
        assert set(met) == all_keys()
        assert all((rank.epoch, rank.position) == (epoch + 1, 0) for rank in ranks)


def test_each_pass_has_another_order_and_augmentation(loader):
    one, again = loader(), loader()
    first, second = ([row for batch in one for row in batch_rows(batch)] for _ in range(2))
    assert [row[1] for row in first] != [row[1] for row in second]
    pixels, repeated = ({row[1]: row[3] for row in rows} for rows in (first, second))
    assert sum(pixels[key] == repeated[key] for key in pixels) < 5
    assert [row for batch in again for row in batch_rows(batch)] == first


def test_shards_and_windows_are_shuffled_differently_each_time(loader):
    """One lane by hand: its shards in the order that it opened them, cut into windows of 5, each in any order."""
    one, read, seen = loader(FakeShards(), num_readers=1), [], []
    for epoch in range(2):
        met = keys(one)
        shards = [shard for shard, _ in one._reader.stream.read_calls[10 * epoch :]]
        assert sorted(shards) == list(range(10))
        line = [f"{shard}/{number}" for shard in shards for number in range(LENGTHS[shard])]
        windows = [(met[start : start + 5], line[start : start + 5]) for start in range(0, 45, 5)]
        assert all(set(got) == set(wanted) for got, wanted in windows)
        seen += [tuple(wanted.index(key) for key in got) for got, wanted in windows]
        read.append(shards)
    assert len({tuple(shards) for shards in [*read, range(10)]}) == 3
    assert len(set(seen)) >= 14  # of 18 windows


def test_stream_loader_takes_batches_from_readers_in_turn(loader):
    """ShardReader l of 3 has every third shard of the pass: unshuffled, those of the numbers l, l + 3, ..."""
    readers = [
        {int(key.split("/")[0]) % 3 for key in batch.keys}
        for batch in loader(FakeShards([8] * 9), shuffle=False)
    ]
    assert readers == [{0}, {1}, {2}] * 6


def test_unshuffled_readers_keep_the_order_of_shards(loader):
    batches = list(loader(shuffle=False, num_readers=2, batch_size=100))
    assert [int(key.split("/")[0]) for key in batches[0].keys] == [
        s for s in (0, 2, 4, 6, 8) for _ in range(LENGTHS[s])
    ]
    assert [int(key.split("/")[0]) for key in batches[1].keys] == [
        s for s in (1, 3, 5, 7, 9) for _ in range(LENGTHS[s])
    ]


def test_sample_indices_hold_shard_and_index_in_shard(loader):
    for batch in loader():
        assert [f"{n >> 32}/{n & 0xFFFFFFFF}" for n in batch.sample_indices.tolist()] == list(batch.keys)


def test_the_length_of_a_pass_is_not_known(loader):
    with pytest.raises(TypeError, match="samples_per_epoch"):
        len(loader())


# Endless passes


def test_training_batches_are_full_and_epochs_go_on_through_the_passes(loader):
    one = loader(num_readers=1, samples_per_epoch=22)
    assert len(one) == 5
    batches = [batch for _ in range(18) for batch in one]
    assert all(len(batch) == 4 for batch in batches)
    met = keys(batches)
    assert len(met) == 8 * 45
    assert all(set(met[start : start + 45]) == all_keys() for start in range(0, len(met), 45))
    assert one.epoch == 18


def test_training_sees_each_sample_about_equally_often_over_readers_and_ranks(loader):
    counts = Counter()
    for rank in range(2):
        one = loader(FakeShards([6] * 12), rank=rank, world_size=2, samples_per_epoch=720)
        counts.update(keys(one))
    assert len(counts) == 72
    assert set(counts.values()) <= {9, 10, 11}


# Interruptions


@pytest.mark.slow
@pytest.mark.parametrize("samples_per_epoch", [None, 40])
def test_resume_from_any_batch_gives_the_same_stream(loader, samples_per_epoch):
    def make():
        return loader(
            FakeShards(bad=[(2, 4), (4, 0), (6, 7)]),
            samples_per_epoch=samples_per_epoch,
            max_bad_fraction=0.5,
        )

    whole = make()
    epochs = [streams(whole) for _ in range(3)]
    for done in range(len(epochs[1]) + 1):
        first, second = make(), make()
        streams(first)
        assert streams(islice(first, done)) == epochs[1][:done]
        second.load_state_dict(through_json(first.state_dict()))
        assert second.position == done
        assert streams(second) == epochs[1][done:]
        assert streams(second) == epochs[2]
        assert second.error_counts.state_dict() == whole.error_counts.state_dict()
        assert streams(first) == epochs[1][done:]


def test_resuming_reads_one_window_again_not_the_shard(loader):
    lengths = (100, 100)
    first, stream = loader(FakeShards(lengths), num_readers=1), FakeShards(lengths)
    list(islice(first, 12))
    second = loader(stream, num_readers=1)
    second.load_state_dict(first.state_dict())
    next(iter(second))
    assert [skip for _, skip in stream.read_calls] == [45]  # 48 delivered: windows of 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed was 3"),
        ({"batch_size": 5}, "batch_size was 4"),
        ({"num_readers": 2}, "num_readers was 3"),
        ({"buffer_size": 6}, "buffer_size was 5"),
        ({"shuffle": False}, "shuffle was True"),
        ({"rank": 1, "world_size": 2}, "rank was 0"),
        ({"samples_per_epoch": 12}, "samples_per_epoch was None"),
        ({"stream": FakeShards((5, 5, 5))}, "the data has changed"),
    ],
)
def test_a_position_of_another_stream_is_refused(loader, change, message):
    one = loader()
    next(iter(one))
    with pytest.raises(ValueError, match=message):
        loader(**change).load_state_dict(through_json(one.state_dict()))


@pytest.mark.parametrize(
    "change",
    [
        {"readers": [[0, 0, 0, 0]]}, {"readers": [[0, 0, 0, -1]] * 3}, {"readers": [[0, 0, 0]] * 3}, {"readers": None},
        {"readers": ["0000"] * 3}, {"next_reader": 3}, {"next_reader": True}, {"epoch": 1.5},
    ],
)  # fmt: skip
def test_load_state_dict_refuses_invalid_values(loader, change):
    one = loader()
    with pytest.raises(ValueError, match=r"saved state|reader state"):
        one.load_state_dict({**one.state_dict(), **change})


def test_load_state_dict_refuses_a_state_of_another_version(loader):
    one = loader()
    with pytest.raises(ValueError, match=r"version 1; this release reads version 2"):
        one.load_state_dict({**one.state_dict(), "version": 1})


def test_load_state_dict_refuses_an_offset_beyond_the_shard(loader):
    one = loader(num_readers=1, batch_size=3)
    one.load_state_dict({**one.state_dict(), "readers": [[0, 9, 0, 90]]})
    with pytest.raises(ValueError, match="fewer samples"):
        next(iter(one))


# Bad samples


BAD = [(0, 0), (2, 8), (8, 1), (8, 2)]


def test_bad_samples_are_left_out_and_counted_and_batches_filled_up(loader, caplog):
    one = loader(FakeShards(bad=BAD), num_readers=1)
    with caplog.at_level(logging.WARNING, logger="prolip.data"):
        sizes, met = [], []
        for batch in one:
            sizes.append(len(batch))
            met += batch.keys
    assert sorted(met) == sorted(all_keys(bad=BAD))
    assert sizes == [4] * 10 + [1]
    assert (one.error_counts.tried, one.error_counts.reasons) == (45, {"no image": 4})
    assert caplog.messages == [f"epoch 0: {one.error_counts.summary()}"]


@pytest.mark.parametrize("samples_per_epoch", [None, 10**6])
def test_loading_ends_if_every_sample_is_bad(loader, samples_per_epoch):
    lengths = (50,) * 4
    bad = [(s, n) for s in range(4) for n in range(50)]
    one = loader(FakeShards(lengths, bad=bad), samples_per_epoch=samples_per_epoch)
    with pytest.raises(TooManyBadSamplesError, match="shard"):
        list(one)
    borne = loader(FakeShards(lengths, bad=bad), samples_per_epoch=samples_per_epoch, max_bad_fraction=1.0)
    if samples_per_epoch is None:
        assert list(borne) == []
        assert borne.error_counts.bad == 200
    else:
        with pytest.raises(TooManyBadSamplesError, match=r"can't be filled: 1,000 of 1,000"):
            list(borne)


def test_loading_ends_if_all_shards_are_empty(loader):
    assert list(loader(FakeShards((0, 0, 0)))) == []
    with pytest.raises(ValueError, match="reader 0 are empty"):
        list(loader(FakeShards((0, 0, 0)), samples_per_epoch=100))


def test_too_many_bad_samples_end_the_pass(loader):
    one = loader(
        FakeShards((300,) * 9, bad=[(s, n) for s in range(9) for n in range(0, 300, 6)]), num_readers=1
    )
    with pytest.raises(TooManyBadSamplesError, match=r"max_bad_fraction=0.1"):
        list(one)
    assert 100 < one.error_counts.bad < 120


# Workers


@pytest.mark.parametrize("samples_per_epoch", [None, 40])
def test_workers_make_no_difference(loader, samples_per_epoch):
    options = {
        "stream": FakeShards(bad=BAD),
        "samples_per_epoch": samples_per_epoch,
        "num_readers": 4,
        "max_bad_fraction": 0.5,
    }
    plain = loader(**options)
    epochs = [streams(plain) for _ in range(3)]
    two = loader(**options, num_workers=2, prefetch_factor=1)
    assert streams(islice(two, 3)) == epochs[0][:3]
    moved = loader(**options, num_workers=1)
    moved.load_state_dict(json.loads(json.dumps(two.state_dict())))
    assert streams(moved) == epochs[0][3:]
    assert [streams(two) for _ in range(3)] == [epochs[0][3:], *epochs[1:]]
    assert two.error_counts.state_dict() == plain.error_counts.state_dict()
    two.close()
    moved.close()
    assert not multiprocessing.active_children()


def test_stream_loader_lowers_workers_that_dont_divide_readers(loader, caplog):
    with caplog.at_level(logging.WARNING, logger="prolip.data"):
        one = loader(FakeShards([2] * 12), num_readers=4, num_workers=3)
    assert caplog.messages == ["3 workers can't share 4 readers evenly; using 2 workers"]
    next(iter(one))
    assert len(multiprocessing.active_children()) == 2
    one.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_after_a_failure_of_the_disk_one_can_go_on(loader, workers):
    failing = FakeShards((8, 8, 8), failing=(1, 3))
    one = loader(failing, num_readers=1, shuffle=False, num_workers=workers)
    whole = keys(loader(FakeShards((8, 8, 8)), num_readers=1, shuffle=False))
    met = []
    with pytest.raises(OSError, match="Input/output error"):
        met.extend(key for batch in one for key in batch.keys)
    assert not multiprocessing.active_children()
    failing.failing = None
    assert one.position == 2
    assert keys(one) == whole[8:]


# Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"num_readers": 0}, "num_readers must be"),
        ({"buffer_size": 0}, "buffer_size must be"),
        ({"samples_per_epoch": 3}, "samples_per_epoch 3 is less than one batch"),
        ({"samples_per_epoch": 7, "rank": 0, "world_size": 2}, "less than one batch of all ranks, 8"),
        ({"rank": 0, "world_size": 11}, "10 shards .* 11 ranks"),
        ({"max_bad_fraction": -1}, "max_bad_fraction must be"),
        ({"num_workers": -2}, "num_workers must be"),
    ],
)
def test_settings_are_checked(loader, options, message):
    with pytest.raises(ValueError, match=message):
        loader(**options)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_has_begun_can_be_moved(loader, workers):
    one = loader(FakeShards(), samples_per_epoch=40, num_workers=workers)
    start = through_json(one.state_dict())
    first = streams(islice(one, 3))
    one.load_state_dict(start)
    assert streams(islice(one, 3)) == first
    one.close()


def test_readers_and_ranks_shuffle_their_windows_differently(loader):
    """(windows at the same place of shards of the same length)"""
    made = loader(FakeShards((5, 5)), num_readers=2, batch_size=5)
    one, two = ([number & 0xFFFFFFFF for number in batch.sample_indices.tolist()] for batch in made)
    assert one != two


def test_training_never_gets_a_batch_that_is_not_full(loader):
    rare = FakeShards((1200,), bad=[(0, n) for n in range(1, 1200)])
    with pytest.raises(TooManyBadSamplesError, match="can't be filled"):
        next(iter(loader(rare, num_readers=1, samples_per_epoch=40, max_bad_fraction=1.0)))


@pytest.mark.parametrize("rank", [0, 1])
def test_every_reader_has_a_shard_if_ranks_dont_divide_them(loader, rank):
    made = loader(FakeShards((4,) * 5), num_readers=12, samples_per_epoch=40, rank=rank, world_size=2)
    assert len(made.state_dict()["readers"]) == 2
    assert [len(batch) for batch in made] == [4] * 5


class Broken(FakeShards):
    """The first shards hold nothing but damage."""

    def __init__(self, count, of):
        super().__init__((4,) * of)
        self.count = count

    def read(self, shard, skip=0):
        if shard < self.count:
            return iter([SampleError("broken shard", self.shards[shard])][skip:])
        return super().read(shard, skip)


def test_broken_shards_have_a_limit_of_their_own(loader):
    """Once, though they are met in each pass."""
    assert len(list(loader(Broken(2, of=20), samples_per_epoch=400))) == 100
    with pytest.raises(TooManyBadSamplesError, match=r"3 of 20 shards are broken"):
        list(loader(Broken(3, of=20), samples_per_epoch=400))


def test_a_network_that_gives_nothing_useful_is_soon_given_up(loader):
    stream = Broken(3, of=3)
    with pytest.raises(TooManyBadSamplesError):
        list(loader(stream, samples_per_epoch=400, max_bad_fraction=1.0, num_readers=1))
    assert len(stream.read_calls) == 0
    assert (
        loader(stream, samples_per_epoch=400, max_bad_fraction=1.0, num_readers=1)
        ._reader.copy_starting_at(0, 0, [ReaderState()])[0]
        .tried
        == 21
    )


@pytest.mark.parametrize("what", ["too many", "none"])
def test_workers_end_with_an_error(loader, what):
    lengths, bad = (400,) * 4, [(s, n) for s in range(4) for n in range(400) if what == "none" or n % 2]
    with pytest.raises(TooManyBadSamplesError):
        list(loader(FakeShards(lengths, bad=bad), samples_per_epoch=10**5, num_workers=1))
    assert not multiprocessing.active_children()


def test_large_batches_dont_delay_the_news_that_all_is_bad(loader):
    stream = FakeShards((9000,), bad=[(0, n) for n in range(9000)])
    with pytest.raises(TooManyBadSamplesError, match="of 1,000 samples"):
        next(iter(loader(stream, num_readers=1, batch_size=4096, samples_per_epoch=10**5)))


def test_after_an_interrupt_one_can_go_on(loader):
    class Interrupted(FakeShards):
        def read(self, shard, skip=0):
            for number, content in enumerate(super().read(shard, skip), start=skip):
                if (shard, number) == (1, 3) and self.pending:
                    self.pending = False
                    raise KeyboardInterrupt
                yield content

    stream = Interrupted((8, 8, 8))
    stream.pending = True
    one = loader(stream, num_readers=1, shuffle=False)
    met = []
    with pytest.raises(KeyboardInterrupt):
        met.extend(key for batch in one for key in batch.keys)
    assert one.position == 2
    assert keys(one) == keys(loader(FakeShards((8, 8, 8)), num_readers=1, shuffle=False))[8:]
