import math

import pytest

from reproduction.verdict import Effect, Observation, compute_difference, compute_effect, judge


def effect(mean, noise, strongest=None, seeds=3):
    return Effect(mean, noise, mean if strongest is None else strongest, seeds)


def observations(*effects, error=0.0):
    return [Observation(effect, effect, error) for effect in effects]


@pytest.mark.parametrize(
    ("effects", "word"),
    [
        ((0.3, 0.31, 0.29), "shown"),
        ((0.3, -0.2, 0.1), "not shown"),
        ((-0.3, -0.31, -0.29), "reversed"),
        ((-0.3, 0.2, -0.1), "not shown"),
        ((0.0, 0.0, 0.0), "not shown"),
    ],
)
def test_a_verdict_needs_more_than_the_spread_over_seeds(effects, word):
    assert judge(compute_effect(observations(*effects)), {})[0] == word


@pytest.mark.parametrize(("error", "word"), [(0.1, "shown"), (0.2, "not shown")])
def test_one_seed_needs_two_standard_errors(error, word):
    assert judge(compute_effect(observations(0.3, error=error)), {})[0] == word


def test_a_small_spread_does_not_hide_a_large_error_of_the_sample():
    found = compute_effect(observations(0.1, 0.1, 0.1, error=0.06))
    assert (found.mean, found.noise) == (pytest.approx(0.1), pytest.approx(0.12))


def test_one_seed_borrows_a_spread_and_several_do_not():
    assert compute_effect(observations(0.3), borrowed=[0.1, 0.5, 0.9]).noise == pytest.approx(0.4)
    assert compute_effect(observations(0.3, 0.3), borrowed=[0.1, 0.5, 0.9]).noise == 0.0


def test_judge_says_if_there_is_one_seed():
    alone = judge(compute_effect(observations(0.3)), {})
    assert alone == ("shown", "one seed: its deviation is unknown")
    assert judge(compute_effect(observations(0.3), borrowed=[0.2, 0.21]), {}) == ("shown", "")
    assert judge(compute_difference(observations(0.3), observations(0.1)), {}) == alone


def test_a_claim_of_parts_is_reversed_only_if_all_are():
    assert judge(effect(-0.3, 0.1, strongest=0.4), {}) == ("not shown", "a part of it has the opposite sign")
    assert judge(effect(-0.3, 0.1, strongest=-0.2), {})[0] == "reversed"
    parts = [Observation(0.9, -0.3, 0.01, strongest=0.4), Observation(0.9, -0.3, 0.01, strongest=0.2)]
    assert compute_effect(parts).strongest == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("control", "word"),
    [
        ((0.1, 0.0), "shown"),
        ((0.1, 0.26), "not shown"),
        ((0.24,), "shown"),
        ((), "shown"),
        ((-0.9,), "shown"),
    ],
)
def test_no_seed_of_a_control_may_have_half_of_it(control, word):
    found, why = judge(effect(0.5, 0.1), {"untrained": control})
    assert found == word
    assert why == ("untrained shows it as well" if word == "not shown" else "")


def test_a_control_must_be_below_by_more_than_the_noise():
    assert judge(effect(0.5, 0.4), {"untrained": [0.09]})[0] == "shown"
    assert judge(effect(0.5, 0.4), {"untrained": [0.11]})[0] == "not shown"


def test_a_control_does_not_make_a_reversed_claim_better():
    assert judge(effect(-0.5, 0.1), {"untrained": [0.9]})[0] == "reversed"


def test_between_two_variants_both_noises_count():
    found = compute_difference(observations(0.5, 0.7), observations(0.1, 0.3))
    assert found.mean == pytest.approx(0.4)
    assert found.noise == pytest.approx(math.hypot(0.2 / math.sqrt(2), 0.2 / math.sqrt(2)))


def test_a_variant_with_one_seed_is_taken_to_vary_like_the_other():
    both = compute_difference(observations(0.5, 0.7), observations(0.2)).noise
    assert both == pytest.approx(0.2)
    assert compute_difference(observations(0.2), observations(0.5, 0.7)).noise == pytest.approx(both)
    borrowed = compute_difference(observations(0.2), observations(0.6), borrowed=[0.1, 0.4, 0.7]).noise
    assert borrowed == pytest.approx(0.3 * math.sqrt(2))
