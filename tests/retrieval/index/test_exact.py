"""The exact search where float32 can't tell items apart."""

import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.retrieval.index import exact
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.vectors import query_vectors
from tests.retrieval.embedding_files import write_embeddings

DIM = 12


def crowd(count, step):
    """Points about a query at (1, 0, 0, ...), whose squared distances rise by `step`, in an order of their own."""
    random = np.random.default_rng(0)
    places = random.permutation(count)
    angle = np.arccos(1 - (0.5 + step * places) / 2)
    mean = np.zeros((count, DIM))
    mean[:, 0] = np.cos(angle)
    side = 1 + random.integers(0, DIM - 1, count)
    mean[np.arange(count), side] = np.sin(angle)
    return Gaussian(torch.from_numpy(mean).float(), torch.full((count, DIM), -30.0))


def best(z):
    """Places by float64, of what float32 stores, the nearest first."""
    query = np.eye(1, DIM)[0]
    distance = np.square(z.mean.double().numpy() - query).sum(1) + z.uncertainty.double().numpy()
    return np.lexsort((np.arange(len(distance)), distance))


@pytest.mark.parametrize("step", [1e-3, 3e-7, 1e-9, 0.0])
def test_the_k_best_by_float64_are_among_what_is_fetched(tmp_path, step):
    z = crowd(300, step)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1)])
    (found,) = exact.find_nearest_exact(database, query_vectors(np.eye(1, DIM)), 10, columns=["row"])
    fetched = found["row"].to_numpy()
    assert set(best(z)[:10]) <= set(fetched)
    if step == 1e-3:
        assert len(fetched) == 10 + exact.MARGIN, "where all is clear, no more is fetched"
    if step == 0.0:
        assert len(fetched) == 300, "all are as near"


def test_copies_beyond_measure_end_the_fetching(tmp_path, monkeypatch):
    monkeypatch.setattr(exact, "MAX_MARGIN", 64)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", crowd(300, 0.0), parts=1)])
    (found,) = exact.find_nearest_exact(database, query_vectors(np.eye(1, DIM)), 10, columns=["row"])
    assert len(found) == 74


def test_queries_are_settled_one_by_one(tmp_path):
    """One that needs more doesn't mix up the others."""
    z = crowd(300, 0.0)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1)])
    queries = np.stack([-np.eye(DIM)[3], np.eye(DIM)[0], np.eye(DIM)[5]])
    found = exact.find_nearest_exact(database, query_vectors(queries), 10, columns=["row"])
    alone = [
        exact.find_nearest_exact(database, query_vectors(one[None]), 10, columns=["row"])[0]
        for one in queries
    ]
    assert [part["row"].to_pylist() for part in found] == [part["row"].to_pylist() for part in alone]


def test_fewer_items_than_asked_for(tmp_path):
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", crowd(4, 0.1), parts=1)])
    for found in exact.find_nearest_exact(database, query_vectors(np.eye(2, DIM)), 10, columns=["row"]):
        assert sorted(found["row"].to_pylist()) == [0, 1, 2, 3]
    for found in exact.find_nearest_exact(
        database, query_vectors(np.eye(2, DIM)), 10, columns=["row"], where="row > 9"
    ):
        assert len(found) == 0
