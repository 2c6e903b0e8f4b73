"""Tests of the database: what it stores and finds, and that readers are not disturbed."""

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from prolip.embeddings.dataset import EmbeddingDataset
from prolip.gaussian import Gaussian
from prolip.retrieval.index import append
from prolip.retrieval.index import database as module
from prolip.retrieval.index.append import append_embeddings, index_embeddings
from prolip.retrieval.index.database import (
    Database,
    _connect,
    has_database,
    lock_for_writing,
    map_column_names,
)
from prolip.retrieval.index.settings import IndexSettings, SearchEffort
from prolip.retrieval.index.sql import join_conditions, quote_text
from prolip.retrieval.index.vectors import make_query_vectors
from tests.retrieval.embedding_files import list_rows, make_gaussians, write_embeddings

HARD = SearchEffort(nprobes=1000, refine=1000)


@pytest.fixture
def items():
    return make_gaussians(300), make_gaussians(120, seed=1)


@pytest.fixture
def database(tmp_path, items):
    return index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", *items)])


@pytest.fixture(scope="module")
def unchanged_database(tmp_path_factory):
    """For tests that only read."""
    folder = tmp_path_factory.mktemp("database")
    images, texts = make_gaussians(300), make_gaussians(120, seed=1)
    return index_embeddings(folder / "db", [write_embeddings(folder / "e", images, texts)])


def brute_force(items, queries):
    """|mu_q - mu_i|^2 + tr_i of all items in the order of their rows, float64: (Q, n)."""
    mean, trace = items.mean.double().numpy(), items.uncertainty.double().numpy()
    own = queries.mean.double().numpy()
    return np.array([[((q - m) ** 2).sum() + t for m, t in zip(mean, trace, strict=True)] for q in own])


def stack_rows(embeddings, images, texts):
    """The Gaussians in the order of the database's rows."""
    order = list_rows(embeddings)
    return Gaussian.stack([(images if modality == "image" else texts)[index] for modality, index in order])


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_find_nearest_matches_brute_force(tmp_path, database, items, queries, monkeypatch):
    monkeypatch.setattr(module, "QUERY_BATCH", 2)
    rows = stack_rows(write_embeddings(tmp_path / "e", *items), *items)
    queries_z = make_gaussians(queries, seed=2)
    wanted = brute_force(rows, queries_z)
    found = database.find_nearest(make_query_vectors(queries_z.mean.numpy()), 7, columns=["row"])
    assert found["query_index"].to_pylist() == [n for n in range(queries) for _ in range(7)]
    order = np.argsort(wanted, axis=1)[:, :7]
    np.testing.assert_array_equal(found["row"].to_numpy().reshape(queries, 7), order)
    distances = np.take_along_axis(wanted, order, 1)
    np.testing.assert_allclose(found["_distance"].to_numpy().reshape(queries, 7), distances, rtol=1e-5)


def test_find_nearest_filters_first(tmp_path, database, items):
    rows = stack_rows(write_embeddings(tmp_path / "e", *items), *items)
    queries_z = make_gaussians(2, seed=2)
    allowed = np.arange(len(rows)) % 50 == 3
    wanted = np.where(allowed, brute_force(rows, queries_z), np.inf).argsort(1)[:, :5]
    for effort in (None, SearchEffort(nprobes=1, refine=10)):
        if effort:
            database.create_index("ivf-sq")
        found = database.find_nearest(
            make_query_vectors(queries_z.mean.numpy()),
            5,
            columns=["row"],
            where="row % 50 = 3",
            effort=effort,
        )
        np.testing.assert_array_equal(found["row"].to_numpy().reshape(2, 5), wanted)


def test_database_stores_all_columns(tmp_path, items):
    extra = {"width": ("int64", list(range(300))), "part": ("string", ["x"] * 300)}
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", *items, extra=extra)])
    rows = pa.Table.from_batches(database.iter_batches(list(database.columns))).sort_by("row")
    assert rows["row"].to_pylist() == list(range(420))
    assert list(zip(rows["modality"].to_pylist(), rows["index"].to_pylist(), strict=True)) == list_rows(
        write_embeddings(tmp_path / "e", *items, extra=extra)
    )
    assert sorted(set(rows["part"].to_pylist())) == [0, 1, 2]
    assert set(rows["part_"].to_pylist()) == {"x", None}, "an extra column with a reserved name"
    images = rows.filter(pa.compute.equal(rows["modality"], "image"))
    assert images["width"].to_pylist() == images["index"].to_pylist()
    wanted = items[0][images["index"].to_pylist()]
    np.testing.assert_array_equal(
        np.stack(images["log_var"].to_numpy(zero_copy_only=False)), wanted.log_var.numpy()
    )
    np.testing.assert_array_equal(images["uncertainty"].to_numpy(), wanted.uncertainty.numpy())
    assert database.header.identity == "0123456789abcdef"
    (origin,) = database.origins
    assert set(rows["origin"].to_pylist()) == {origin}
    assert database.origins[origin]["location"] == str((tmp_path / "e").resolve())


def test_reader_sees_rows_of_the_moment_of_opening(tmp_path, database):
    reader = Database.open(tmp_path / "db")
    query = make_query_vectors(make_gaussians(1, seed=5).mean.numpy())
    before = reader.find_nearest(query, 9, columns=["row", "id"])
    append_embeddings(database, write_embeddings(tmp_path / "more", make_gaussians(400, seed=7), data="more"))
    database.create_index("ivf-sq")
    database.optimize()
    database.create_index("ivf-rq")
    assert (reader.count_rows(), database.count_rows()) == (420, 820)
    assert reader.find_nearest(query, 9, columns=["row", "id"]).equals(before)
    late = Database.open(tmp_path / "db")
    assert late.count_rows() == 820
    assert late.index_kind == "ivf-rq"
    assert reader.index_kind == "none"


@pytest.mark.parametrize("kind", ["ivf-sq", "ivf-rq", "ivf-pq"])
def test_find_nearest_finds_rows_added_after_indexing(tmp_path, database, kind):
    database.create_index(kind)
    more = make_gaussians(50, seed=9)
    append_embeddings(database, write_embeddings(tmp_path / "more", more, parts=1, data="more"))
    query = make_query_vectors(more.mean[:20].numpy())
    for _ in range(2):  # beside the index, and added to the index
        found = database.find_nearest(query, 1, columns=["row"], effort=HARD)
        exact = database.find_nearest(query, 1, columns=["row"])
        assert found["row"].equals(exact["row"])
        assert (found["row"].to_numpy() >= 420).sum() >= 5
        database.optimize()


def test_create_index_none_removes_the_index(database):
    database.create_index("ivf-rq")
    assert database.index_kind == "ivf-rq"
    database.create_index("none")
    assert database.index_kind == "none"


def test_create_index_rejects_few_rows(tmp_path):
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(20))])
    with pytest.raises(ValueError, match=r"needs at least 256 rows, and .* has 20"):
        database.create_index("ivf-pq")


def test_save_settings_round_trip(tmp_path, database):
    assert database.settings == IndexSettings()
    wanted = IndexSettings(kind="ivf-sq", quantiles={"image": [0.5]})
    database.save_settings(IndexSettings(kind="ivf-pq"))
    database.save_settings(wanted)
    assert database.settings == wanted
    assert Database.open(tmp_path / "db").settings == wanted


def test_open_reports_missing_database(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no database; `prolip index"):
        Database.open(tmp_path / "db")
    assert not (tmp_path / "db").exists(), "queries_z makes no folder"
    (tmp_path / "other").mkdir()
    with pytest.raises(FileNotFoundError, match="there is no database"):
        Database.open(tmp_path / "other")


def test_open_rejects_an_older_database(tmp_path, database):
    old = pa.schema([pa.field(name, pa.string()) for name in ("origin", "header", "place")])
    database.connection.create_table("origins", schema=old, mode="overwrite")
    with pytest.raises(ValueError, match=r"db is a database of an older version, not of version 2") as caught:
        Database.open(tmp_path / "db")
    assert "prolip index" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_create_rejects_existing_database(tmp_path, database):
    with pytest.raises(ValueError, match="already holds a database"):
        Database.create(tmp_path / "db", database.header)


@pytest.mark.parametrize(
    ("uri", "address", "options"),
    [
        ("s3://bucket/db/", "s3://bucket/db", None),
        ("gcs://bucket/db", "gs://bucket/db", None),
        ("az://box/db", "az://box/db", None),
        ("abfs://box/db", "az://box/db", None),
        ("abfs://box@me.dfs.core.windows.net/db", "az://box/db", {"account_name": "me"}),
    ],
)
def test_lancedb_gets_addresses_as_it_spells_them(uri, address, options, monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    seen, real = [], lancedb.connect

    def connect(address, storage_options):
        seen.append((address, storage_options))
        return real(tmp_path / "stand-in")

    monkeypatch.setattr(lancedb, "connect", connect)
    monkeypatch.setattr(append, "has_embeddings", lambda location: False)  # it would ask the object store
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(10))
    index_embeddings(uri, [embeddings])
    assert Database.open(uri).count_rows() == 10
    assert all(call == (address, options) for call in seen)


def test_lancedb_gets_the_endpoint_of_the_environment(monkeypatch):
    seen = []
    monkeypatch.setattr(lancedb, "connect", lambda *args, **options: seen.append((args, options)))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    _connect("s3://bucket/db")
    options = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    assert seen == [(("s3://bucket/db",), {"storage_options": options})]


def test_file_address_is_a_folder(tmp_path):
    index_embeddings(f"file://{tmp_path}/db", [write_embeddings(tmp_path / "e", make_gaussians(10))])
    assert has_database(tmp_path / "db")


def test_local_path_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    index_embeddings("~/db", [write_embeddings(tmp_path / "e", make_gaussians(10))])
    assert has_database(tmp_path / "db")
    assert Database.open("~/db").count_rows() == 10


@pytest.mark.parametrize(
    "where", ["height < 3", "caption <<< 3", "index", "caption < 3", "", "index = 1; DROP TABLE items"]
)
def test_check_filter_lists_the_columns(unchanged_database, where):
    with pytest.raises(ValueError, match="can't be used") as caught:
        unchanged_database.check_filter(where)
    assert "the columns are vector, row, origin, part, digest, id, index" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "cargo" not in str(caught.value)


def test_check_filter_accepts(unchanged_database):
    unchanged_database.check_filter("uncertainty < 0.02 AND caption LIKE '%7' OR modality IN ('text')")
    assert unchanged_database.count_rows(f"caption = {quote_text('caption 7')}") == 2
    assert unchanged_database.count_rows("caption = " + quote_text("it's")) == 0
    assert join_conditions(None, None) is None
    assert (
        unchanged_database.count_rows(join_conditions("index = 7 OR index = 8", None, "modality = 'text'"))
        == 2
    )


@pytest.mark.parametrize(
    "where", ["1=1) OR (1=1", "index < 5) --", "1/0 = 1", "index % 0 = 1", "CAST(caption AS INT) > 3"]
)
def test_check_filter_rejects_unclosed_or_failing_conditions(unchanged_database, where):
    with pytest.raises(ValueError, match="can't be used") as caught:
        unchanged_database.check_filter(where)
    assert "\n" not in str(caught.value)


def test_map_column_names_replaces_invalid_names(tmp_path):
    odd = ["query_index", "_distance", "a.b", "a_b", "", "csd", "row", "row_", "back`tick"]
    extra = {name: ("int64", list(range(20))) for name in odd}
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(20), extra=extra)]
    )
    names = map_column_names(EmbeddingDataset.open(tmp_path / "e").header)
    assert len(set(names.values())) == len(names)
    assert [names[name] for name in odd] == [
        "query_index_", "_distance_", "a_b_", "a_b", "_", "csd_", "row__", "row_", "back_tick",
    ]  # fmt: skip
    found = database.find_nearest(
        make_query_vectors(make_gaussians(1, seed=5).mean.numpy()), 3, columns=list(names.values())
    )
    assert found["a_b_"].to_pylist() == found["index"].to_pylist()


def test_lock_for_writing_allows_one_writer(tmp_path, database):
    with lock_for_writing(tmp_path / "db"):
        with (
            pytest.raises(ValueError, match="is being written by another process"),
            lock_for_writing(tmp_path / "db"),
        ):
            pass
        with pytest.raises(ValueError, match="is being written by another process"):
            index_embeddings(
                tmp_path / "db", [write_embeddings(tmp_path / "more", make_gaussians(5), data="more")]
            )
    with lock_for_writing(tmp_path / "db"):
        pass


def test_damaged_database_is_reported_in_one_line(tmp_path, database):
    for file in (tmp_path / "db" / "items.lance" / "data").iterdir():
        file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="the database can't be used") as caught:
        Database.open(tmp_path / "db").find_nearest(
            make_query_vectors(make_gaussians(1, seed=5).mean.numpy()), 3, columns=["row"]
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["", "foo://x/y", "http://127.0.0.1:9/db", "s3://key:secret@bucket/db"])
def test_open_rejects_invalid_uri(uri):
    with pytest.raises(ValueError, match=r"location of the database is empty|s3, gs, az|AWS_") as caught:
        Database.open(uri)
    assert "secret" not in str(caught.value)


def test_reader_sees_settings_of_the_moment_of_opening(tmp_path, database):
    reader = Database.open(tmp_path / "db")
    database.save_settings(IndexSettings(kind="ivf-sq", trained_rows=420, recall=1.0, effort=HARD))
    assert reader.settings.effort is None
    assert Database.open(tmp_path / "db").settings.effort == HARD
