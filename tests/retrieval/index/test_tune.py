"""Recall: what is told is what is so."""

import numpy as np
import pytest

from prolip.retrieval.index import tune as module
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.index.tune import draw_queries, measure_exact_distances, measure_recall, tune
from tests.retrieval.embedding_files import list_rows, make_gaussians, write_embeddings

IMAGES, TEXTS = make_gaussians(900, dim=20), make_gaussians(400, dim=20, seed=1)
LITTLE = SearchEffort(nprobes=1, refine=1)


@pytest.fixture(scope="module", params=["both", "images"])
def tried(request, tmp_path_factory):
    """A database with an index that loses much, and (modality, number) of its rows."""
    folder = tmp_path_factory.mktemp("tune")
    embeddings = write_embeddings(folder / "e", IMAGES, TEXTS if request.param == "both" else None)
    database = index_embeddings(folder / "db", [embeddings])
    database.create_index("ivf-pq")
    return database, list_rows(embeddings)


def gaussian_of(row):
    modality, number = row
    return (IMAGES if modality == "image" else TEXTS)[number]


def test_the_recall_is_the_recall(tried):
    """Against a loop over all items that knows nothing of databases, at an effort that finds some, not all."""
    database, order = tried
    trial = draw_queries(database)
    told = measure_recall(database, trial, measure_exact_distances(database, trial), LITTLE)
    both = any(modality == "text" for modality, _ in order)
    candidates = [place for place, (modality, _) in enumerate(order) if modality == "image"]
    shares = []
    for row in trial.rows[:15].tolist():
        query = gaussian_of(order[row]).mean.double()
        found = database.find_nearest(
            trial.vectors[np.searchsorted(trial.rows, row)][None],
            11,
            columns=["row"],
            where="modality = 'image'" if both else None,
            effort=LITTLE,
        )["row"].to_pylist()
        distance = {
            place: float((query - gaussian_of(order[place]).mean.double()).square().sum())
            + float(gaussian_of(order[place]).uncertainty)
            for place in candidates
            if place != row
        }
        best = sorted(distance, key=distance.get)[:10]
        shares.append(len(set([place for place in found if place != row][:10]) & set(best)) / 10)
    few = module.TuningQueries(trial.rows[:15], trial.vectors[:15], trial.where)
    assert measure_recall(database, few, measure_exact_distances(database, few), LITTLE) == pytest.approx(
        np.mean(shares)
    )
    assert 0.1 < told < 0.9, "an index that loses all or nothing proves nothing"


def test_those_who_ask(tried):
    database, order = tried
    trial = draw_queries(database)
    both = any(modality == "text" for modality, _ in order)
    assert len(trial.rows) == module.QUERIES
    assert len(set(trial.rows.tolist())) == module.QUERIES
    assert {order[row][0] for row in trial.rows} == {"text" if both else "image"}
    assert trial.where == ("(modality = 'image')" if both else None)
    for row, vector in zip(trial.rows, trial.vectors, strict=True):
        np.testing.assert_array_equal(vector[:20], gaussian_of(order[row]).mean.numpy())
        assert not vector[20:].any()
    assert not np.array_equal(draw_queries(database, seed=1).rows, trial.rows)


def test_the_least_effort_that_is_enough(tried, monkeypatch):
    database, _ = tried
    much = SearchEffort(nprobes=1000, refine=100)
    monkeypatch.setattr(module, "EFFORTS", (LITTLE, much, SearchEffort(nprobes=2000, refine=200)))
    found = tune(database, 0.95)
    assert (found.effort, found.recall) == (much, pytest.approx(1.0))
    assert min(found.milliseconds, found.exact_milliseconds) > 0
    assert tune(database, 0.05).effort == LITTLE


def test_a_recall_that_is_out_of_reach(tried, monkeypatch):
    database, _ = tried
    monkeypatch.setattr(module, "EFFORTS", (LITTLE, SearchEffort(nprobes=2, refine=1)))
    found = tune(database, 0.99)
    assert found.effort is None
    assert 0 < found.recall < 0.99


def test_copies_count_as_found(tmp_path):
    """Of 30 items that are all alike any ten are the ten nearest."""
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", IMAGES[[n // 30 for n in range(600)]], parts=1)]
    )
    database.create_index("ivf-sq")
    trial = draw_queries(database)
    assert (
        measure_recall(
            database, trial, measure_exact_distances(database, trial), SearchEffort(nprobes=50, refine=10)
        )
        == 1
    )


@pytest.mark.parametrize("among", [None, "row % 3 = 1", "row < 0"])
def test_few_rows(tmp_path, among):
    """Fewer than ten others, or none."""
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", IMAGES[:6], parts=1)])
    trial = draw_queries(database, among)
    assert measure_recall(database, trial, measure_exact_distances(database, trial), LITTLE) == 1


def test_among_some(tried):
    """A filter is the user's: what is found passes it, on both sides."""
    database, order = tried
    trial = draw_queries(database, "number % 10 = 3")
    both = any(modality == "text" for modality, _ in order)
    assert trial.where == ("(modality = 'image') AND (number % 10 = 3)" if both else "(number % 10 = 3)")
    passing = [gaussian_of(row) for row in order if row[0] == "image" and row[1] % 10 == 3]
    query = gaussian_of(order[trial.rows[0]]).mean.double()
    distances = sorted(float((query - z.mean.double()).square().sum() + z.uncertainty) for z in passing)
    own = order[trial.rows[0]] in [("image", number) for number in range(3, 900, 10)]
    np.testing.assert_allclose(
        measure_exact_distances(database, trial)[0], distances[own : 10 + own], rtol=1e-5
    )


@pytest.mark.parametrize("target", [0.0, 1.1, float("nan")])
def test_a_bad_target(tried, target):
    with pytest.raises(ValueError, match="must be above 0 and at most 1"):
        tune(tried[0], target)
