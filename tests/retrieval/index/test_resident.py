"""Items in memory: the same answers as from the disk, for the version that the database object sees."""

import pytest
import torch

from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index import resident
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import index
from prolip.retrieval.index.database import Database
from prolip.retrieval.perplexity import estimate_perplexity
from prolip.retrieval.query import search_gaussians
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

K = 7


@pytest.fixture
def database(tmp_path):
    """60 images, 60 texts, and a copy of each of the first 5 images."""
    images = make_gaussians(60)
    images = type(images)(*(torch.cat([part, part[:5]]) for part in (images.mean, images.log_var)))
    index(write_embeddings(tmp_path / "e", images, make_gaussians(60, seed=1)), tmp_path / "db")
    return Database.open(tmp_path / "db")


def on_disk(database, monkeypatch):
    """The same database, whose items are never in memory."""
    monkeypatch.setattr(resident, "MAX_RESIDENT_BYTES", 0)
    return Database.open(database.uri)


def list_hits(found):
    """Rows and scores in their order; the last digit of a cosine depends on how many rows are multiplied at once."""
    return [(hits.column("row"), hits.column("id"), hits.csd.tolist()) for hits in found]


CONFIGS = [
    SearchConfig(k=K),
    SearchConfig(k=1000),
    SearchConfig(k=K, modality="text", rank_by="cosine"),
    SearchConfig(k=K, where="uncertainty < 0.5 AND row % 2 = 0"),
    SearchConfig(k=K, where="row < 0"),
    SearchConfig(k=K, max_uncertainty=0.5, rank_by="match", modality="image"),
    SearchConfig(k=K, modality="image", rerank="inclusion"),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("count", [1, 70])
def test_search_in_memory_equals_search_on_disk(database, monkeypatch, config, count):
    queries = make_gaussians(count, seed=2)
    in_memory = list_hits(search_gaussians(database, queries, config))
    assert in_memory == list_hits(search_gaussians(on_disk(database, monkeypatch), queries, config))


def test_search_of_a_likelihood_model_in_memory_equals_search_on_disk(tmp_path, monkeypatch):
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(90), gamma=2.0, bias=0.0)
    database = index_embeddings(tmp_path / "db", [embeddings])
    queries, config = make_gaussians(3, seed=2), SearchConfig(k=K, rank_by="match")
    in_memory = list_hits(search_gaussians(database, queries, config))
    assert in_memory == list_hits(search_gaussians(on_disk(database, monkeypatch), queries, config))


def test_perplexity_in_memory_equals_that_on_disk(database, monkeypatch):
    queries = make_gaussians(3, seed=2)
    in_memory = estimate_perplexity(database, queries)
    for one, other in zip(
        in_memory, estimate_perplexity(on_disk(database, monkeypatch), queries), strict=True
    ):
        assert one.value == pytest.approx(other.value, rel=1e-6)
        assert one.num_items == other.num_items


def test_items_are_read_once(database, monkeypatch):
    assert len(resident.get_resident_items(database).rows) == 125
    monkeypatch.setattr(resident, "_read_items", lambda *_: pytest.fail("read again"))
    for config in CONFIGS:
        search_gaussians(database, make_gaussians(2, seed=3), config)


def test_items_stay_on_disk_if_they_are_too_large_or_few_are_searched(database, monkeypatch):
    assert resident.get_resident_items(database, "row < 3") is None
    monkeypatch.setattr(resident, "MAX_RESIDENT_BYTES", 125 * 12 * 4 - 1)
    assert resident.get_resident_items(database) is None
    monkeypatch.setattr(resident, "MAX_RESIDENT_BYTES", 125 * 12 * 4)
    assert resident.get_resident_items(database) is not None
    assert resident.get_resident_items(database, "row < 3") is not None


def test_changes_of_the_object_itself_are_seen(database):
    query = make_gaussians(60)[30][None]
    config = SearchConfig(k=1, rank_by="cosine")
    (before,) = search_gaussians(database, query, config)
    assert before.cosine[0] == pytest.approx(1.0)
    database.delete_rows(f"row = {before.column('row')[0]}")
    (after,) = search_gaussians(database, query, config)
    assert after.cosine[0] < 0.99
    assert len(resident.get_resident_items(database).rows) == 124


def test_refreshed_sees_what_another_process_added(database, tmp_path):
    query, config = make_gaussians(4, seed=9)[2][None], SearchConfig(k=1, rank_by="cosine")
    (before,) = search_gaussians(database, query, config)
    assert database.refreshed() is database
    new = write_embeddings(tmp_path / "new", make_gaussians(4, seed=9), data="others")
    index_embeddings(database.uri, [new])
    (snapshot,) = search_gaussians(database, query, config)
    assert list_hits([snapshot]) == list_hits([before])
    newest = database.refreshed()
    (found,) = search_gaussians(newest, query, config)
    assert found.cosine[0] > before.cosine[0]
    assert found.column("row")[0] >= 125
    assert newest.refreshed() is newest


def test_refreshed_sees_new_settings(database):
    other = Database.open(database.uri)
    other.save_settings(other.settings)
    assert other.refreshed() is other
    assert database.refreshed() is not database


def test_few_conditions_are_remembered(database, monkeypatch):
    monkeypatch.setattr(resident, "MAX_CONDITIONS", 2)
    items = resident.get_resident_items(database)
    for limit in (120, 100, 110):
        passing = resident.find_passing(database, items, f"row < {limit}")
        assert sorted(items.rows[passing]) == list(range(limit))
    assert list(items.passing) == ["row < 100", "row < 110"]
