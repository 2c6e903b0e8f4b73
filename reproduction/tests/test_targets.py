import pytest

from reproduction import targets
from reproduction.evidence import Evidence
from reproduction.targets import Target, evaluate_targets
from reproduction.tests.factories import cell


@pytest.fixture(autouse=True)
def one_target(monkeypatch):
    monkeypatch.setattr(targets, "TARGETS", (Target("x", ("x",), 0.9),))


def row(ours, fresh=()):
    cells = [cell(seed=seed, x=value) for seed, value in enumerate(ours)]
    cells += [cell("untrained", seed, x=value) for seed, value in enumerate(fresh)]
    return evaluate_targets(Evidence(cells))[0]


@pytest.mark.parametrize(
    ("ours", "fresh", "reached"),
    [
        ((0.91, 0.95), (0.5,), True),
        ((0.91, 0.9), (0.5,), False),
        ((0.91, None), (0.5,), False),
        ((0.91, 0.95), (0.1, 0.93), False),
        ((0.91,), (None,), True),
        ((), (0.5,), None),
        ((0.95,), (), None),
        ((0.5,), (), False),
    ],
)
def test_every_seed_must_reach_it_and_no_untrained_model_may(ours, fresh, reached):
    found = row(ours, fresh)
    assert found["reached"] is reached
    assert found["by_seed"] == list(ours)
    assert found["untrained"] == list(fresh)


def test_a_target_may_be_the_mean_of_several_numbers():
    both = Target("mean", ("a/x", "b/x"), 0.5)
    assert both.value({"a": {"x": 0.25}, "b": {"x": 0.75}}) == 0.5
    assert both.value({"a": {"x": 0.25}, "b": {"x": None}}) is None
