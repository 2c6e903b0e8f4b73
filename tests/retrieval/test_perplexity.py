"""Tests of the number of items that fit, over data on disk and in a database, against a loop in float64."""

import math

import pytest
import torch

import prolip
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.retrieval import perplexity as module
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.perplexity import estimate_perplexity
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

IMAGES, TEXTS = make_gaussians(90), make_gaussians(40, seed=1)
QUERIES = make_gaussians(6, seed=2)
PARAMETERS = LogitParameters(scale=10.0, bias=-4.0)
"""What `write_embeddings` writes into the header."""


@pytest.fixture(scope="module", params=[1, 3, 7])
def embeddings(request, tmp_path_factory):
    return write_embeddings(tmp_path_factory.mktemp("parts") / "e", IMAGES, TEXTS, parts=request.param)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("database")
    return index_embeddings(folder / "db", [write_embeddings(folder / "e", IMAGES, TEXTS)])


def stored_order(embeddings, modality):
    """Rows of the Gaussian in the order of the data set."""
    return [
        row for _, rows in embeddings.iter_parts(modality, ["index"]) for row in rows["index"].to_pylist()
    ]


def by_loop(query, pool, k=1.0, left_out=-1):
    """exp(entropy) of the softmax of the logits a (1 - CSD / 2), number by number in float64."""
    logits = []
    for j in range(len(pool)):
        squared = (query.mean.double() - pool.mean[j].double()).square().sum()
        csd = float(squared + query.log_var.double().exp().sum() + pool.log_var[j].double().exp().sum())
        logits += [k * 10.0 * (1 - csd / 2)] if j != left_out else []
    weights = [math.exp(value) for value in logits]
    return math.exp(-sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights))


def test_on_disk_it_is_the_loop_in_float64_for_any_size_of_parts(embeddings):
    found = prolip.perplexity(QUERIES, embeddings, k=1.5)
    assert found.tolist() == pytest.approx([by_loop(query, IMAGES, k=1.5) for query in QUERIES], rel=1e-5)
    assert torch.equal(prolip.perplexity(QUERIES, embeddings.folder, k=1.5), found)
    texts = prolip.perplexity(QUERIES, str(embeddings.folder), modality="text")
    assert texts.tolist() == pytest.approx([by_loop(query, TEXTS) for query in QUERIES], rel=1e-5)


def test_on_disk_it_is_that_in_memory_with_the_own_item_left_out(embeddings):
    order = stored_order(embeddings, "image")
    exclude = torch.tensor([0, 89, -1, 33, 34, 60])
    for logits in (None, 7.0):
        found = prolip.perplexity(QUERIES, embeddings, logits, exclude=exclude)
        in_memory = prolip.perplexity(QUERIES, IMAGES[order], logits or PARAMETERS, exclude=exclude)
        assert found.tolist() == pytest.approx(in_memory.tolist(), rel=1e-6)
    own = [-1 if row < 0 else order[row] for row in exclude.tolist()]
    expected = [by_loop(query, IMAGES, left_out=row) for query, row in zip(QUERIES, own, strict=True)]
    assert prolip.perplexity(QUERIES, embeddings, exclude=exclude).tolist() == pytest.approx(
        expected, rel=1e-5
    )


def test_k_0_gives_the_size_of_the_pool(embeddings):
    assert prolip.perplexity(QUERIES, embeddings, k=0.0).tolist() == pytest.approx([90.0] * 6)
    left_out = prolip.perplexity(QUERIES, embeddings, k=0.0, exclude=torch.arange(6))
    assert left_out.tolist() == pytest.approx([89.0] * 6)


def test_a_database_gives_what_its_embeddings_give(database, embeddings):
    found = prolip.perplexity(QUERIES, database)
    assert found.tolist() == pytest.approx(prolip.perplexity(QUERIES, embeddings).tolist(), rel=1e-6)
    assert torch.equal(prolip.perplexity(QUERIES, database.uri), found)
    with pytest.raises(ValueError, match="fixed order"):
        prolip.perplexity(QUERIES, database, exclude=torch.zeros(6, dtype=torch.int64))


def test_a_pool_of_copies_gives_their_number(tmp_path):
    copies = write_embeddings(tmp_path / "e", IMAGES[[0] * 25], parts=4)
    assert prolip.perplexity(QUERIES, copies).tolist() == pytest.approx([25.0] * 6)


def test_wrong_pools_are_rejected(embeddings, tmp_path):
    with pytest.raises(ValueError, match=r"model\.logit_parameters"):
        prolip.perplexity(QUERIES, IMAGES)
    with pytest.raises(ValueError, match="leave it out"):
        prolip.perplexity(QUERIES, IMAGES, 5.0, modality="image")
    with pytest.raises(FileNotFoundError, match="neither embeddings nor a database"):
        prolip.perplexity(QUERIES, tmp_path)
    with pytest.raises(TypeError, match="not list"):
        prolip.perplexity(QUERIES, [IMAGES], 5.0)
    with pytest.raises(ValueError, match="pool of 90"):
        prolip.perplexity(QUERIES, embeddings, exclude=torch.full((6,), 90))
    with pytest.raises(ValueError, match="5 dimensions, the pool has 12"):
        prolip.perplexity(Gaussian.point(torch.eye(5)), embeddings)
    empty = write_embeddings(tmp_path / "empty", IMAGES[:0], TEXTS, parts=1)
    with pytest.raises(ValueError, match="0 items"):
        prolip.perplexity(QUERIES, empty)


def test_estimate_of_a_database_without_an_index_is_exact(database):
    found = estimate_perplexity(database, QUERIES, SearchConfig(modality="image"))
    assert [one.value for one in found] == prolip.perplexity(QUERIES, database).tolist()
    assert all(one.is_exact and one.low == one.value == one.high and one.num_items == 90 for one in found)
    assert estimate_perplexity(database, QUERIES, SearchConfig(where="index < 0")) == []


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("indexed")
    images = make_gaussians(3000, seed=4)
    made = index_embeddings(folder / "db", [write_embeddings(folder / "e", images, TEXTS)])
    build_index(made, kind="ivf-sq")
    return made, images


def test_intervals_of_estimates_hold_the_exact_value(indexed, monkeypatch):
    """Of 120 queries and draws about 95 % should; the database has an index, and a third of it passes a filter."""
    database, images = indexed
    monkeypatch.setattr(module, "NEAREST", 100)
    monkeypatch.setattr(module, "SAMPLED", 300)
    queries = make_gaussians(20, seed=5)
    exact = prolip.perplexity(queries, images, PARAMETERS).tolist()
    hits = 0
    for seed in range(6):
        found = estimate_perplexity(database, queries, seed=seed)
        assert not any(one.is_exact for one in found)
        assert all(1 <= one.low <= one.value <= one.high <= one.num_items == 3000 for one in found)
        hits += sum(one.low <= value <= one.high for one, value in zip(found, exact, strict=True))
    assert 0.88 < hits / 120 <= 1
    assert sum(one.value / value for one, value in zip(found, exact, strict=True)) / 20 == pytest.approx(
        1, abs=0.1
    )

    third = prolip.perplexity(queries, images[0::3], PARAMETERS).tolist()
    filtered = estimate_perplexity(database, queries, SearchConfig(where="index % 3 = 0", modality="image"))
    assert {one.num_items for one in filtered} == {1000}
    inside = sum(one.low <= value <= one.high for one, value in zip(filtered, third, strict=True))
    assert inside >= 15
    in_full = estimate_perplexity(database, queries, SearchConfig(exact=True))
    assert [one.value for one in in_full] == pytest.approx(exact, rel=1e-6)
