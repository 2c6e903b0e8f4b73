"""Embeddings into a database: stopped and gone on with, of another kind and refused."""

from dataclasses import replace

import pytest

from prolip.embeddings.dataset import Embeddings, write_part
from prolip.retrieval.index import append
from prolip.retrieval.index.append import add, fill, origin_of, parts_of
from prolip.retrieval.index.database import Database, exists
from tests.retrieval.rooms import gaussians, order_of, written


def rows_of(database):
    rows = [
        row
        for batch in database.rows(["row", "modality", "number", "part", "origin"])
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["row"])


@pytest.mark.parametrize("commit", [1, 50, 10_000])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_stopped_run_goes_on_and_nothing_comes_twice(tmp_path, monkeypatch, commit, stop):
    embeddings = written(tmp_path / "e", gaussians(100), gaussians(60, seed=1), parts=5)
    monkeypatch.setattr(append, "COMMIT", commit)
    whole = rows_of(fill(tmp_path / "whole", [embeddings]))
    done, real = [], Database.append

    def failing(self, rows):
        if len(done) == stop:
            raise KeyboardInterrupt
        done.append(len(rows))
        real(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "append", failing)
        if stop < len(list(append._commits(embeddings, embeddings.numbers))):
            with pytest.raises(KeyboardInterrupt):
                fill(tmp_path / "db", [embeddings])
        else:
            fill(tmp_path / "db", [embeddings])
    database = Database.open(tmp_path / "db")
    assert database.count() == sum(done)
    assert add(database, embeddings) == 160 - sum(done)
    assert rows_of(database) == whole
    assert [(row["modality"], row["number"]) for row in whole] == order_of(embeddings)
    assert add(database, embeddings) == 0
    assert set(parts_of(database, origin_of(embeddings.header))) == set(range(5))


def test_a_run_that_was_killed_before_its_first_row(tmp_path, monkeypatch):
    embeddings = written(tmp_path / "e", gaussians(10))
    connection = append.Database.create(tmp_path / "db", embeddings.header).connection
    connection.drop_table("items")
    assert fill(tmp_path / "db", [embeddings]).count() == 10


def test_two_embeddings_one_after_another(tmp_path):
    first = written(tmp_path / "a", gaussians(30), data="a")
    second = written(tmp_path / "b", gaussians(40, seed=1), data="b's pictures")
    database = fill(tmp_path / "db", [first, second])
    names = [origin_of(one.header) for one in (first, second)]
    assert list(database.origins) == names
    assert [database.count(f"origin = '{name}'") for name in names] == [30, 40]
    assert [row["row"] for row in rows_of(database)] == list(range(70))
    assert fill(tmp_path / "db", [second, first]).count() == 70


def test_columns_that_not_all_have(tmp_path):
    first = written(tmp_path / "a", gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a")
    second = written(tmp_path / "b", gaussians(20), extra={"height": ("double", [0.5] * 20)}, data="b")
    database = fill(tmp_path / "db", [first, second])
    assert (database.count("width IS NULL"), database.count("width < 5")) == (20, 5)
    assert (database.count("height IS NULL"), database.count("height = 0.5")) == (20, 20)
    assert database.header.identity == first.header.identity, "the header outlives a new column"


def test_columns_of_two_types(tmp_path):
    first = written(tmp_path / "a", gaussians(20), extra={"width": ("int64", list(range(20)))}, data="a")
    second = written(tmp_path / "b", gaussians(20), extra={"width": ("string", ["x"] * 20)}, data="b")
    with pytest.raises(ValueError, match=r"the column width is string in .*b and int64 in .*a:"):
        fill(tmp_path / "db", [first, second])
    assert not exists(tmp_path / "db"), "it is refused before anything is made"
    database = fill(tmp_path / "db", [first])
    with pytest.raises(ValueError, match=r"the column width is string in .* and int64 in the database"):
        fill(tmp_path / "db", [second])
    assert database.count() == 20


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"identity": "f" * 16}, "two models can't be compared"),
        ({"images": gaussians(5, dim=8)}, "two models can't be compared"),
        ({"variances": "trace"}, "with variances trace, the database .* holds full"),
        ({"precision": "float16"}, "with precision float16, the database .* holds float32"),
    ],
)
def test_embeddings_of_another_kind_are_refused(tmp_path, other, message):
    database = fill(tmp_path / "db", [written(tmp_path / "a", gaussians(20))])
    with pytest.raises(ValueError, match=message) as caught:
        add(database, written(tmp_path / "b", **{"images": gaussians(20), "data": "b", **other}))
    assert "\n" not in str(caught.value)
    assert database.count() == 20


def test_a_part_without_rows(tmp_path):
    database = fill(tmp_path / "db", [written(tmp_path / "e", gaussians(2), parts=5)])
    assert database.count() == 2


def test_nothing_to_add(tmp_path):
    with pytest.raises(ValueError, match="no embeddings"):
        fill(tmp_path / "db", [])


def test_a_part_that_was_made_anew_takes_the_place_of_the_old_one(tmp_path):
    images = gaussians(30)
    database = fill(tmp_path / "db", [written(tmp_path / "e", images, parts=3)])
    before = rows_of(database)
    stored = Embeddings.open(tmp_path / "e")
    rows = stored.part(1).slice(0, 7)
    write_part(tmp_path / "e", 1, rows.replace_schema_metadata({**rows.schema.metadata, b"digest": b"anew"}))
    assert add(Database.open(tmp_path / "db"), Embeddings.open(tmp_path / "e")) == 7
    after = rows_of(Database.open(tmp_path / "db"))
    assert [row for row in after if row["part"] != 1] == [row for row in before if row["part"] != 1]
    anew = [row for row in after if row["part"] == 1]
    assert [row["number"] for row in anew] == rows["number"].to_pylist()
    assert [row["row"] for row in anew] == list(range(30, 37))


def test_the_same_data_in_other_parts_is_refused(tmp_path):
    fill(tmp_path / "db", [written(tmp_path / "e", gaussians(30))])
    other = written(tmp_path / "f", gaussians(30))
    header = replace(other.header, part_size=7)
    with pytest.raises(ValueError, match="holds pictures already, embedded with other parts or columns"):
        fill(tmp_path / "db", [Embeddings(other.place, header)])
    moved = replace(other.header, model="the same model elsewhere")
    assert origin_of(moved) == origin_of(other.header)


def test_two_new_columns_of_two_types_are_refused_before_anything_is_made(tmp_path):
    folders = [
        written(tmp_path / "a", gaussians(5), data="a"),
        written(tmp_path / "b", gaussians(5), extra={"width": ("int64", [1] * 5)}, data="b"),
        written(tmp_path / "c", gaussians(5), extra={"width": ("string", ["x"] * 5)}, data="c"),
    ]
    with pytest.raises(ValueError, match=r"the column width is string in .*c and int64 in .*b"):
        fill(tmp_path / "db", folders)
    assert not exists(tmp_path / "db")
