"""Tests of building an index: its kind, when it is trained again, and its settings."""

from dataclasses import replace

import numpy as np
import pytest

from prolip.retrieval.config import SearchConfig
from prolip.retrieval.index import build as module
from prolip.retrieval.index.append import append_embeddings, index_embeddings
from prolip.retrieval.index.build import build_index, compute_uncertainty_quantiles
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.index.tune import TuningResult
from prolip.retrieval.query import search_gaussians
from tests.retrieval.embedding_files import make_gaussians, write_embeddings


@pytest.fixture
def database(tmp_path):
    return index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(400), make_gaussians(100, seed=1))]
    )


@pytest.fixture
def built(monkeypatch):
    """Kinds of index that were trained."""
    seen, real = [], Database.create_index
    monkeypatch.setattr(Database, "create_index", lambda self, kind: (seen.append(kind), real(self, kind))[1])
    return seen


def test_build_index_none_for_few_rows(database, built):
    settings = build_index(database)
    assert (settings.kind, settings.effort, settings.recall) == ("none", None, None)
    assert database.index_kind == "none"


def test_build_index_for_many_rows(database, built, monkeypatch):
    monkeypatch.setattr(module, "MIN_INDEXED_ROWS", 500)
    settings = build_index(database, recall=0.9)
    assert built == ["ivf-rq"]
    assert settings.recall >= 0.9
    assert settings.effort is not None
    assert settings.filtered_effort is not None
    assert settings.filtered_recall >= 0.9
    assert (settings.kind, settings.trained_rows, settings.target_recall) == ("ivf-rq", 500, 0.9)
    assert Database.open(database.uri).settings == settings


def test_build_index_retrains_after_growth(tmp_path, database, built, monkeypatch):
    monkeypatch.setattr(module, "tune", lambda *a, **k: TuningResult(None, 0.4, 1.0, 2.0))
    build_index(database, "ivf-sq")
    append_embeddings(database, write_embeddings(tmp_path / "a", make_gaussians(300, seed=3), data="a"))
    assert build_index(database, "ivf-sq").trained_rows == 500
    assert built == ["ivf-sq"]
    (index,) = database.items.list_indices()
    assert database.items.index_stats(index.name).num_unindexed_rows == 0
    append_embeddings(database, write_embeddings(tmp_path / "b", make_gaussians(300, seed=4), data="b"))
    assert build_index(database, "ivf-sq").trained_rows == 1100
    assert build_index(database, "ivf-rq").kind == "ivf-rq"
    assert build_index(database, "none").kind == "none"
    assert built == ["ivf-sq", "ivf-sq", "ivf-rq", "none"]


@pytest.mark.slow
def test_open_readers_are_not_disturbed_by_build_index(tmp_path, database):
    build_index(database)
    reader = Database.open(database.uri)
    query = make_gaussians(3, seed=8)
    before = [hits.to_dicts() for hits in search_gaussians(reader, query, SearchConfig(k=12))]
    append_embeddings(database, write_embeddings(tmp_path / "a", make_gaussians(300, seed=3), data="a"))
    build_index(database, "ivf-sq")
    assert [hits.to_dicts() for hits in search_gaussians(reader, query, SearchConfig(k=12))] == before
    late = Database.open(database.uri)
    assert search_gaussians(late, query, SearchConfig(k=12))[0].method.startswith("approximate")
    assert late.count_rows() == 800


def test_unreachable_recall_means_exact_search(database, monkeypatch):
    monkeypatch.setattr(module, "tune", lambda *a, **k: TuningResult(None, 0.4, 1.0, 2.0))
    settings = build_index(database, "ivf-sq")
    assert (settings.kind, settings.effort, settings.recall) == ("ivf-sq", None, 0.4)
    assert (settings.filtered_effort, settings.filtered_recall) == (None, 0.4)
    assert search_gaussians(database, make_gaussians(1, seed=2), SearchConfig(k=3))[0].method == "exact"


def test_build_index_tunes_filtered_search_separately(database, monkeypatch):
    """A filter may need more effort, or an exact search."""
    effort, seen_filters = SearchEffort(nprobes=20, refine=4), []

    def tune(database, target, *, among=None, progress=None):
        seen_filters.append(among)
        return TuningResult(effort, 0.97, 1.0, 2.0) if among is None else TuningResult(None, 0.6, 3.0, 4.0)

    monkeypatch.setattr(module, "tune", tune)
    settings = build_index(database, "ivf-sq")
    assert seen_filters == [None, "row % 10 = 0"]
    assert (settings.effort, settings.recall, settings.milliseconds) == (effort, 0.97, 1.0)
    assert (settings.filtered_effort, settings.filtered_recall) == (None, 0.6)
    query = make_gaussians(1, seed=2)
    assert (
        search_gaussians(database, query, SearchConfig(k=3, modality="image"))[0].method
        == "approximate, measured recall@10 0.970"
    )
    assert search_gaussians(database, query, SearchConfig(k=3, where="index > 5"))[0].method == "exact"


def test_compute_uncertainty_quantiles_by_modality(database):
    found = compute_uncertainty_quantiles(database)
    for name, z in (("image", make_gaussians(400)), ("text", make_gaussians(100, seed=1))):
        wanted = np.sort(z.uncertainty.numpy())
        assert found[name][-1] == pytest.approx(wanted[-1])
        assert found[name][499] == pytest.approx(wanted[len(wanted) // 2 - 1], rel=1 / 2048)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "tree"}, "kind 'tree' is not one of"),
        ({"recall": 0}, "recall must be a fraction above 0 and at most 1, not 0"),
    ],
)
def test_build_index_rejects_invalid_options(database, options, message, built):
    with pytest.raises(ValueError, match=message):
        build_index(database, **options)
    assert not built


def test_build_index_tries_the_next_kind(database, built, monkeypatch):
    monkeypatch.setattr(module, "MIN_INDEXED_ROWS", 500)
    good = TuningResult(SearchEffort(nprobes=20, refine=4), 0.97, 1.0, 2.0)
    monkeypatch.setattr(
        module,
        "tune",
        lambda database, *a, **k: (
            good if database.index_kind == "ivf-sq" else replace(good, effort=None, recall=0.8)
        ),
    )
    settings = build_index(database)
    assert built == ["ivf-rq", "ivf-sq"]
    assert (settings.kind, settings.recall) == ("ivf-sq", 0.97)
    assert build_index(database).kind == "ivf-sq"
    assert built == ["ivf-rq", "ivf-sq"], "the present kind stays"
    build_index(database, "ivf-rq")
    assert build_index(database).kind == "ivf-sq", "unless it no longer reaches the recall"


@pytest.mark.slow
def test_build_index_retrains_after_a_killed_run(database, built):
    build_index(database, "ivf-rq", recall=0.5)
    database.create_index("ivf-sq")  # killed before its settings were saved
    assert build_index(database, "ivf-rq", recall=0.5).kind == database.index_kind == "ivf-rq"
    assert built == ["ivf-rq", "ivf-sq", "ivf-rq"]


def test_build_index_none_removes_a_damaged_index(tmp_path, database):
    build_index(database, "ivf-sq", recall=0.5)
    for file in (tmp_path / "db" / "items.lance" / "_indices").rglob("*.idx"):
        file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="the database can't be used"):
        build_index(Database.open(database.uri), "ivf-sq", recall=0.5)
    assert build_index(Database.open(database.uri), "none").kind == "none"
    assert Database.open(database.uri).count_rows() == 500
