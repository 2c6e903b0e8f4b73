"""Counts against counting by hand, the limit at its edges, and sentences."""

import json
import logging

import pytest

from prolip.data.sample import SampleError
from prolip.data.sample_errors import ErrorCounts, TooManyBadSamplesError, make_unfillable_batch_error


def errors(count, reason="unreadable image", shard="a.tar"):
    return [SampleError(reason, f"{shard}: key{i}", "truncated") for i in range(count)]


def counts_of(tried, *groups):
    counts = ErrorCounts()
    counts.add(tried, [bad for group in groups for bad in group])
    return counts


def test_counts_are_by_reason_with_the_first_examples():
    counts = counts_of(20, errors(5), errors(2, "no caption", "b.tar"))
    counts.add(10, errors(1, "no caption", "c.tar"))
    assert (counts.tried, counts.bad) == (30, 8)
    assert counts.reasons == {"unreadable image": 5, "no caption": 3}
    assert counts.examples["unreadable image"] == errors(5)[:3]
    assert [bad.location for bad in counts.examples["no caption"]] == [
        "b.tar: key0",
        "b.tar: key1",
        "c.tar: key0",
    ]


def test_merging_is_adding_both():
    one, two = counts_of(20, errors(2)), counts_of(30, errors(4), errors(1, "no image", "b.tar"))
    one.merge(two)
    both = counts_of(50, errors(2), errors(4), errors(1, "no image", "b.tar"))
    assert one.state_dict() == both.state_dict()


def test_its_state_goes_through_json():
    counts = counts_of(2000, errors(5), errors(2, "no caption"))
    again = ErrorCounts()
    again.load_state_dict(json.loads(json.dumps(counts.state_dict())))
    assert again.state_dict() == counts.state_dict()
    assert again.summary() == counts.summary()
    again.add(1, errors(1))
    assert (counts.tried, counts.bad, again.bad) == (2000, 7, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"tried": -1}, {"tried": "9"}, {"tried": True}, {"reasons": 3}, {"reasons": {"unheard of": 1}},
        {"reasons": {"no caption": 1}}, {"examples": {"no caption": ["x"]}}, {"examples": None},
    ],
)  # fmt: skip
def test_load_state_dict_refuses_invalid_states_and_changes_nothing(change):
    counts = counts_of(9, errors(1))
    with pytest.raises(ValueError, match="error counts"):
        counts.load_state_dict({**counts.state_dict(), **change})
    assert (counts.tried, counts.bad) == (9, 1)


@pytest.mark.parametrize(
    ("tried", "bad", "final", "borne"),
    [
        (100, 100, False, True),
        (101, 101, False, False),
        (1000, 100, False, True),
        (1000, 101, False, False),
        (2000, 200, False, True),
        (2000, 201, False, False),
        (100, 10, True, True),
        (100, 11, True, False),
        (0, 0, True, True),
    ],
)
def test_the_limit_at_its_edges(tried, bad, final, borne):
    counts = counts_of(tried, errors(bad))
    if borne:
        counts.check(0.1, final=final)
    else:
        with pytest.raises(TooManyBadSamplesError):
            counts.check(0.1, final=final)


def test_a_limit_of_zero_bears_nothing_and_of_one_everything():
    counts = counts_of(5000, errors(1))
    with pytest.raises(TooManyBadSamplesError):
        counts.check(0.0)
    counts_of(5000, errors(5000)).check(1.0, final=True)


def test_error_message_has_counts_reason_location_and_remedy():
    counts = counts_of(3000, errors(2, "no caption", "b.tar"), errors(400))
    with pytest.raises(TooManyBadSamplesError) as error:
        counts.check(0.1)
    assert str(error.value) == (
        "402 of 3,000 samples (13.4%) are bad, more than max_bad_fraction=0.1 allows: unreadable image 400, "
        "no caption 2. For example a.tar: key0: unreadable image (truncated). Repair the data, or raise "
        "max_bad_fraction."
    )
    assert isinstance(error.value, ValueError)


def test_the_summary_is_a_table_commonest_first():
    lines = counts_of(10_000, errors(2, "no caption", "b.tar"), errors(1234)).summary().splitlines()
    assert lines[0] == "1,236 of 10,000 samples were bad"
    assert lines[1].split() == [
        "unreadable",
        "image",
        "1,234",
        "12.34%",
        "a.tar:",
        "key0:",
        "unreadable",
        "image",
        "(truncated)",
    ]
    assert lines[2].split()[:4] == ["no", "caption", "2", "0.02%"]
    assert len(lines) == 3
    assert counts_of(7).summary() == "0 of 7 samples were bad"


def test_a_long_detail_is_cut_to_a_line():
    counts = counts_of(10, [SampleError("unreadable row", "x.csv: row 3", "a\nb" + "c" * 5000)])
    lines = counts.summary().splitlines()
    assert len(lines) == 2
    assert len(lines[1]) < 400


def test_the_end_of_an_epoch_is_logged_if_anything_was_bad(caplog):
    with caplog.at_level(logging.WARNING, logger="prolip.data"):
        counts_of(100).end_epoch(3, 0.1)
        assert not caplog.records
        counts_of(100, errors(10)).end_epoch(3, 0.1)
        assert caplog.messages == [f"epoch 3: {counts_of(100, errors(10)).summary()}"]
        with pytest.raises(TooManyBadSamplesError):
            counts_of(100, errors(11)).end_epoch(4, 0.1)
    assert len(caplog.records) == 2


def test_a_batch_that_cant_be_filled_names_the_first_bad_sample():
    assert "28 of 30 samples tried for it are bad. The first is a.tar: key0" in str(
        make_unfillable_batch_error(30, errors(28))
    )


def damage(*shards):
    return [SampleError("broken shard", shard, f"at byte {i}") for i, shard in enumerate(shards)]


def test_broken_shards_are_counted_by_name():
    """One that is met in each pass is one; the limit is of shards, and one is always borne."""
    counts = counts_of(5000, damage("a.tar", "b.tar", "a.tar"), errors(100))
    counts.check(0.1, num_shards=20)
    counts.add(1, damage("c.tar"))
    with pytest.raises(TooManyBadSamplesError, match=r"^3 of 20 shards are broken.* a.tar: broken shard"):
        counts.check(0.1, num_shards=20)
    counts_of(5000, damage("a.tar")).check(0.1, num_shards=1)
    with pytest.raises(TooManyBadSamplesError, match="2 of 3 shards"):
        counts_of(5000, damage("a.tar", "b.tar")).check(0.1, num_shards=3)


def test_broken_shards_are_merged_and_saved():
    one, two = counts_of(20, damage("a.tar")), counts_of(20, damage("b.tar", "a.tar"))
    one.merge(two)
    again = ErrorCounts()
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert one.broken_shards == again.broken_shards == {"a.tar", "b.tar"}
