"""Embeddings into a database: stopped and gone on with, of another kind and refused."""

from dataclasses import replace

import pytest

from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.embeddings.schema import CHECKSUM
from prolip.retrieval.index import append
from prolip.retrieval.index.append import (
    append_embeddings,
    index_embeddings,
    list_indexed_parts,
    make_origin_name,
)
from prolip.retrieval.index.database import Database, has_database
from tests.retrieval.embedding_files import list_rows, make_gaussians, write_embeddings


def read_rows(database):
    rows = [
        row
        for batch in database.iter_batches(["row", "modality", "index", "part", "origin"])
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["row"])


@pytest.mark.parametrize("commit", [1, 50, 10_000])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_append_resumes_without_repeating_rows(tmp_path, monkeypatch, commit, stop):
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(100), make_gaussians(60, seed=1), parts=5)
    monkeypatch.setattr(append, "COMMIT_ROWS", commit)
    complete = read_rows(index_embeddings(tmp_path / "complete", [embeddings]))
    done, real = [], Database.append_rows

    def failing(self, rows):
        if len(done) == stop:
            raise KeyboardInterrupt
        done.append(len(rows))
        real(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "append_rows", failing)
        if stop < len(list(append._iter_commits(embeddings, embeddings.part_indices))):
            with pytest.raises(KeyboardInterrupt):
                index_embeddings(tmp_path / "db", [embeddings])
        else:
            index_embeddings(tmp_path / "db", [embeddings])
    database = Database.open(tmp_path / "db")
    assert database.count_rows() == sum(done)
    assert append_embeddings(database, embeddings) == 160 - sum(done)
    assert read_rows(database) == complete
    assert [(row["modality"], row["index"]) for row in complete] == list_rows(embeddings)
    assert append_embeddings(database, embeddings) == 0
    assert set(list_indexed_parts(database, make_origin_name(embeddings.header))) == set(range(5))


def test_index_embeddings_after_a_kill_before_the_first_row(tmp_path, monkeypatch):
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(10))
    connection = append.Database.create(tmp_path / "db", embeddings.header).connection
    connection.drop_table("items")
    assert index_embeddings(tmp_path / "db", [embeddings]).count_rows() == 10


def test_index_embeddings_of_two_data_sets(tmp_path):
    first = write_embeddings(tmp_path / "a", make_gaussians(30), data="a")
    second = write_embeddings(tmp_path / "b", make_gaussians(40, seed=1), data="b's images")
    database = index_embeddings(tmp_path / "db", [first, second])
    names = [make_origin_name(one.header) for one in (first, second)]
    assert list(database.origins) == names
    assert [database.count_rows(f"origin = '{name}'") for name in names] == [30, 40]
    assert [row["row"] for row in read_rows(database)] == list(range(70))
    assert index_embeddings(tmp_path / "db", [second, first]).count_rows() == 70


def test_missing_columns_are_null(tmp_path):
    first = write_embeddings(
        tmp_path / "a", make_gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a"
    )
    second = write_embeddings(
        tmp_path / "b", make_gaussians(20), extra={"height": ("double", [0.5] * 20)}, data="b"
    )
    database = index_embeddings(tmp_path / "db", [first, second])
    assert (database.count_rows("width IS NULL"), database.count_rows("width < 5")) == (20, 5)
    assert (database.count_rows("height IS NULL"), database.count_rows("height = 0.5")) == (20, 20)
    assert database.header.identity == first.header.identity, "a new column preserves the header"


def test_index_embeddings_rejects_columns_of_two_types(tmp_path):
    first = write_embeddings(
        tmp_path / "a", make_gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a"
    )
    second = write_embeddings(
        tmp_path / "b", make_gaussians(20), extra={"width": ("string", ["x"] * 20)}, data="b"
    )
    with pytest.raises(ValueError, match=r"the column width is string in .*b and int64 in .*a:"):
        index_embeddings(tmp_path / "db", [first, second])
    assert not has_database(tmp_path / "db"), "rejected before anything is created"
    database = index_embeddings(tmp_path / "db", [first])
    with pytest.raises(ValueError, match=r"the column width is string in .* and int64 in the database"):
        index_embeddings(tmp_path / "db", [second])
    assert database.count_rows() == 20


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"identity": "f" * 16}, "two models can't be compared"),
        ({"images": make_gaussians(5, dim=8)}, "two models can't be compared"),
        ({"variances": "trace"}, "with variances trace, the database .* holds full"),
        ({"precision": "float16"}, "with precision float16, the database .* holds float32"),
    ],
)
def test_append_rejects_incompatible_embeddings(tmp_path, other, message):
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "a", make_gaussians(20))])
    with pytest.raises(ValueError, match=message) as caught:
        append_embeddings(
            database, write_embeddings(tmp_path / "b", **{"images": make_gaussians(20), "data": "b", **other})
        )
    assert "\n" not in str(caught.value)
    assert database.count_rows() == 20


def test_append_of_a_part_without_rows(tmp_path):
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(2), parts=5)]
    )
    assert database.count_rows() == 2


def test_index_embeddings_rejects_an_empty_list(tmp_path):
    with pytest.raises(ValueError, match="no embedding"):
        index_embeddings(tmp_path / "db", [])


def test_append_replaces_a_part_that_was_embedded_again(tmp_path):
    images = make_gaussians(30)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", images, parts=3)])
    before = read_rows(database)
    stored = EmbeddingDataset.open(tmp_path / "e")
    rows = stored.read_part(1).slice(0, 7)
    metadata = {key: value for key, value in rows.schema.metadata.items() if key != CHECKSUM}
    write_part(tmp_path / "e", 1, rows.replace_schema_metadata({**metadata, b"digest": b"new"}))
    assert append_embeddings(Database.open(tmp_path / "db"), EmbeddingDataset.open(tmp_path / "e")) == 7
    after = read_rows(Database.open(tmp_path / "db"))
    assert [row for row in after if row["part"] != 1] == [row for row in before if row["part"] != 1]
    replaced = [row for row in after if row["part"] == 1]
    assert [row["index"] for row in replaced] == rows["index"].to_pylist()
    assert [row["row"] for row in replaced] == list(range(30, 37))


def test_index_embeddings_rejects_the_same_data_in_other_parts(tmp_path):
    index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(30))])
    other = write_embeddings(tmp_path / "f", make_gaussians(30))
    header = replace(other.header, part_size=7)
    with pytest.raises(ValueError, match="already holds images, embedded with other parts or columns"):
        index_embeddings(tmp_path / "db", [EmbeddingDataset(other.storage, header)])
    moved = replace(other.header, model="the same model elsewhere")
    assert make_origin_name(moved) == make_origin_name(other.header)


def test_index_embeddings_rejects_new_columns_of_two_types_before_writing(tmp_path):
    folders = [
        write_embeddings(tmp_path / "a", make_gaussians(5), data="a"),
        write_embeddings(tmp_path / "b", make_gaussians(5), extra={"width": ("int64", [1] * 5)}, data="b"),
        write_embeddings(tmp_path / "c", make_gaussians(5), extra={"width": ("string", ["x"] * 5)}, data="c"),
    ]
    with pytest.raises(ValueError, match=r"the column width is string in .*c and int64 in .*b"):
        index_embeddings(tmp_path / "db", folders)
    assert not has_database(tmp_path / "db")
