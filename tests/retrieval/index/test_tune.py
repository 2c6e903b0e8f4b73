"""Tests of tuning: recall and the effort that reaches it."""

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
def lossy_database(request, tmp_path_factory):
    """A database with an index that loses much, and (modality, index) of its rows."""
    folder = tmp_path_factory.mktemp("tune")
    embeddings = write_embeddings(folder / "e", IMAGES, TEXTS if request.param == "both" else None)
    database = index_embeddings(folder / "db", [embeddings])
    database.create_index("ivf-pq")
    return database, list_rows(embeddings)


def gaussian_of(row):
    modality, index = row
    return (IMAGES if modality == "image" else TEXTS)[index]


def test_measure_recall_matches_definition(lossy_database):
    """Against a loop over all items that knows nothing of databases, at an effort that finds some, not all."""
    database, order = lossy_database
    queries = draw_queries(database)
    recall = measure_recall(database, queries, measure_exact_distances(database, queries), LITTLE)
    is_both = any(modality == "text" for modality, _ in order)
    candidates = [row for row, (modality, _) in enumerate(order) if modality == "image"]
    fractions = []
    for row in queries.rows[:15].tolist():
        query = gaussian_of(order[row]).mean.double()
        found = database.find_nearest(
            queries.vectors[np.searchsorted(queries.rows, row)][None],
            11,
            columns=["row"],
            where="modality = 'image'" if is_both else None,
            effort=LITTLE,
        )["row"].to_pylist()
        distance = {
            other: float((query - gaussian_of(order[other]).mean.double()).square().sum())
            + float(gaussian_of(order[other]).uncertainty)
            for other in candidates
            if other != row
        }
        best = sorted(distance, key=distance.get)[:10]
        fractions.append(len(set([other for other in found if other != row][:10]) & set(best)) / 10)
    few = module.TuningQueries(queries.rows[:15], queries.vectors[:15], queries.where)
    assert measure_recall(database, few, measure_exact_distances(database, few), LITTLE) == pytest.approx(
        np.mean(fractions)
    )
    assert 0.1 < recall < 0.9, "an index that loses all or nothing proves nothing"


def test_draw_queries(lossy_database):
    database, order = lossy_database
    queries = draw_queries(database)
    is_both = any(modality == "text" for modality, _ in order)
    assert len(queries.rows) == module.NUM_QUERIES
    assert len(set(queries.rows.tolist())) == module.NUM_QUERIES
    assert {order[row][0] for row in queries.rows} == {"text" if is_both else "image"}
    assert queries.where == ("(modality = 'image')" if is_both else None)
    for row, vector in zip(queries.rows, queries.vectors, strict=True):
        np.testing.assert_array_equal(vector[:20], gaussian_of(order[row]).mean.numpy())
        assert not vector[20:].any()
    assert not np.array_equal(draw_queries(database, seed=1).rows, queries.rows)


@pytest.mark.slow
def test_tune_finds_the_least_sufficient_effort(lossy_database, monkeypatch):
    database, _ = lossy_database
    much = SearchEffort(nprobes=1000, refine=100)
    monkeypatch.setattr(module, "EFFORTS", (LITTLE, much, SearchEffort(nprobes=2000, refine=200)))
    found = tune(database, 0.95)
    assert (found.effort, found.recall) == (much, pytest.approx(1.0))
    assert min(found.milliseconds, found.exact_milliseconds) > 0
    assert tune(database, 0.05).effort == LITTLE


def test_tune_without_sufficient_effort(lossy_database, monkeypatch):
    database, _ = lossy_database
    monkeypatch.setattr(module, "EFFORTS", (LITTLE, SearchEffort(nprobes=2, refine=1)))
    found = tune(database, 0.99)
    assert found.effort is None
    assert 0 < found.recall < 0.99


def test_measure_recall_counts_copies_as_found(tmp_path):
    """Of 30 equal items any ten are the ten nearest."""
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", IMAGES[[n // 30 for n in range(600)]], parts=1)]
    )
    database.create_index("ivf-sq")
    queries = draw_queries(database)
    assert (
        measure_recall(
            database, queries, measure_exact_distances(database, queries), SearchEffort(nprobes=50, refine=10)
        )
        == 1
    )


@pytest.mark.parametrize("among", [None, "row % 3 = 1", "row < 0"])
def test_measure_recall_with_few_rows(tmp_path, among):
    """Fewer than ten others, or none."""
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", IMAGES[:6], parts=1)])
    queries = draw_queries(database, among)
    assert measure_recall(database, queries, measure_exact_distances(database, queries), LITTLE) == 1


def test_draw_queries_among_filtered_items(lossy_database):
    """Only items that pass the filter are searched."""
    database, order = lossy_database
    queries = draw_queries(database, "index % 10 = 3")
    is_both = any(modality == "text" for modality, _ in order)
    assert queries.where == ("(modality = 'image') AND (index % 10 = 3)" if is_both else "(index % 10 = 3)")
    passing = [gaussian_of(row) for row in order if row[0] == "image" and row[1] % 10 == 3]
    query = gaussian_of(order[queries.rows[0]]).mean.double()
    distances = sorted(float((query - z.mean.double()).square().sum() + z.uncertainty) for z in passing)
    own = order[queries.rows[0]] in [("image", index) for index in range(3, 900, 10)]
    np.testing.assert_allclose(
        measure_exact_distances(database, queries)[0], distances[own : 10 + own], rtol=1e-5
    )


@pytest.mark.parametrize("target", [0.0, 1.1, float("nan")])
def test_tune_rejects_invalid_target(lossy_database, target):
    with pytest.raises(ValueError, match="recall must be a fraction above 0 and at most 1"):
        tune(lossy_database[0], target)
