"""Tests of the confidence of a search, against draws of the query."""

import numpy as np
import pytest
import torch

from prolip import scenes
from prolip.embeddings.embed import embed
from prolip.gaussian import Gaussian
from prolip.retrieval.confidence import (
    EQUALLY_GOOD,
    GENERAL_COUNT,
    LOW_MATCH,
    SearchConfidence,
    compute_confidence,
    probability_nearer_than_first,
)
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.perplexity import PerplexityEstimate
from prolip.retrieval.query import search_gaussians
from prolip.weights.load import load
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

IMAGES, TEXTS = make_gaussians(300, low=-5.0, high=-3.0), make_gaussians(100, seed=1)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("confidence")
    made = index_embeddings(folder / "db", [write_embeddings(folder / "e", IMAGES, TEXTS)])
    build_index(made)
    return made


@pytest.mark.parametrize("row", range(4))
def test_probability_nearer_than_first_matches_draws_of_the_query(database, row):
    query = make_gaussians(4, seed=3, low=-4.0, high=-2.0)[row]
    (hits,) = search_gaussians(database, query[None], SearchConfig(k=25, modality="image"))
    found = probability_nearer_than_first(query, hits)
    draws = query.to(torch.float64).sample(torch.Generator().manual_seed(0), 40_000).numpy()
    distances = np.stack([np.square(draws - mean).sum(1) for mean in hits.mean], axis=1) + hits.uncertainty
    expected = (distances < distances[:, :1]).mean(0)
    assert found[0] == 0.5
    np.testing.assert_allclose(found[1:], expected[1:], atol=0.012)
    assert found[1:].min() < 0.3, "all equal would prove little"


def test_point_query_is_certain_and_copies_count_once(tmp_path):
    copies = IMAGES[[0, 0, 1, 2]]
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", copies, parts=1)])
    point = Gaussian.point(IMAGES.mean[0])
    (hits,) = search_gaussians(database, point[None], SearchConfig(k=4))
    assert probability_nearer_than_first(point, hits).tolist() == [0.5, 0.5, 0.0, 0.0]
    found = compute_confidence(database, point, hits, "text")
    assert (found.uncertainty, found.uncertainty_quantile, found.equally_good) == (None, None, 1), (
        "copies are one"
    )
    assert found.copies == 1


def test_copies_are_the_items_with_the_embedding_of_the_first(tmp_path):
    wider = Gaussian(IMAGES.mean[:1], IMAGES.log_var[:1] + 1)  # the same mean, but farther by CSD
    rounded = Gaussian(IMAGES.mean[:1] + 1e-7, IMAGES.log_var[:1])
    items = Gaussian.cat([IMAGES[[0, 0, 1, 2]], rounded, wider])
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", items, parts=1)])
    query = Gaussian(IMAGES.mean[:1], torch.full_like(IMAGES.mean[:1], -9.0))
    (hits,) = search_gaussians(database, query, SearchConfig(k=6))
    found = compute_confidence(database, query[0], hits, "text")
    assert (found.copies, found.equally_good, found.compared) == (2, 1, 6)
    (first,) = search_gaussians(database, query, SearchConfig(k=1))
    assert compute_confidence(database, query[0], first, "text").copies == 0


def test_equally_good_count_grows_with_query_uncertainty(database):
    mean = make_gaussians(1, seed=5).mean
    counts = []
    for log_var in (-9.0, -5.0, -3.0, -1.0):
        query = Gaussian(mean, torch.full_like(mean, log_var))
        (hits,) = search_gaussians(database, query, SearchConfig(k=200, modality="image"))
        counts.append(compute_confidence(database, query[0], hits, "text").equally_good)
    assert counts == sorted(counts)
    assert counts[0] < 10 < counts[-1]


def test_compute_confidence_values(database):
    query = make_gaussians(1, seed=6)
    (hits,) = search_gaussians(database, query, SearchConfig(k=200, modality="image"))
    found = compute_confidence(database, query[0], hits, "text")
    assert found.uncertainty == pytest.approx(float(query.uncertainty))
    assert found.uncertainty_quantile == pytest.approx(
        float((TEXTS.uncertainty < query.uncertainty).float().mean()), abs=2e-3
    )
    assert found.match == hits.match[0]
    assert found.compared == 200
    assert compute_confidence(database, query[0], hits, "image").match is None, (
        "two images have no match probability"
    )


def make_confidence(**values):
    defaults = {
        "query_modality": "text", "uncertainty": 0.5, "uncertainty_quantile": None, "match": None, "equally_good": 1,
        "copies": 0, "compared": 200,
    }  # fmt: skip
    return SearchConfidence(**defaults | values)


def test_confidence_describe():
    general = make_confidence(uncertainty_quantile=0.944, match=0.12, equally_good=197).describe()
    assert general[:2] == [
        "match probability of the first result: 12.0%",
        "uncertainty of the query: 0.5, higher than that of 94.4 % of the texts in the database",
    ]
    assert "197 of the 200 nearest results" in general[2]
    assert "all 200 nearest results" in make_confidence(equally_good=200).describe()[1]
    assert make_confidence(equally_good=4).describe()[1] == "4 results are about as good as the nearest"
    assert "nearest result is clearly nearer" in make_confidence().describe()[1]
    assert make_confidence(uncertainty=None).describe() == []
    assert len(make_confidence(compared=1).describe()) == 1, "a single result is nearer than no other"


def make_fitting(value, **values):
    return PerplexityEstimate(
        **{"value": value, "low": value, "high": value, "num_items": 2000, "is_exact": True} | values
    )


def test_confidence_describes_how_many_items_fit_in_place_of_equally_good_ones():
    def describe(value, equally_good=1, modality="text", **values):
        fitting = make_fitting(value, **values)
        found = make_confidence(fitting=fitting, equally_good=equally_good, query_modality=modality)
        return found.describe()[1:], found.is_general

    assert describe(6.6, equally_good=50) == (["about 7 of 2,000 images fit the query"], False)
    general = "about 330 of 2,000 images fit the query; a more specific query narrows them down"
    assert describe(334.2) == ([general], True)
    image = "about 330 of 2,000 texts fit the query"  # an image can't be made more specific
    assert describe(334.2, modality="image") == ([image], True)
    assert describe(1.2, modality="image", num_items=1) == (["about 1 of 1 text fits the query"], False)
    (line,), _ = describe(1234.0, low=1180.0, high=1290.0, is_exact=False, num_items=10**6)
    assert line.startswith("about 1,200 (1,200 to 1,300) of 1,000,000 images fit")


def test_confidence_describes_copies_as_the_table_shows_them():
    alone = make_confidence(copies=2, compared=3).describe()
    assert alone[1:] == ["2 other results are identical to the nearest"], "none is nearer than the others"
    some = make_confidence(copies=1).describe()
    assert some[1:] == [
        "1 other result is identical to the nearest",
        "both are clearly nearer than the others",
    ]
    assert make_confidence(copies=2).describe()[2] == "all 3 are clearly nearer than the others"
    good = make_confidence(copies=2, equally_good=3).describe()
    assert good[2] == "5 results are about as good as the nearest"
    assert "all 200 nearest" in make_confidence(copies=20, equally_good=180).describe()[2]


def test_compute_confidence_without_hits(database):
    query = make_gaussians(1, seed=6)
    (hits,) = search_gaussians(database, query, SearchConfig(k=5, where="index < 0"))
    found = compute_confidence(database, query[0], hits, "text")
    assert (found.equally_good, found.compared, found.match) == (0, 0, None)


@pytest.mark.slow
def test_equally_good_images_match_the_caption_on_scenes(tmp_path):
    """The captions are true of the images that count; general ones are true of many images."""
    model = load("scenes-tiny").eval()
    database = index_embeddings(
        tmp_path / "db", [embed("scenes-tiny", "scenes:simple,size=48,length=1000", tmp_path / "e")]
    )
    drawn = [scenes.SIMPLE.draw_scene(seed=0, index=index) for index in range(1000)]
    rows = [
        row
        for batch in database.iter_batches(["caption"], "modality = 'text' AND index < 60")
        for row in batch.to_pylist()
    ]
    captions = sorted({row["caption"] for row in rows})
    queries = model.embed_texts(captions)
    fractions, general = [], []
    for caption, query, hits in zip(
        captions,
        queries,
        search_gaussians(database, queries, SearchConfig(k=100, modality="image")),
        strict=True,
    ):
        true = np.array([scenes.is_true_caption(caption, scene) for scene in drawn])
        counted = probability_nearer_than_first(query, hits) >= EQUALLY_GOOD
        fractions.append(true[hits.column("index")][counted].mean())
        if counted.sum() >= GENERAL_COUNT:
            general.append(true.sum())
    assert np.mean(fractions) > 0.9
    assert len(general) > 20
    assert np.mean(np.array(general) >= GENERAL_COUNT) > 0.95


def test_claims_are_withheld_or_qualified_for_unknown_words():
    unknown = {"unknown_words": ("flag", "spain"), "uncertainty_quantile": 0.8}
    assert make_confidence(**unknown).describe() == [
        'the model never met "flag", "spain" in training: no result shows that it understands them',
        "uncertainty of the query: 0.5",
    ]
    lines = make_confidence(**unknown, match=0.25, fitting=make_fitting(334.2)).describe()
    assert lines[1] == "match probability of the first result: 25.0%"
    assert lines[-1] == "about 330 of 2,000 images fit what the model knows of the query"
    assert make_confidence(unknown_words=("flag",)).describe()[0].endswith("that it understands it")


def test_claims_are_withheld_where_nothing_matches():
    low = {"relative_match": LOW_MATCH / 10, "uncertainty_quantile": 0.8, "fitting": make_fitting(3.0)}
    lines = make_confidence(**low, match=0.0002).describe()
    assert lines[0].startswith("probably none of the images matches")
    assert "0.01 times" in lines[0]
    assert lines[1:] == ["match probability of the first result: below 0.1%", "uncertainty of the query: 0.5"]
    assert (
        make_confidence(**low, query_modality="image").describe()[0].startswith("probably none of the texts")
    )
    enough = make_confidence(**low | {"relative_match": LOW_MATCH}).describe()
    assert "higher than that of 80.0 %" in enough[0]
    assert enough[1] == "about 3 of 2,000 images fit the query"


def test_a_specific_query_that_fits_most_items_gets_no_advice():
    def describe(quantile, value=1300.0, **values):
        found = make_confidence(uncertainty_quantile=quantile, fitting=make_fitting(value), **values)
        return found.describe()[-1]

    assert describe(0.011) == (
        "no image stands out: about 1,300 of 2,000 images fit the query, though it is less uncertain than most texts "
        "in the database"
    )
    assert describe(0.011, query_modality="image").startswith("no text stands out")
    for general in (describe(0.9), describe(None), describe(0.011, value=900.0)):
        assert general.endswith("a more specific query narrows them down")
    assert "what the model knows" in describe(0.011, unknown_words=("dog",))
