import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.filtering.threshold import (
    NAN_KEY,
    Threshold,
    ThresholdFilter,
    count_lower_key_halves,
    count_upper_key_halves,
    find_threshold,
    from_sort_keys,
    to_sort_keys,
)

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
FEW = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1e-45, 0.25, 0.25000003, np.inf, np.nan])


def best(scores, keep):
    """By sorting: indices of the best round(keep * N), never NaN; of equal ones the first."""
    order = sorted((i for i, s in enumerate(scores) if s == s), key=lambda i: -scores[i])
    return sorted(order[: round(keep * len(scores))])


def chosen(blocks, keep):
    threshold = find_threshold(lambda: iter(blocks), keep)
    threshold_filter = ThresholdFilter(threshold)
    return np.flatnonzero(
        np.concatenate([threshold_filter.apply(block) for block in blocks])
    ).tolist(), threshold


@given(
    st.lists(st.lists(FLOATS | FEW, max_size=12), min_size=1, max_size=4),
    st.floats(0.01, 1.0) | st.sampled_from([0.5, 1.0]),
)
def test_threshold_filter_matches_sorting(blocks, keep):
    arrays = [np.array(block, np.float32) for block in blocks]
    scores = [float(value) for array in arrays for value in array]
    found, threshold = chosen(arrays, keep)
    assert found == best(scores, keep)
    assert threshold.total == len(scores)
    assert threshold.nan_count == sum(s != s for s in scores)
    assert threshold.score == (min(scores[i] for i in found) if found else None)


def test_threshold_filter_with_many_ties():
    scores = np.round(np.random.default_rng(0).normal(size=20_000), 2).astype(np.float32)
    found, threshold = chosen(np.split(scores, 8), 0.2)
    assert found == best(scores.tolist(), 0.2)
    assert len(found) == 4000
    assert 1 < threshold.ties < (scores == threshold.score).sum(), "the threshold lies within equal scores"


@given(st.lists(FLOATS, max_size=30))
def test_sort_keys_preserve_order_and_round_trip(values):
    scores = np.array([v for v in values if v == v], np.float32)
    keys = to_sort_keys(scores)
    assert ((scores[:, None] > scores) == (keys[:, None] > keys)).all()
    assert ((scores[:, None] == scores) == (keys[:, None] == keys)).all()
    assert (from_sort_keys(keys) == scores).all()
    assert (keys > NAN_KEY).all()


def test_nan_of_either_sign_has_nan_key():
    nans = np.array([0x7FC00000, 0xFFC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert (to_sort_keys(nans) == NAN_KEY).all()
    assert count_upper_key_halves(np.array([-np.inf], np.float32))[0] == 0


def test_counts_of_parts_add_up():
    scores = np.random.default_rng(1).normal(size=300).astype(np.float32)
    total = count_upper_key_halves(scores)
    assert (count_upper_key_halves(scores[:100]) + count_upper_key_halves(scores[100:]) == total).all()
    half = int(total.argmax())
    assert count_lower_key_halves(scores, half).sum() == total[half]


def test_find_threshold_without_scores():
    assert find_threshold(lambda: iter([]), 0.5) == Threshold(2**32 - 1, 0, 0, 0)
    found, threshold = chosen([np.array([np.nan, np.nan], np.float32)], 1.0)
    assert (found, threshold.nan_count, threshold.score) == ([], 2, None)


@pytest.mark.parametrize("keep", [0, -0.1, 1.01, float("nan")])
def test_find_threshold_rejects_invalid_fraction(keep):
    with pytest.raises(ValueError, match="keep_fraction"):
        find_threshold(lambda: iter([np.ones(3, np.float32)]), keep)
