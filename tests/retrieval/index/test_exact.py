"""Tests of exact search where float32 can't distinguish items."""

import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.retrieval.index import exact, resident
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.vectors import make_query_vectors
from tests.retrieval.embedding_files import write_embeddings

DIM = 12


@pytest.fixture(params=["memory", "disk"], autouse=True)
def place(request, monkeypatch):
    """Every test runs with the items in memory, and on the disk."""
    if request.param == "disk":
        monkeypatch.setattr(resident, "MAX_RESIDENT_BYTES", 0)
    return request.param


def make_points(count, step):
    """Points around a query at (1, 0, 0, ...), whose squared distances rise by `step`, shuffled."""
    random = np.random.default_rng(0)
    ranks = random.permutation(count)
    angle = np.arccos(1 - (0.5 + step * ranks) / 2)
    mean = np.zeros((count, DIM))
    mean[:, 0] = np.cos(angle)
    side = 1 + random.integers(0, DIM - 1, count)
    mean[np.arange(count), side] = np.sin(angle)
    return Gaussian(torch.from_numpy(mean).float(), torch.full((count, DIM), -30.0))


def best(z):
    """Rows by their float64 distance, the nearest first."""
    query = np.eye(1, DIM)[0]
    distance = np.square(z.mean.double().numpy() - query).sum(1) + z.uncertainty.double().numpy()
    return np.lexsort((np.arange(len(distance)), distance))


@pytest.mark.parametrize("step", [1e-3, 3e-7, 1e-9, 0.0])
def test_find_nearest_exact_fetches_the_k_best_by_float64(tmp_path, step, place):
    z = make_points(300, step)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1)])
    (found,) = exact.find_nearest_exact(database, make_query_vectors(np.eye(1, DIM)), 10, columns=["row"])
    fetched = found["row"].to_numpy()
    assert set(best(z)[:10]) <= set(fetched)
    if step == 1e-3:
        margin = exact.MARGIN if place == "disk" else 0
        assert len(fetched) == 10 + margin, "no more is fetched than needed"
    if step == 0.0:
        assert len(fetched) == 300, "all are equally near"


def test_find_nearest_exact_stops_at_max_margin(tmp_path, monkeypatch, place):
    monkeypatch.setattr(exact, "MAX_MARGIN", 64)
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_points(300, 0.0), parts=1)]
    )
    (found,) = exact.find_nearest_exact(database, make_query_vectors(np.eye(1, DIM)), 10, columns=["row"])
    assert len(found) == 74
    assert len(set(found["row"].to_pylist())) == 74


def test_find_nearest_exact_settles_queries_separately(tmp_path):
    """A query that needs more items doesn't change the others."""
    z = make_points(300, 0.0)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", z, parts=1)])
    queries = np.stack([-np.eye(DIM)[3], np.eye(DIM)[0], np.eye(DIM)[5]])
    found = exact.find_nearest_exact(database, make_query_vectors(queries), 10, columns=["row"])
    alone = [
        exact.find_nearest_exact(database, make_query_vectors(one[None]), 10, columns=["row"])[0]
        for one in queries
    ]
    assert [part["row"].to_pylist() for part in found] == [part["row"].to_pylist() for part in alone]


def test_find_nearest_exact_with_fewer_than_k_items(tmp_path):
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_points(4, 0.1), parts=1)]
    )
    for found in exact.find_nearest_exact(database, make_query_vectors(np.eye(2, DIM)), 10, columns=["row"]):
        assert sorted(found["row"].to_pylist()) == [0, 1, 2, 3]
    for found in exact.find_nearest_exact(
        database, make_query_vectors(np.eye(2, DIM)), 10, columns=["row"], where="row > 9"
    ):
        assert len(found) == 0
