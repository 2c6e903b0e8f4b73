import torch

from prolip.evaluate.controls import untrained
from prolip.model.create import create


def test_untrained_models_are_fresh_and_of_the_same_kind(tokenizer):
    model = create("nano", tokenizer, seed=4)
    fresh = untrained(model, 4)
    assert fresh.config == model.config
    assert fresh.tokenizer is model.tokenizer
    assert not fresh.training
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))
    assert not torch.equal(untrained(model, 5).image.positions, model.image.positions)
