"""Each alarm at both sides of its threshold; when it sounds again; that it can be replayed."""

import json
import math
import random

import pytest

from prolip.training.diagnostics import Diagnostics


def looks(alarms, name, *values):
    """Sentences of several looks at one value."""
    return [alarms.check({name: value}) for value in values]


@pytest.mark.parametrize("modality", ["image", "text"])
@pytest.mark.parametrize(
    ("name", "well", "ill", "words"),
    [
        ("log_var", -20.0, -20.01, ["collapsed", "-20.01"]),
        ("uncertainty_q50", 4.0, 4.01, ["exploded", "4.01"]),
    ],
)
def test_variances(modality, name, well, ill, words):
    alarms = Diagnostics()
    assert alarms.check({f"{modality}/{name}": well}) == []
    (sentence,) = alarms.check({f"{modality}/{name}": ill})
    assert all(word in sentence for word in [*words, modality])


def test_both_modalities_sound_at_once():
    assert len(Diagnostics().check({"image/log_var": -30.0, "text/log_var": -30.0})) == 2


@pytest.mark.parametrize(
    ("well", "ill", "words"), [(99.89, 99.9, ["upper", "99.9"]), (1.0011, 1.001, ["lower", "1.001"])]
)
def test_a_scale_that_stays_at_its_limit(well, ill, words):
    assert looks(Diagnostics(), "scale", *[well] * 30) == [[]] * 30
    *before, (sentence,) = looks(Diagnostics(), "scale", *[ill] * 10)
    assert before == [[]] * 9
    assert all(word in sentence for word in words)
    assert looks(Diagnostics(), "scale", *[ill] * 9, well, *[ill] * 9) == [[]] * 19


@pytest.mark.parametrize(
    ("scale", "well", "ill", "words"),
    [
        (10.0, -30.0, -30.01, ["perfect match", "-30.01", "-20.01"]),
        (10.0, 30.0, 30.01, ["every pair", "20.01"]),
    ],
)
def test_a_bias_that_runs_away(scale, well, ill, words):
    assert Diagnostics().check({"scale": scale, "logit_bias": well}) == []
    (sentence,) = Diagnostics().check({"scale": scale, "logit_bias": ill})
    assert all(word in sentence for word in words)


def test_the_start_of_every_contrastive_term_is_quiet():
    for scale, bias in ((10.0, -10.0), (5.0, 5.0), (1 / 0.07, 0.0)):
        assert Diagnostics().check({"scale": scale, "logit_bias": bias}) == []


def test_scale_of_a_likelihood_has_no_limit():
    """e^tau is small where traces are: 0.09 in the miniature."""
    alarms = Diagnostics(has_likelihood=True)
    assert [alarms.check({"scale": 0.09, "logit_bias": -30.0}) for _ in range(30)] == [[]] * 30
    assert alarms.check({"scale": 0.09, "text/log_var": -21.0}) != []


def test_a_gradient_is_compared_with_the_median_before_it():
    norms = [float(n) for n in range(1, 11)]  # median 5.5
    assert looks(Diagnostics(), "grad_norm", *norms, 550.0)[-1] == []
    (sentence,) = looks(Diagnostics(), "grad_norm", *norms, 550.1)[-1]
    assert "550.1" in sentence
    assert "5.5" in sentence
    assert looks(Diagnostics(), "grad_norm", *norms[:9], 1e6)[-1] == []  # nine are too few


def test_only_the_last_fifty_gradients_count():
    # Of the last 50, 26 are 1 in the first case and 25 (median 50.5) in the second.
    assert looks(Diagnostics(), "grad_norm", *[1.0] * 26, *[100.0] * 24, 101.0)[-1] != []
    assert looks(Diagnostics(), "grad_norm", *[1.0] * 26, *[100.0] * 25, 101.0)[-1] == []


def test_trouble_that_lasts_sounds_once():
    assert sum(map(len, looks(Diagnostics(), "text/log_var", *[-25.0] * 40))) == 1


@pytest.mark.parametrize(("quiet", "times"), [(1, 1), (9, 1), (10, 2)])
def test_it_sounds_again_after_ten_quiet_looks(quiet, times):
    values = [-25.0, *[-10.0] * quiet, -25.0]
    assert sum(map(len, looks(Diagnostics(), "text/log_var", *values))) == times


def test_looks_without_the_value_are_not_quiet_ones():
    alarms = Diagnostics()
    assert alarms.check({"text/log_var": -25.0})
    for _ in range(20):
        alarms.check({"held_out/r1": 0.5})
    assert alarms.check({"text/log_var": -25.0}) == []


def test_a_deterministic_model_and_missing_values_are_silent():
    alarms = Diagnostics()
    for _ in range(20):
        assert alarms.check({"loss": 3.0, "scale": 14.0, "grad_norm": 2.0}) == []
        assert alarms.check({"logit_bias": -1e3}) == []
        assert alarms.check({}) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_is_not_finite_is_not_judged(value):
    alarms = Diagnostics()
    names = ("image/log_var", "image/uncertainty_q50", "scale", "bias", "grad_norm")
    for _ in range(20):
        assert alarms.check(dict.fromkeys(names, value)) == []


def test_alarms_that_look_at_the_written_lines_again_go_on_as_if_never_stopped():
    chance = random.Random(0)
    lines = [
        {
            "step": step,
            "text/log_var": chance.choice([-25.0, -15.0]) if step % 60 < 20 else -10.0,
            "scale": 100.0 if step % 50 < 25 else chance.uniform(5, 100),
            "logit_bias": chance.uniform(-40, 0),
            "grad_norm": chance.choice([1.0, 2.0, 3.0, math.nan, 500.0]),
        }
        for step in range(300)
    ]
    whole = Diagnostics()
    expected = [whole.check(line) for line in lines]
    assert sum(map(len, expected)) > 10
    for stop in (5, 77, 150):
        again = Diagnostics()
        for line in lines[:stop]:
            written = {name: None if math.isnan(value) else value for name, value in line.items()}
            again.check(json.loads(json.dumps(written)))
            again.check({"step": line["step"], "message": "a sentence"})
        assert [again.check(line) for line in lines[stop:]] == expected[stop:]


def test_quiet_looks_are_in_a_row():
    values = [-25.0, *[-10.0] * 6, -25.0, *[-10.0] * 6, -25.0]
    assert sum(map(len, looks(Diagnostics(), "text/log_var", *values))) == 1
