"""Embeddings into a database: stopped and gone on with, of another kind and refused."""

from dataclasses import replace

import pytest

from prolip.embeddings.dataset import EmbeddingDataset, write_part
from prolip.retrieval.index import append
from prolip.retrieval.index.append import (
    append_embeddings,
    index_embeddings,
    list_indexed_parts,
    make_origin_name,
)
from prolip.retrieval.index.database import Database, has_database
from tests.retrieval.embedding_files import list_rows, make_gaussians, write_embeddings


def rows_of(database):
    rows = [
        row
        for batch in database.iter_batches(["row", "modality", "number", "part", "origin"])
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["row"])


@pytest.mark.parametrize("commit", [1, 50, 10_000])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_stopped_run_goes_on_and_nothing_comes_twice(tmp_path, monkeypatch, commit, stop):
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(100), make_gaussians(60, seed=1), parts=5)
    monkeypatch.setattr(append, "COMMIT_ROWS", commit)
    whole = rows_of(index_embeddings(tmp_path / "whole", [embeddings]))
    done, real = [], Database.append_rows

    def failing(self, rows):
        if len(done) == stop:
            raise KeyboardInterrupt
        done.append(len(rows))
        real(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "append_rows", failing)
        if stop < len(list(append._group_commits(embeddings, embeddings.part_indices))):
            with pytest.raises(KeyboardInterrupt):
                index_embeddings(tmp_path / "db", [embeddings])
        else:
            index_embeddings(tmp_path / "db", [embeddings])
    database = Database.open(tmp_path / "db")
    assert database.count_rows() == sum(done)
    assert append_embeddings(database, embeddings) == 160 - sum(done)
    assert rows_of(database) == whole
    assert [(row["modality"], row["number"]) for row in whole] == list_rows(embeddings)
    assert append_embeddings(database, embeddings) == 0
    assert set(list_indexed_parts(database, make_origin_name(embeddings.header))) == set(range(5))


def test_a_run_that_was_killed_before_its_first_row(tmp_path, monkeypatch):
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(10))
    connection = append.Database.create(tmp_path / "db", embeddings.header).connection
    connection.drop_table("items")
    assert index_embeddings(tmp_path / "db", [embeddings]).count_rows() == 10


def test_two_embeddings_one_after_another(tmp_path):
    first = write_embeddings(tmp_path / "a", make_gaussians(30), data="a")
    second = write_embeddings(tmp_path / "b", make_gaussians(40, seed=1), data="b's pictures")
    database = index_embeddings(tmp_path / "db", [first, second])
    names = [make_origin_name(one.header) for one in (first, second)]
    assert list(database.origins) == names
    assert [database.count_rows(f"origin = '{name}'") for name in names] == [30, 40]
    assert [row["row"] for row in rows_of(database)] == list(range(70))
    assert index_embeddings(tmp_path / "db", [second, first]).count_rows() == 70


def test_columns_that_not_all_have(tmp_path):
    first = write_embeddings(
        tmp_path / "a", make_gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a"
    )
    second = write_embeddings(
        tmp_path / "b", make_gaussians(20), extra={"height": ("double", [0.5] * 20)}, data="b"
    )
    database = index_embeddings(tmp_path / "db", [first, second])
    assert (database.count_rows("width IS NULL"), database.count_rows("width < 5")) == (20, 5)
    assert (database.count_rows("height IS NULL"), database.count_rows("height = 0.5")) == (20, 20)
    assert database.header.identity == first.header.identity, "the header outlives a new column"


def test_columns_of_two_types(tmp_path):
    first = write_embeddings(
        tmp_path / "a", make_gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a"
    )
    second = write_embeddings(
        tmp_path / "b", make_gaussians(20), extra={"width": ("string", ["x"] * 20)}, data="b"
    )
    with pytest.raises(ValueError, match=r"the column width is string in .*b and int64 in .*a:"):
        index_embeddings(tmp_path / "db", [first, second])
    assert not has_database(tmp_path / "db"), "it is refused before anything is made"
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
def test_embeddings_of_another_kind_are_refused(tmp_path, other, message):
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "a", make_gaussians(20))])
    with pytest.raises(ValueError, match=message) as caught:
        append_embeddings(
            database, write_embeddings(tmp_path / "b", **{"images": make_gaussians(20), "data": "b", **other})
        )
    assert "\n" not in str(caught.value)
    assert database.count_rows() == 20


def test_a_part_without_rows(tmp_path):
    database = index_embeddings(
        tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(2), parts=5)]
    )
    assert database.count_rows() == 2


def test_nothing_to_add(tmp_path):
    with pytest.raises(ValueError, match="no embedding"):
        index_embeddings(tmp_path / "db", [])


def test_a_part_that_was_made_anew_takes_the_place_of_the_old_one(tmp_path):
    images = make_gaussians(30)
    database = index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", images, parts=3)])
    before = rows_of(database)
    stored = EmbeddingDataset.open(tmp_path / "e")
    rows = stored.read_part(1).slice(0, 7)
    write_part(tmp_path / "e", 1, rows.replace_schema_metadata({**rows.schema.metadata, b"digest": b"anew"}))
    assert append_embeddings(Database.open(tmp_path / "db"), EmbeddingDataset.open(tmp_path / "e")) == 7
    after = rows_of(Database.open(tmp_path / "db"))
    assert [row for row in after if row["part"] != 1] == [row for row in before if row["part"] != 1]
    anew = [row for row in after if row["part"] == 1]
    assert [row["number"] for row in anew] == rows["number"].to_pylist()
    assert [row["row"] for row in anew] == list(range(30, 37))


def test_the_same_data_in_other_parts_is_refused(tmp_path):
    index_embeddings(tmp_path / "db", [write_embeddings(tmp_path / "e", make_gaussians(30))])
    other = write_embeddings(tmp_path / "f", make_gaussians(30))
    header = replace(other.header, part_size=7)
    with pytest.raises(ValueError, match="already holds pictures, embedded with other parts or columns"):
        index_embeddings(tmp_path / "db", [EmbeddingDataset(other.storage, header)])
    moved = replace(other.header, model="the same model elsewhere")
    assert make_origin_name(moved) == make_origin_name(other.header)


def test_two_new_columns_of_two_types_are_refused_before_anything_is_made(tmp_path):
    folders = [
        write_embeddings(tmp_path / "a", make_gaussians(5), data="a"),
        write_embeddings(tmp_path / "b", make_gaussians(5), extra={"width": ("int64", [1] * 5)}, data="b"),
        write_embeddings(tmp_path / "c", make_gaussians(5), extra={"width": ("string", ["x"] * 5)}, data="c"),
    ]
    with pytest.raises(ValueError, match=r"the column width is string in .*c and int64 in .*b"):
        index_embeddings(tmp_path / "db", folders)
    assert not has_database(tmp_path / "db")
