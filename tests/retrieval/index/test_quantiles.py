"""Quantiles in one pass against sorting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.retrieval.index.quantiles import LEVELS, QuantileSketch, fraction_below, value_at_fraction


def make_sketch(*pieces):
    sketch = QuantileSketch()
    for piece in pieces:
        sketch.add(np.asarray(piece, dtype=np.float32))
    return sketch


@given(
    st.lists(st.floats(0, 2.0**100, width=32, allow_subnormal=False), min_size=1, max_size=60),
    st.integers(1, LEVELS),
)
def test_quantile_covers_its_fraction_and_is_tight(values, level):
    values = np.sort(np.float32(values))
    found = make_sketch(values[::2], values[1::2]).compute_quantiles()[level - 1]
    wanted = values[math.ceil(level * len(values) / LEVELS) - 1]
    assert found in values
    assert wanted <= found <= np.float32(wanted * (1 + 1 / 2048))


def test_value_at_fraction_is_exact_for_distinct_values():
    values = np.float32(np.random.default_rng(0).permutation(np.linspace(0.1, 10, 400)))
    found = make_sketch(values[:100], values[100:]).compute_quantiles()
    for fraction in (0.0025, 0.1, 0.5, 0.9, 1.0):
        assert np.count_nonzero(values <= np.float32(value_at_fraction(found, fraction))) == math.ceil(
            fraction * 400
        )


def test_fraction_below():
    found = make_sketch(np.arange(1, 101)).compute_quantiles()
    assert fraction_below(found, 0.5) == 0
    assert fraction_below(found, 50.5) == pytest.approx(0.5)
    assert fraction_below(found, 1000) == 1


def test_empty_sketch_has_no_quantiles():
    assert len(QuantileSketch().compute_quantiles()) == 0


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, math.nan])
def test_value_at_fraction_rejects_invalid_fraction(fraction):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        value_at_fraction(make_sketch([1.0]).compute_quantiles(), fraction)
