"""Tests of uncertainty and pool perplexity against the ranks of the right items, in both directions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr

from prolip import scenes
from prolip.embeddings import Embedder
from prolip.evaluation.configs import UncertaintyConfig
from prolip.evaluation.pool_perplexity import PerplexityResult, evaluate_perplexity, measure_difficulty
from prolip.evaluation.result import Result
from prolip.evaluation.uncertainty import evaluate_uncertainty
from prolip.gaussian import Gaussian
from prolip.measures import csd_matrix
from prolip.measures.match import LogitParameters
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from tests.evaluation.pairs import pairs_of

PARAMETERS = LogitParameters(scale=12.0, bias=-3.0)


@pytest.fixture(scope="module")
def pairs():
    """40 images; all but the first have captions, which lie near them; the wider ones lie farther."""
    generator = torch.Generator().manual_seed(0)
    owner = torch.cat([torch.arange(1, 40), torch.arange(1, 40, 3)])
    images = torch.randn(40, 8, generator=generator)
    width = torch.rand(len(owner), 1, generator=generator)
    texts = images[owner] + 3 * width * torch.randn(len(owner), 8, generator=generator)
    unit = torch.nn.functional.normalize
    order = torch.randperm(len(owner), generator=generator)
    return pairs_of(
        Gaussian(unit(images, dim=1), torch.randn(40, 8, generator=generator) - 5),
        Gaussian(unit(texts, dim=1), (width - 5).expand(-1, 8))[order],
        owner[order],
    )


def entropies(queries, pool, own, scale):
    """Entropy of each softmax without the own item, with numpy in float64."""
    logits = scale * queries.mean.double().numpy() @ pool.mean.double().numpy().T
    logits[np.arange(len(own)), own] = -np.inf
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)


def own_ranks(queries, items, own):
    """Rank of each own item by CSD."""
    distances = csd_matrix(queries, items).double().numpy()
    return np.array([rankdata(row)[column] for row, column in zip(distances, own, strict=True)])


def test_scores_are_correlated_with_ranks_in_both_directions(pairs):
    config = UncertaintyConfig(perplexity_scale=6.0)
    found = measure_difficulty(pairs, config, PARAMETERS)
    owner = pairs.captions.image_index.tolist()
    captions = [owner.index(image) for image in range(1, 40)]  # the first of each image
    for one, queries, items, own in (
        (found.texts, pairs.texts, pairs.images, owner),
        (found.images, pairs.images[1:], pairs.texts[captions], list(range(39))),
    ):
        ranks = own_ranks(queries, items, own)
        assert (one.num_queries, one.num_pool, one.perplexity_scale) == (len(queries), len(items), 6.0)
        by_name = {score.name: score for score in one.scores}
        assert list(by_name) == ["uncertainty", "perplexity", "match_perplexity"]
        wide = queries.uncertainty.double().numpy()
        assert by_name["uncertainty"].spearman == pytest.approx(spearmanr(wide, ranks).statistic)
        entropy = entropies(queries, items, own, 6.0)
        assert by_name["perplexity"].spearman == pytest.approx(spearmanr(entropy, ranks).statistic, abs=1e-3)
        tenth = len(ranks) // 10
        order = np.argsort(entropy)
        assert by_name["perplexity"].surest.value == pytest.approx((ranks[order[:tenth]] <= 10).mean())
        assert by_name["perplexity"].least_sure.value == pytest.approx((ranks[order[-tenth:]] <= 10).mean())
    assert found.texts.scores[0].spearman > 0.3, "wider texts were made to lie farther"


def test_images_search_the_most_specific_captions(pairs):
    owner = pairs.captions.image_index
    levels = torch.arange(len(owner)) % 4
    chains = replace(pairs, captions=replace(pairs.captions, levels=levels))
    chosen = [
        max((int(levels[row]), -row) for row in range(len(owner)) if owner[row] == image)
        for image in range(1, 40)
    ]
    rows = [-row for _, row in chosen]
    alone = replace(pairs_of(pairs.images[1:], pairs.texts[rows], torch.arange(39)), name=pairs.name)
    config = UncertaintyConfig(perplexity_scale=6.0)
    assert measure_difficulty(chains, config, None).images == measure_difficulty(alone, config, None).images


def test_a_deterministic_model_has_the_perplexities_only(pairs):
    still = replace(pairs, images=Gaussian.point(pairs.images.mean), texts=Gaussian.point(pairs.texts.mean))
    found = measure_difficulty(still, UncertaintyConfig(), PARAMETERS)
    for one in (found.texts, found.images):
        assert [score.name for score in one.scores] == ["perplexity", "match_perplexity"]
        assert one.perplexity_scale > 0, "fitted"
    assert len(list(found.table().columns[0].cells)) == 4


def test_deterministic_models_get_a_report(generator):
    nano = create("nano", scenes.make_tokenizer(32))
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    source = scenes.Scenes("simple", length=30, size=32)
    result = evaluate_perplexity(Embedder(model=model), source, UncertaintyConfig(limit=20))
    assert Result.from_json(result.to_json()) == result
    assert isinstance(result, PerplexityResult)
    assert (result.n, result.num_captions) == (20, 80)
    scores = {score.name: score for score in result.controls.scores}
    assert list(scores) == ["words", "pieces", "unigram", "perplexity", "match_perplexity"]
    assert scores["perplexity"].ambiguity is not None
    assert [len(table.rows) for table in result.tables()] == [5, 4]


def test_the_uncertainty_report_has_both_directions():
    model = create("nano", scenes.make_tokenizer(32), seed=0).eval()
    source = scenes.Scenes("simple", length=15, size=32)
    result = evaluate_uncertainty(
        Embedder(model=model), source, UncertaintyConfig(num_examples=3, controls=0)
    )
    assert (result.difficulty.texts.num_queries, result.difficulty.images.num_queries) == (60, 15)
    assert result.tables()[-1].title.startswith("Hard queries")
