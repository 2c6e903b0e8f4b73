import pytest

from prolip.training import recipes
from reproduction import cost
from reproduction.claims_training import CLAIMS


@pytest.fixture(scope="module")
def found():
    return cost.measure_cost(recipes.load_recipe("nano").build_config(), batch=2, repeats=3)


def test_every_tower_is_timed_against_the_deterministic_one(found):
    assert set(found["seconds"]) == {"deterministic", "unc", "multihead"}
    assert set(found["ratio"]) == {"unc", "multihead"}
    assert all(value > 0 for value in found["seconds"].values())


def test_the_claim_can_be_read(found):
    claim = next(claim for claim in CLAIMS if claim.id == "cost")
    assert claim.observe(found).value == found["ratio"]["unc"]["median"]


def test_ratios_are_of_the_same_round():
    assert cost._compute_ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == {
        "median": 2.0,
        "error": pytest.approx(1 / 3),
    }
