from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from prolip.scenes.random_draws import RandomDraws


def test_draws_golden():
    """Golden: data sets that people wrote with (seed, index) must be drawn again in other versions."""
    draws = RandomDraws(1, 2)
    assert [draws.uint32() for _ in range(3)] == [768720421, 2699641887, 1846601995]
    assert [
        RandomDraws(1, 2).randbelow(10),
        RandomDraws(1, 3).randbelow(10),
        RandomDraws(12).randbelow(10),
    ] == [1, 0, 9]


def test_draws_accept_integers_only():
    assert RandomDraws(np.int64(1), np.uint8(2)).uint32() == RandomDraws(1, 2).uint32()
    for wrong in (1.0, "1", None, float("nan")):
        with pytest.raises(TypeError):
            RandomDraws(1, wrong)


def test_draws_continue_beyond_one_block():
    words = [word for draws in [RandomDraws(5)] for word in (draws.uint32() for _ in range(100))]
    assert len(set(words)) == 100


def test_randbelow_is_uniform():
    counts = Counter(RandomDraws(0, i).randbelow(7) for i in range(7000))
    assert set(counts) == set(range(7))
    assert chisquare([counts[i] for i in range(7)]).pvalue > 1e-4


def test_categorical_follows_probabilities():
    counts = Counter(RandomDraws(1, i).categorical((0.5, 0.0, 0.3, 0.2)) for i in range(5000))
    assert counts[1] == 0
    assert chisquare([counts[0], counts[2], counts[3]], [2500, 1500, 1000]).pvalue > 1e-4


def test_categorical_with_rounding_remainder():
    draws = RandomDraws(0)
    draws._unused = [2**32 - 1]
    assert draws.categorical((0.1,) * 9 + (0.1 - 1e-8, 0.0)) == 9  # the last that can be


def test_sample_is_distinct_and_in_all_orders():
    seen = Counter(tuple(RandomDraws(2, i).sample(4, 3)) for i in range(2400))
    assert all(len(set(numbers)) == 3 for numbers in seen)
    assert len(seen) == 24
    assert chisquare(list(seen.values())).pvalue > 1e-4


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_bernoulli(probability):
    share = sum(RandomDraws(3, i).bernoulli(probability) for i in range(4000)) / 4000
    assert share == pytest.approx(probability, abs=0.03 * (0 < probability < 1))
