"""How sure a search is, against draws of the query."""

import numpy as np
import pytest
import torch

from prolip import scenes
from prolip.embeddings.embed import embed
from prolip.gaussian import Gaussian
from prolip.retrieval.confidence import AS_RIGHT, MANY, Sureness, nearer_than_first, sureness
from prolip.retrieval.index.append import fill
from prolip.retrieval.index.build import build
from prolip.retrieval.query import search
from prolip.weights.load import load
from tests.retrieval.rooms import gaussians, written

IMAGES, TEXTS = gaussians(300, low=-5.0, high=-3.0), gaussians(100, seed=1)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sureness")
    made = fill(folder / "db", [written(folder / "e", IMAGES, TEXTS)])
    build(made)
    return made


@pytest.mark.parametrize("row", range(4))
def test_the_probability_of_being_nearer_is_that_of_draws(database, row):
    query = gaussians(4, seed=3, low=-4.0, high=-2.0)[row]
    (hits,) = search(database, query[None], 25, modality="image")
    told = nearer_than_first(query, hits)
    draws = query.to(torch.float64).sample(torch.Generator().manual_seed(0), 40_000).numpy()
    distances = np.stack([np.square(draws - mean).sum(1) for mean in hits.mean], axis=1) + hits.uncertainty
    found = (distances < distances[:, :1]).mean(0)
    assert told[0] == 0.5
    np.testing.assert_allclose(told[1:], found[1:], atol=0.012)
    assert told[1:].min() < 0.3, "all alike proves little"


def test_a_point_is_sure_and_copies_are_alike(tmp_path):
    copies = IMAGES[[0, 0, 1, 2]]
    database = fill(tmp_path / "db", [written(tmp_path / "e", copies, parts=1)])
    point = Gaussian.point(IMAGES.mean[0])
    (hits,) = search(database, point[None], 4)
    assert nearer_than_first(point, hits).tolist() == [0.5, 0.5, 0.0, 0.0]
    found = sureness(database, point, hits, "text")
    assert (found.uncertainty, found.above, found.as_right) == (None, None, 1), "copies are one"


def test_a_wide_query_has_more_that_are_as_right(database):
    mean = gaussians(1, seed=5).mean
    counts = []
    for log_var in (-9.0, -5.0, -3.0, -1.0):
        query = Gaussian(mean, torch.full_like(mean, log_var))
        (hits,) = search(database, query, 200, modality="image")
        counts.append(sureness(database, query[0], hits, "text").as_right)
    assert counts == sorted(counts)
    assert counts[0] < 10 < counts[-1]


def test_what_is_told(database):
    query = gaussians(1, seed=6)
    (hits,) = search(database, query, 200, modality="image")
    found = sureness(database, query[0], hits, "text")
    assert found.uncertainty == pytest.approx(float(query.uncertainty))
    assert found.above == pytest.approx(
        float((TEXTS.uncertainty < query.uncertainty).float().mean()), abs=2e-3
    )
    assert found.match == hits.match[0]
    assert found.looked == 200
    assert sureness(database, query[0], hits, "image").match is None, "of two pictures there is no match"


def test_the_lines():
    general = Sureness(0.5, 0.944, 0.12, 197, 200).lines()
    assert general[:2] == [
        "match probability of the first: 12.0%",
        "uncertainty of the query: 0.5, above that of 94.4% of its kind in the database",
    ]
    assert "so general that 197 of the 200 nearest results" in general[2]
    assert "all 200 nearest results" in Sureness(0.5, None, None, 200, 200).lines()[1]
    assert Sureness(0.5, None, None, 4, 200).lines()[1] == "4 results are about as right as the nearest"
    assert "clearly nearer" in Sureness(0.5, None, None, 1, 200).lines()[1]
    assert Sureness(None, None, None, 1, 200).lines() == []
    assert len(Sureness(0.5, None, None, 1, 1).lines()) == 1, "one alone is nearer than nothing"


def test_nothing_found(database):
    query = gaussians(1, seed=6)
    (hits,) = search(database, query, 5, where="number < 0")
    found = sureness(database, query[0], hits, "text")
    assert (found.as_right, found.looked, found.match) == (0, 0, None)


@pytest.mark.slow
def test_on_scenes_what_is_as_right_as_the_first_is_right(tmp_path):
    """The captions are true of the pictures that count; those that are called general are true of many."""
    model = load("scenes-tiny").eval()
    database = fill(
        tmp_path / "db", [embed("scenes-tiny", "scenes:simple,size=48,length=1000", tmp_path / "e")]
    )
    pictures = [scenes.SIMPLE.scene(seed=0, index=number) for number in range(1000)]
    rows = [
        row
        for batch in database.rows(["caption"], "modality = 'text' AND number < 60")
        for row in batch.to_pylist()
    ]
    captions = sorted({row["caption"] for row in rows})
    queries = model.embed_texts(captions)
    shares, general = [], []
    for caption, query, hits in zip(
        captions, queries, search(database, queries, 100, modality="image"), strict=True
    ):
        true = np.array([scenes.entails(caption, picture) for picture in pictures])
        counted = nearer_than_first(query, hits) >= AS_RIGHT
        shares.append(true[hits.column("number")][counted].mean())
        if counted.sum() >= MANY:
            general.append(true.sum())
    assert np.mean(shares) > 0.9
    assert len(general) > 20
    assert np.mean(np.array(general) >= MANY) > 0.95
