"""Controls of uncertainty: each against a definition in a few lines."""

import math
from collections import Counter

import pytest
import torch

from prolip.embeddings.embedder import Embedder
from prolip.evaluation import controls
from prolip.evaluation.configs import ControlsConfig
from prolip.evaluation.untrained import make_untrained
from prolip.gaussian import Gaussian
from prolip.measures import log_perplexity

TEXTS = ["a dog", "A dog, running!", "a brown dog runs on the grass", "a dog"]


def test_words_and_pieces_are_counted(nano):
    found = controls.score_texts(TEXTS, nano.tokenizer, controls.count_unigrams(TEXTS, "x"))
    assert found.words.tolist() == [-2, -3, -7, -2]
    special = {nano.tokenizer.config.start_id, nano.tokenizer.config.end_id}
    pieces = [-sum(token not in special for token in nano.tokenizer.encode(text)) for text in TEXTS]
    assert found.pieces.tolist() == pieces
    assert list(found.by_name()) == ["words", "pieces", "unigram"]
    assert "pieces" not in controls.score_texts(TEXTS, None, controls.count_unigrams(TEXTS, "x")).by_name()


def test_unigram_information_has_add_one_smoothing():
    counted = controls.read_unigrams(None, TEXTS)
    words = Counter(
        ["a", "dog", "a", "dog", "running", "a", "brown", "dog", "runs", "on", "the", "grass"]
    )  # each text once
    total = sum(words.values()) + len(words) + 1
    for text in (["a", "dog"], ["a", "unseen", "grass"]):
        wanted = sum(math.log((words[word] + 1) / total) for word in text)
        assert counted.log_probability(" ".join(text)) == pytest.approx(wanted)
    assert counted.log_probability("") == 0.0
    probabilities = [math.exp(counted.log_probability(word)) for word in [*words, "unseen"]]
    assert sum(probabilities) == pytest.approx(1.0), "all words that were seen, and one that was not"


def test_unigrams_are_counted_in_named_captions(tmp_path):
    (tmp_path / "captions.txt").write_text("red red blue\n\nred\n")
    counted = controls.read_unigrams(str(tmp_path / "captions.txt"), TEXTS)
    assert counted.counts == Counter(red=3, blue=1)
    assert counted.name.endswith("captions.txt")
    drawn = controls.read_unigrams("scenes:simple,length=3,size=32", TEXTS)
    assert drawn.counts.total() > 3
    with pytest.raises((ValueError, OSError), match="nothing"):
        controls.read_unigrams(str(tmp_path / "nothing.tar"), TEXTS)


def points(generator, count, dims=6):
    return Gaussian.point(
        torch.nn.functional.normalize(torch.randn(count, dims, generator=generator), dim=-1)
    )


def test_fitted_scale_has_the_largest_likelihood_of_own_images(generator):
    images, own = points(generator, 30), torch.arange(-1, 59) % 31 - 1
    mixed = images.mean[own.clamp_min(0)] + 0.6 * points(generator, 60).mean
    texts = Gaussian.point(torch.nn.functional.normalize(mixed, dim=-1))
    scale = controls.fit_pool_scale(texts, images, own)
    known = own >= 0
    assert not bool(known.all())

    def likelihood(value):
        logits = value * (texts.mean[known] @ images.mean.T).double()
        return logits.log_softmax(1).gather(1, own[known][:, None]).mean().item()

    assert 1 < scale < 100
    assert likelihood(scale) > max(likelihood(0.97 * scale), likelihood(1.03 * scale))
    assert controls.fit_pool_scale(texts, images, torch.full((60,), -1)) is None


def test_scale_of_the_config_times_k(generator):
    texts, images, own = points(generator, 9), points(generator, 9), torch.arange(9)
    config = ControlsConfig(perplexity_scale=5.0, perplexity_k=2.0)
    assert controls.choose_pool_scale(texts, images, own, config) == 10.0
    fitted = controls.fit_pool_scale(texts, images, own)
    assert controls.choose_pool_scale(texts, images, own, ControlsConfig()) == fitted
    assert controls.choose_pool_scale(texts, images[:2], own % 2, ControlsConfig()) is None
    found = controls.score_pool(texts, images, own, 10.0)
    assert list(found) == ["perplexity"]
    torch.testing.assert_close(found["perplexity"], log_perplexity(texts, images, 5.0, k=2.0, exclude=own))


def test_select_pool_keeps_own_images_where_they_are_selected(generator, monkeypatch):
    monkeypatch.setattr(controls, "MAX_POOL", 4)
    images, own = points(generator, 10), torch.arange(10)
    pool, rows = controls.select_pool(images, own)
    assert len(pool) == 4
    assert (rows >= 0).sum() == 4
    for caption in (rows >= 0).nonzero()[:, 0].tolist():
        assert torch.equal(pool.mean[rows[caption]], images.mean[caption])


def test_untrained_models_embed_the_texts(nano):
    found = list(controls.embed_untrained(Embedder(model=nano), TEXTS, 2))
    wanted = [make_untrained(nano, seed).embed_texts(TEXTS).uncertainty.double() for seed in (0, 1)]
    for values, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(values, expected)
    assert list(controls.embed_untrained(Embedder(model=nano), TEXTS, 0)) == []


@pytest.mark.parametrize("options", [{"perplexity_k": 0.0}, {"perplexity_scale": -1.0}])
def test_config_refuses_scales_that_are_not_positive(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ControlsConfig(**options)
