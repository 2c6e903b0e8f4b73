import json
import math

import pytest
import torch

from prolip.model.prolip import ProLIP
from prolip.scenes import make_tokenizer
from reproduction.measure import MEASURES, measure_model, round_floats
from reproduction.table import CLAIMS
from reproduction.targets import TARGETS
from reproduction.variants import COST

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def numbers(scenes_model, evaluation_data):
    return measure_model(scenes_model, evaluation_data, show=False)


def leaves(value):
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves(one)
    else:
        yield value


def test_numbers_are_plain_and_finite(numbers):
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert all(value is None or math.isfinite(value) for value in leaves(numbers))
    assert set(numbers) == {"parameters", *MEASURES}


def test_measurements_of_a_cell_are_small(numbers):
    assert len(json.dumps(numbers)) < 10_000


@pytest.mark.parametrize("claim", [one for one in CLAIMS if one.variant != COST], ids=lambda claim: claim.id)
def test_every_claim_and_control_can_be_observed(claim, numbers):
    for observe in (claim.observe, claim.rival_observe, *(control.observe for control in claim.controls)):
        if observe is not None:
            found = observe(numbers)
            assert found is None or math.isfinite(found.effect + found.error)


def test_every_target_has_a_value(numbers):
    for target in TARGETS:
        target.value(numbers)


def test_measure_model_of_deterministic_model_has_no_uncertainty(scenes_model, evaluation_data, numbers):
    config = scenes_model.config.with_uncertainty("none")
    model = ProLIP(config, make_tokenizer(16))
    found = measure_model(model.init_weights(torch.Generator().manual_seed(0)), evaluation_data, show=False)
    assert set(found) == set(numbers)
    assert found["ambiguity"]["spearman"] is None
    assert found["ambiguity"]["controls"]["words"]["spearman"] is not None
    assert found["masked"] is None
    assert found["filtering"]["csd"]["precision"] == found["filtering"]["cosine"]["precision"]
    accuracy = found["zero_shot"]["color_shape"]
    assert 0 <= accuracy["one_prompt_match"] == accuracy["one_prompt"] <= 1
    assert found["retrieval"]["match"] == found["retrieval"]["csd"]
    for claim in CLAIMS:
        if claim.variant != COST:
            claim.observe(found)


def test_round_floats_keeps_six_digits():
    assert round_floats({"a": [1 / 3, None, 7, 1234567.0]}) == {"a": [0.333333, None, 7, 1234570.0]}
