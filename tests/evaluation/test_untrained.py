import pytest
import torch

from prolip.embeddings import Embedder
from prolip.evaluation.untrained import (
    MAX_MODELS,
    make_untrained,
    untrained_embedders,
    untrained_models,
)
from prolip.model.create import create


def test_untrained_models_are_fresh_and_of_the_same_kind(tokenizer):
    model = create("nano", tokenizer, seed=4)
    fresh = make_untrained(model, 4)
    assert fresh.config == model.config
    assert fresh.tokenizer is model.tokenizer
    assert not fresh.training
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))
    assert not torch.equal(make_untrained(model, 5).image.positions, model.image.positions)


def test_controls_are_of_the_seeds_from_0(nano):
    found = list(untrained_models(nano, 2))
    for seed, model in enumerate(found):
        assert torch.equal(model.image.positions, make_untrained(nano, seed).image.positions)
    assert len(found) == 2
    assert not list(untrained_models(nano, 0))


@pytest.mark.parametrize("count", [-1, MAX_MODELS + 1, 1.0, True, "3", None])
def test_invalid_number_of_untrained_models_is_rejected_first(nano, count):
    with pytest.raises(ValueError, match="integer from 0 to 1000"):
        untrained_models(nano, count)


def test_untrained_embedders_keep_settings_but_no_cache(nano, tmp_path):
    embedder = Embedder(model=nano, cache=tmp_path, batch_size=3)
    (one, two) = untrained_embedders(embedder, 2)
    assert (one.cache, one.batch_size) == (None, 3)
    assert torch.equal(two.model.image.positions, make_untrained(nano, 1).image.positions)
    with pytest.raises(ValueError, match="-1"):
        untrained_embedders(embedder, -1)


def test_no_untrained_embedders_need_no_model():
    assert not list(untrained_embedders(None, 0))
