"""Findings are found; and the package has none."""

import random

import pytest

from fuzzing import run
from fuzzing.__main__ import main
from fuzzing.mutate import mutate
from fuzzing.run import fuzz_target
from fuzzing.targets import TARGETS

BAD = "fuzzing.tests.bad_targets"


def test_damages_follow_the_seed_and_change_the_input():
    content = b'{"a": [1, 2.5, "text"], "b": null}' * 3
    damaged = [mutate(content, random.Random(seed)) for seed in range(200)]
    assert damaged == [mutate(content, random.Random(seed)) for seed in range(200)]
    assert len(set(damaged)) > 150
    assert sum(each == content for each in damaged) < 10
    assert any(len(each) < len(content) for each in damaged)
    assert any(len(each) > 1000 for each in damaged)


def test_damage_of_nothing_is_possible():
    for seed in range(100):
        assert isinstance(mutate(b"", random.Random(seed)), bytes)


def test_clear_errors_are_no_findings():
    outcome = fuzz_target(f"{BAD}:clear", 3, 0)
    assert outcome.tried == 3
    assert outcome.findings == []
    assert outcome.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("silent", "says nothing"),
        ("wrong_type", "KeyError"),
        ("panics", "Panic: oh"),
        ("dies", "ends the process with 3"),
        ("hangs", "takes more than"),
        ("takes_memory", "GB"),
    ],
)
def test_findings(name, problem, monkeypatch):
    monkeypatch.setattr(run, "MAX_SECONDS", 3.0 if name == "hangs" else 60.0)
    outcome = fuzz_target(f"{BAD}:{name}", 2, 0)
    assert outcome.tried == 2
    assert outcome.findings
    for finding in outcome.findings:
        assert problem in finding.problem
        assert finding.content != b"abc 123"


@pytest.mark.slow
def test_an_undamaged_input_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="undamaged"):
        fuzz_target(f"{BAD}:never_starts", 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_damaged_input_causes_anything_but_a_clear_error(name, monkeypatch):
    monkeypatch.setattr(run, "MAX_SECONDS", 60.0)  # a machine that runs tests may be busy
    outcome = fuzz_target(name, 100, 0)
    assert outcome.tried == 100
    assert [(finding.number, finding.problem, finding.details) for finding in outcome.findings] == []
    assert outcome.refused > 0 or name == "texts"


def test_unknown_targets_are_named():
    with pytest.raises(SystemExit, match="unknown targets: picture"):
        main(("picture",))
