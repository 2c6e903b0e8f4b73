"""Building: which index, when anew, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest

from prolip.retrieval.index import build as room
from prolip.retrieval.index.append import add, fill
from prolip.retrieval.index.build import build, uncertainty_quantiles
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.index.tune import Tuned
from prolip.retrieval.query import search
from tests.retrieval.rooms import gaussians, written


@pytest.fixture
def database(tmp_path):
    return fill(tmp_path / "db", [written(tmp_path / "e", gaussians(400), gaussians(100, seed=1))])


@pytest.fixture
def built(monkeypatch):
    """Kinds of index that were trained."""
    seen, real = [], Database.build_index
    monkeypatch.setattr(Database, "build_index", lambda self, kind: (seen.append(kind), real(self, kind))[1])
    return seen


def test_small_tables_are_searched_exactly(database, built):
    settings = build(database)
    assert (settings.kind, settings.effort, settings.recall) == ("none", None, None)
    assert database.kind == "none"


def test_large_ones_get_an_index(database, built, monkeypatch):
    monkeypatch.setattr(room, "LARGE", 500)
    settings = build(database, recall=0.9)
    assert built == ["ivf-rq"]
    assert settings.recall >= 0.9
    assert settings.effort is not None
    assert settings.filtered is not None
    assert settings.filtered_recall >= 0.9
    assert (settings.kind, settings.trained, settings.target) == ("ivf-rq", 500, 0.9)
    assert Database.open(database.uri).settings == settings


def test_new_rows_are_folded_in_until_there_are_many(tmp_path, database, built, monkeypatch):
    monkeypatch.setattr(room, "tune", lambda *a, **k: Tuned(None, 0.4, 1.0, 2.0))
    build(database, "ivf-sq")
    add(database, written(tmp_path / "a", gaussians(300, seed=3), data="a"))
    assert build(database, "ivf-sq").trained == 500
    assert built == ["ivf-sq"]
    (index,) = database.items.list_indices()
    assert database.items.index_stats(index.name).num_unindexed_rows == 0
    add(database, written(tmp_path / "b", gaussians(300, seed=4), data="b"))
    assert build(database, "ivf-sq").trained == 1100
    assert build(database, "ivf-rq").kind == "ivf-rq"
    assert build(database, "none").kind == "none"
    assert built == ["ivf-sq", "ivf-sq", "ivf-rq", "none"]


def test_readers_search_on_while_it_is_built(tmp_path, database):
    build(database)
    reader = Database.open(database.uri)
    query = gaussians(3, seed=8)
    before = [hits.rows() for hits in search(reader, query, 12)]
    add(database, written(tmp_path / "a", gaussians(300, seed=3), data="a"))
    build(database, "ivf-sq")
    assert [hits.rows() for hits in search(reader, query, 12)] == before
    late = Database.open(database.uri)
    assert search(late, query, 12)[0].method.startswith("approximate")
    assert late.count() == 800


def test_a_recall_out_of_reach_means_exact_searches(database, monkeypatch):
    monkeypatch.setattr(room, "tune", lambda *a, **k: Tuned(None, 0.4, 1.0, 2.0))
    settings = build(database, "ivf-sq")
    assert (settings.kind, settings.effort, settings.recall) == ("ivf-sq", None, 0.4)
    assert (settings.filtered, settings.filtered_recall) == (None, 0.4)
    assert search(database, gaussians(1, seed=2), 3)[0].method == "exact"


def test_filters_are_measured_by_themselves(database, monkeypatch):
    """A filter may need more effort, or an exact search."""
    little, asked = Effort(nprobes=20, refine=4), []

    def tune(database, target, *, among=None, progress=None):
        asked.append(among)
        return Tuned(little, 0.97, 1.0, 2.0) if among is None else Tuned(None, 0.6, 3.0, 4.0)

    monkeypatch.setattr(room, "tune", tune)
    settings = build(database, "ivf-sq")
    assert asked == [None, "row % 10 = 0"]
    assert (settings.effort, settings.recall, settings.milliseconds) == (little, 0.97, 1.0)
    assert (settings.filtered, settings.filtered_recall) == (None, 0.6)
    query = gaussians(1, seed=2)
    assert (
        search(database, query, 3, modality="image")[0].method == "approximate, recall@10 0.970 when measured"
    )
    assert search(database, query, 3, where="number > 5")[0].method == "exact"


def test_quantiles_by_modality(database):
    found = uncertainty_quantiles(database)
    for name, z in (("image", gaussians(400)), ("text", gaussians(100, seed=1))):
        wanted = np.sort(z.uncertainty.numpy())
        assert found[name][-1] == pytest.approx(wanted[-1])
        assert found[name][499] == pytest.approx(wanted[len(wanted) // 2 - 1], rel=1 / 2048)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": "tree"}, "kind 'tree' is not one of"), ({"recall": 0}, "must be above 0 and at most 1")],
)
def test_bad_options(database, options, message, built):
    with pytest.raises(ValueError, match=message):
        build(database, **options)
    assert not built


def test_where_the_first_kind_fails_the_next_is_tried(database, built, monkeypatch):
    monkeypatch.setattr(room, "LARGE", 500)
    good = Tuned(Effort(nprobes=20, refine=4), 0.97, 1.0, 2.0)
    monkeypatch.setattr(
        room,
        "tune",
        lambda database, *a, **k: (
            good if database.kind == "ivf-sq" else replace(good, effort=None, recall=0.8)
        ),
    )
    settings = build(database)
    assert built == ["ivf-rq", "ivf-sq"]
    assert (settings.kind, settings.recall) == ("ivf-sq", 0.97)
    assert build(database).kind == "ivf-sq"
    assert built == ["ivf-rq", "ivf-sq"], "the kind that is there stays"
    build(database, "ivf-rq")
    assert build(database).kind == "ivf-sq", "unless it no longer reaches the recall"


def test_a_kind_that_another_run_left_is_known(database, built):
    build(database, "ivf-rq", recall=0.5)
    database.build_index("ivf-sq")  # killed before it was kept
    assert build(database, "ivf-rq", recall=0.5).kind == database.kind == "ivf-rq"
    assert built == ["ivf-rq", "ivf-sq", "ivf-rq"]


def test_a_damaged_index_can_be_removed(tmp_path, database):
    build(database, "ivf-sq", recall=0.5)
    for file in (tmp_path / "db" / "items.lance" / "_indices").rglob("*.idx"):
        file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="the database can't be used"):
        build(Database.open(database.uri), "ivf-sq", recall=0.5)
    assert build(Database.open(database.uri), "none").kind == "none"
    assert Database.open(database.uri).count() == 500
