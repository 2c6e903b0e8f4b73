"""Permutations against their definition, orders against a list of all samples, mixtures against counting."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from scipy.stats import chisquare

from prolip.data.order import (
    BLOCK,
    SampleOrder,
    Schedule,
    count_per_block,
    derive_seed,
    permute,
    random_permutation,
)


class Lengths:
    """A source that only has a length."""

    def __init__(self, *chunks, name="fake"):
        self.name, self.chunks = name, np.array(chunks, dtype=np.int64)

    def __len__(self):
        return int(self.chunks.sum())


def keys(count):
    return np.array([derive_seed(k) for k in range(count)], dtype=np.uint64)


def epoch_of(schedule, epoch):
    return schedule.sample_indices(epoch, np.arange(schedule.samples_per_epoch))


# Keys


def test_derive_seed_depends_on_every_value_and_their_order():
    values = [
        (),
        (0,),
        (1,),
        (0, 1),
        (1, 0),
        (0, 0),
        (-1,),
        (1, 11),
        (11, 1),
        ("1",),
        ("0", 1),
        ("a,b",),
        ("a", "b"),
    ]
    assert len({derive_seed(*value) for value in values}) == len(values)


def test_derive_seed_accepts_numpy_integers():
    assert derive_seed(np.int64(5), np.uint64(7)) == derive_seed(5, 7)
    with pytest.raises(TypeError, match="float"):
        derive_seed(1.5)


def test_derive_seed_is_the_same_in_every_process_and_version():
    assert derive_seed(0, "order", 1) == 15579956257927454432


# The permutation


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
@example(1, 0)
@example(2, 1)
@example(3, 2)
@example(64, 3)
@example(65, 3)
def test_permute_is_a_permutation(size, key):
    assert sorted(permute(np.arange(size), size, key)) == list(range(size))


@pytest.mark.parametrize("size", [2**31 + 1, 1_400_000_000, 2**52 - 3])
def test_permute_of_huge_ranges_costs_only_the_positions_given(size):
    first = permute(np.arange(1000), size, 7)
    assert len(set(first.tolist())) == 1000
    assert first.min() >= 0
    assert size / 2 < first.max() < size


def test_permute_treats_each_position_alone():
    alone = [int(permute(np.array([i]), 77, 5)[0]) for i in range(77)]
    assert permute(np.arange(77), 77, 5).tolist() == alone


def test_permute_takes_one_key_per_position():
    sizes, own = np.array([1, 2, 100, 5000]), keys(4)
    together = permute(np.array([0, 1, 50, 4999]), sizes, own)
    apart = [
        int(permute(np.array([p]), int(s), int(k))[0])
        for p, s, k in zip([0, 1, 50, 4999], sizes, own, strict=True)
    ]
    assert together.tolist() == apart


@pytest.mark.parametrize("size", [2, 3, 5, 8, 9, 33])
def test_permutation_makes_all_pairs_equally_likely(size):
    count = 20_000
    results = permute(np.tile([0, size - 1], count), size, np.repeat(keys(count), 2)).reshape(count, 2)
    pairs = np.bincount(results[:, 0] * size + results[:, 1], minlength=size * size).reshape(size, size)
    assert (np.diag(pairs) == 0).all()
    assert chisquare(pairs[~np.eye(size, dtype=bool)]).pvalue > 1e-3


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_random_permutation_is_a_permutation(count):
    assert sorted(random_permutation(count, 2**64 - 1)) == list(range(count))


def test_random_permutation_is_uniform():
    orders = Counter(tuple(random_permutation(4, int(key)).tolist()) for key in keys(12_000))
    assert len(orders) == 24
    assert chisquare(list(orders.values())).pvalue > 1e-3


# The order of a pass


CHUNKS = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(CHUNKS, st.integers(1, 5), st.integers(0, 3))
def test_order_has_each_sample_once_per_pass(chunks, window, pass_number):
    order = SampleOrder(np.array(chunks), seed=1, pass_number=pass_number, window=window, shuffle=True)
    assert sorted(order[np.arange(sum(chunks))]) == list(range(sum(chunks)))


@given(CHUNKS, st.integers(1, 5))
def test_order_reads_a_window_of_chunks_at_a_time(chunks, window):
    order = SampleOrder(np.array(chunks), seed=2, pass_number=0, window=window, shuffle=True)
    chunk_of = np.repeat(np.arange(len(chunks)), chunks)
    met = chunk_of[order[np.arange(sum(chunks))]].tolist()
    spans = [(met.index(chunk), len(met) - met[::-1].index(chunk)) for chunk in set(met)]
    assert all(sum(first <= place < end for first, end in spans) <= window for place in range(len(met)))


def test_order_takes_positions_in_any_order_and_number():
    order = SampleOrder(np.array([5, 0, 7, 3]), seed=3, pass_number=1, window=2, shuffle=True)
    whole = order[np.arange(15)]
    places = np.array([14, 0, 7, 7])
    assert order[places].tolist() == whole[places].tolist()
    assert order[np.array([], dtype=np.int64)].tolist() == []


def test_unshuffled_order_is_that_of_the_source():
    order = SampleOrder(np.array([4, 0, 3]), seed=3, pass_number=1, window=2, shuffle=False)
    assert order[np.arange(7)].tolist() == list(range(7))


@pytest.mark.parametrize("other", [{"seed": 1}, {"pass_number": 1}])
def test_order_differs_by_seed_and_pass(other):
    values = {"seed": 0, "pass_number": 0, "window": 4, "shuffle": True}
    one, two = (
        SampleOrder(np.full(10, 10), **{**values, **change})[np.arange(100)] for change in ({}, other)
    )
    assert (one == two).sum() < 20


def test_any_sample_may_come_first():
    def first(seed):
        order = SampleOrder(np.array([30, 20, 40]), seed=seed, pass_number=0, window=2, shuffle=True)
        return int(np.searchsorted([30, 50, 90], order[np.array([0])], side="right")[0])

    # Two of three chunks share the first pool, each two with the same chance; there, by their lengths.
    chance = [sum(own / (own + other) / 3 for other in {20, 30, 40} - {own}) for own in (30, 20, 40)]
    assert chisquare(np.bincount([first(seed) for seed in range(400)]), 400 * np.array(chance)).pvalue > 1e-3


def test_order_refuses_positions_out_of_range():
    order = SampleOrder(np.array([4]), seed=0, pass_number=0, window=1, shuffle=True)
    for place in (-1, 4):
        with pytest.raises(IndexError, match="4 samples"):
            order[np.array([place])]


# The schedule of an epoch


def test_schedule_has_each_sample_of_all_sources_once_per_epoch():
    schedule = Schedule([Lengths(3, 4), Lengths(5), Lengths(1, 0, 1)], seed=1, window=2)
    for epoch in range(3):
        places = epoch_of(schedule, epoch)
        assert sorted(places.samples.tolist()) == list(range(14))
        starts = np.array([0, 7, 12])
        assert (starts[places.sources] + places.indices == places.samples).all()
        assert (places.indices < np.array([7, 5, 2])[places.sources]).all()
        assert set(places.passes.tolist()) == {epoch}
    assert epoch_of(schedule, 0).samples.tolist() != epoch_of(schedule, 1).samples.tolist()


@pytest.mark.parametrize("samples", [1, 4, 10, 23])
def test_schedule_continues_through_passes_with_other_epoch_lengths(samples):
    whole, cut = (Schedule([Lengths(6, 4)], samples_per_epoch=count, seed=5) for count in (None, samples))
    endless = np.concatenate([epoch_of(whole, epoch).samples for epoch in range(10)])
    epochs = np.concatenate([epoch_of(cut, epoch).samples for epoch in range(100 // samples)])
    assert epochs.tolist() == endless[: len(epochs)].tolist()


def test_unshuffled_schedule_has_sources_one_after_another():
    assert epoch_of(Schedule([Lengths(2, 1), Lengths(4)], shuffle=False), 3).samples.tolist() == list(
        range(7)
    )


def test_weighted_sources_have_their_exact_fraction_of_each_block():
    schedule = Schedule([Lengths(1000), Lengths(70_000)], weights=[3, 1], samples_per_epoch=2 * BLOCK, seed=1)
    sources = epoch_of(schedule, 0).sources.reshape(2, BLOCK)
    assert (sources == 0).sum(axis=1).tolist() == [BLOCK * 3 // 4] * 2
    parts = (sources[0] == 0).reshape(64, -1).sum(axis=1)  # and they are spread evenly, not in runs
    assert (abs(parts - 768) < 80).all()


@pytest.mark.parametrize("samples", [1000, BLOCK - 1, BLOCK + 777])
def test_each_weighted_source_goes_through_its_own_passes(samples):
    """Over epochs that end inside blocks: a list of what each source gave, cut by its length, has each once."""
    lengths, epochs = [1700, 30_011], 100_000 // samples + 2
    schedule = Schedule([Lengths(n) for n in lengths], weights=[1, 2], samples_per_epoch=samples, seed=9)
    met = [epoch_of(schedule, epoch) for epoch in range(epochs)]
    for number, length in enumerate(lengths):
        indices = np.concatenate([places.indices[places.sources == number] for places in met])
        passes = np.concatenate([places.passes[places.sources == number] for places in met])
        assert len(indices) > length
        for start in range(0, len(indices) - length, length):
            assert sorted(indices[start : start + length].tolist()) == list(range(length))
            assert set(passes[start : start + length].tolist()) == {start // length}


def test_unshuffled_weighted_sources_are_each_in_order():
    schedule = Schedule([Lengths(50), Lengths(50)], weights=[1, 1], shuffle=False)
    places = epoch_of(schedule, 0)
    assert len(places.samples) == 100
    for number in range(2):
        indices = places.indices[places.sources == number]
        assert indices.tolist() == [i % 50 for i in range(len(indices))]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_apportion_gives_the_nearest_counts_that_add_up(weights):
    counts = count_per_block(weights, [f"source {i}" for i in range(len(weights))])
    exact = np.array(weights) / sum(weights) * BLOCK
    assert counts.sum() == BLOCK
    assert (abs(counts - exact) < 1 + 1e-9).all()


def test_weights_may_be_as_large_as_floats():
    assert count_per_block([1e308, 1e308], ["a", "b"]).tolist() == [BLOCK // 2] * 2


def test_schedule_samples_of_source():
    schedule = Schedule([Lengths(3), Lengths(4), Lengths(2)])
    assert [schedule.samples_of_source(i) for i in range(3)] == [range(0, 3), range(3, 7), range(7, 9)]
    sources, indices = schedule.locate(np.arange(9))
    assert Counter(sources.tolist()) == {0: 3, 1: 4, 2: 2}
    assert indices.tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1]


def test_order_memory_is_proportional_to_chunks():
    schedule = Schedule(
        [Lengths(*[10_000] * 1000) for _ in range(2)], weights=[1, 1], samples_per_epoch=10**12
    )
    places = schedule.sample_indices(10**6, np.arange(10**11, 10**11 + 4))
    assert (places.indices < 10_000_000).all()


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ([], {}, "source"),
        ([Lengths(3), Lengths(0, name="cats.tar")], {}, "cats.tar"),
        ([Lengths(3)], {"weights": [1, 2]}, "1 sources but 2 weights"),
        ([Lengths(3, name="a"), Lengths(3, name="b")], {"weights": [1, 0]}, "b: a weight must be a positive"),
        ([Lengths(3, name="a"), Lengths(3, name="b")], {"weights": [1, float("nan")]}, "b: a weight must be"),
        ([Lengths(3, name="a"), Lengths(3, name="b")], {"weights": [1e6, 1]}, "b: .*1/65536"),
        ([Lengths(3)], {"samples_per_epoch": 0}, "samples_per_epoch must be"),
        ([Lengths(3)], {"window": 0}, "window must be"),
    ],
)  # fmt: skip
def test_schedule_refuses_invalid_settings(sources, options, message):
    with pytest.raises(ValueError, match=message):
        Schedule(sources, **options)


def test_chunks_that_dont_add_up_are_refused():
    source = Lengths(3, 3, name="odd")
    source.__class__ = type("Odd", (Lengths,), {"__len__": lambda self: 5})
    with pytest.raises(ValueError, match=r"odd: .*6 samples.* 5"):
        Schedule([source])


def test_weighted_sources_of_one_length_are_shuffled_differently():
    places = epoch_of(Schedule([Lengths(50), Lengths(50)], weights=[1, 1], seed=1), 0)
    first, second = (places.indices[places.sources == number][:40] for number in range(2))
    assert (first == second).sum() < 10


def test_sources_take_other_turns_in_each_block_and_with_each_seed():
    def turns(seed):
        schedule = Schedule(
            [Lengths(BLOCK), Lengths(BLOCK)], weights=[1, 1], samples_per_epoch=2 * BLOCK, seed=seed
        )
        return epoch_of(schedule, 0).sources.reshape(2, BLOCK)

    first, second = turns(0)
    assert 0.45 < (first == second).mean() < 0.55
    assert 0.45 < (first == turns(1)[0]).mean() < 0.55


def test_each_pool_of_chunks_has_its_own_order():
    order = SampleOrder(np.full(12, 20), seed=1, pass_number=0, window=1, shuffle=True)
    assert len({tuple(row % 20) for row in order[np.arange(240)].reshape(12, 20)}) == 12


def test_negative_chunks_are_refused():
    with pytest.raises(ValueError, match=r"odd: .*-2"):
        Schedule([Lengths(5, -2, name="odd")])


def test_orders_are_cached_between_batches(monkeypatch):
    """Two passes of each source are at hand: to draw one anew costs as much as there are chunks."""
    built = []

    class Counted(SampleOrder):
        def __init__(self, *args, **options):
            built.append(options["pass_number"])
            super().__init__(*args, **options)

    monkeypatch.setattr("prolip.data.order.SampleOrder", Counted)
    schedule = Schedule([Lengths(50), Lengths(50)], weights=[1, 1], samples_per_epoch=90)
    for start in range(0, 90, 6):
        schedule.sample_indices(0, np.arange(start, start + 6))
    assert len(built) == len(set(built)) * 2 == 2
