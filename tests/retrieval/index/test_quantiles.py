"""Quantiles in one pass against sorting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.retrieval.index.quantiles import LEVELS, QuantileSketch, cut, fraction_below


def tally_of(*pieces):
    tally = QuantileSketch()
    for piece in pieces:
        tally.add(np.asarray(piece, dtype=np.float32))
    return tally


@given(
    st.lists(st.floats(0, 2.0**100, width=32, allow_subnormal=False), min_size=1, max_size=60),
    st.integers(1, LEVELS),
)
def test_the_cut_holds_its_share_and_is_tight(values, level):
    values = np.sort(np.float32(values))
    found = tally_of(values[::2], values[1::2]).quantiles()[level - 1]
    wanted = values[math.ceil(level * len(values) / LEVELS) - 1]
    assert found in values
    assert wanted <= found <= np.float32(wanted * (1 + 1 / 2048))


def test_values_that_are_apart_are_cut_exactly():
    values = np.float32(np.random.default_rng(0).permutation(np.linspace(0.1, 10, 400)))
    found = tally_of(values[:100], values[100:]).quantiles()
    for share in (0.0025, 0.1, 0.5, 0.9, 1.0):
        assert np.count_nonzero(values <= np.float32(cut(found, share))) == math.ceil(share * 400)


def test_the_share_below():
    found = tally_of(np.arange(1, 101)).quantiles()
    assert fraction_below(found, 0.5) == 0
    assert fraction_below(found, 50.5) == pytest.approx(0.5)
    assert fraction_below(found, 1000) == 1


def test_nothing_seen_has_no_quantiles():
    assert len(QuantileSketch().quantiles()) == 0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, math.nan])
def test_a_bad_share(share):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        cut(tally_of([1.0]).quantiles(), share)
