"""Tests of search hits and the scores of items."""

import json

import numpy as np
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.public import csd, log_containment, log_inclusion
from prolip.retrieval.hits import log_inclusion_in_query, rows_to_gaussian, score_items
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.vectors import make_query_vectors
from prolip.retrieval.match_probability import MatchProbability
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

IMAGES, QUERY = make_gaussians(60), make_gaussians(1, seed=2)
WIDTHS = [100 + n for n in range(60)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Rows as they come from a database, all columns of them."""
    folder = tmp_path_factory.mktemp("hits")
    database = index_embeddings(
        folder / "db", [write_embeddings(folder / "e", IMAGES, extra={"width": ("int64", WIDTHS)})]
    )
    return database.find_nearest(make_query_vectors(QUERY.mean.numpy()), 9, columns=list(database.columns))


@pytest.fixture
def hits(found):
    return score_items(found, QUERY[0], MatchProbability(LogitParameters(10.0, -4.0), None, {}), "by hand")


def test_score_items_values(found, hits):
    items, query = IMAGES[found["index"].to_pylist()].to(torch.float64), QUERY.to(torch.float64)
    np.testing.assert_allclose(hits.csd, csd(items, query).numpy(), rtol=1e-6)
    np.testing.assert_allclose(hits.cosine, (items.mean @ query.mean[0]).numpy(), atol=1e-6)
    np.testing.assert_allclose(hits.match, 1 / (1 + np.exp(-(10 * (1 - hits.csd / 2) - 4))), rtol=1e-9)
    np.testing.assert_array_equal(hits.mean, items.mean.numpy())
    np.testing.assert_array_equal(hits.uncertainty, IMAGES.uncertainty[found["index"].to_pylist()].numpy())
    assert score_items(found, QUERY[0], None, "").match is None


def test_hits_to_dicts_is_json_without_vectors(hits):
    rows = json.loads(json.dumps(hits.to_dicts()))
    assert [row["id"] for row in rows] == hits.column("id")
    assert [row["width"] for row in rows] == [WIDTHS[row["index"]] for row in rows]
    assert rows[0].keys() >= {
        "csd",
        "cosine",
        "match",
        "caption",
        "path",
        "url",
        "origin",
        "part",
        "uncertainty",
    }
    assert not rows[0].keys() & {"vector", "log_var", "_distance", "query_index", "inclusion"}


def test_hits_take_and_head(hits):
    some = hits.take(np.array([3, 1]))
    assert some.column("id") == [hits.column("id")[3], hits.column("id")[1]]
    assert some.csd.tolist() == [hits.csd[3], hits.csd[1]]
    assert some.match.tolist() == [hits.match[3], hits.match[1]]
    assert hits.head(2).column("id") == hits.column("id")[:2]
    assert len(hits.head(99)) == len(hits) == 9


def test_hits_argsort_orders_ties_by_row(hits):
    order = hits.argsort(np.array([1.0, 0.0, 1.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0]))
    rows = np.array(hits.column("row"))[order]
    assert sorted(order[:2].tolist()) == [1, 3]
    assert all(np.array_equal(np.sort(part), part) for part in (rows[:2], rows[2:4], rows[4:]))


@pytest.mark.parametrize(
    ("name", "measure"), [("inclusion", log_inclusion), ("containment", log_containment)]
)
def test_log_inclusion_in_query(found, name, measure):
    items = IMAGES[found["index"].to_pylist()]
    again = rows_to_gaussian(found, 12)
    assert torch.equal(again.mean, items.mean)
    assert torch.equal(again.log_var, items.log_var)
    wanted = measure(items.to(torch.float64), Gaussian.stack([QUERY[0]] * 9).to(torch.float64))
    np.testing.assert_allclose(log_inclusion_in_query(QUERY[0], again, name), wanted.numpy(), rtol=1e-9)
