import json

import pytest

from prolip import demo


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    return out, demo.run(out, seed=1)


def test_the_inclusion_loss_turns_the_order_round(results):
    """The claim that the demo prints, on a seed other than its default."""
    _, found = results
    alone, stronger = found["PPCL alone"], found["stronger inclusion"]
    assert demo._verdict(alone) == "backwards"
    assert demo._verdict(stronger) == "in the right order"
    assert stronger.included > 0.99 > 0.5 > alone.included
    assert min(stronger.text_uncertainty.values()) > stronger.image_uncertainty


def test_every_objective_learns_the_classes(results):
    assert min(result.accuracy for result in results[1].values()) > 0.95


def test_it_writes_what_it_prints(results):
    out, found = results
    written = json.loads((out / "results.json").read_text())
    assert written["PPCL alone"]["text_uncertainty"] == found["PPCL alone"].text_uncertainty
    names = {path.name for path in out.iterdir()}
    assert names == {
        "results.json", "uncertainty-by-level.png", "uncertainty-by-level.svg", "toy-inclusion.png", "toy-inclusion.svg"
    }  # fmt: skip


def test_it_is_deterministic(monkeypatch):
    monkeypatch.setattr(demo, "STEPS", 5)
    first, second, other = (demo.train(demo.OBJECTIVES["stronger inclusion"], seed) for seed in (3, 3, 4))
    assert first == second != other


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((3, 2, 1), "in the right order"), ((1, 2, 3), "backwards"), ((2, 1, 3), "in no clear order")],
)
def test_verdicts(values, verdict):
    text = dict(zip(demo.LEVELS, map(float, values), strict=True))
    assert demo._verdict(demo.Result(text, 0.0, 1.0, 1.0)) == verdict
