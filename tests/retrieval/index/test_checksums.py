"""A database against the checksums of its rows: bits, parts and columns that differ, and earlier versions."""

import json
import random
import shutil

import pyarrow as pa
import pytest

from prolip.cli import main
from prolip.retrieval import VerificationResult, verify_database
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.checksums import _hash_rows, _view_bytes
from prolip.retrieval.index.database import Database
from prolip.retrieval.index.settings import IndexSettings
from tests.retrieval.embedding_files import make_gaussians, write_embeddings


@pytest.fixture
def embeddings(tmp_path):
    extra = {"name": ("string", [f"né {n}" if n % 3 else None for n in range(30)])}
    return write_embeddings(
        tmp_path / "e", make_gaussians(30), make_gaussians(9, seed=1), parts=3, extra=extra
    )


@pytest.fixture
def database(embeddings, tmp_path):
    database = index_embeddings(tmp_path / "db", [embeddings])
    build_index(database, "none")
    return tmp_path / "db"


def read_all(database):
    """All that a search could use."""
    opened = Database.open(database)
    rows = sorted(
        repr(row) for batch in opened.iter_batches(sorted(opened.columns)) for row in batch.to_pylist()
    )
    return rows, opened.settings, opened.origins, opened.header


def test_a_database_is_as_it_was_written(database, embeddings, tmp_path):
    expected = VerificationResult(database=str(database), rows=39, differences=(), unverified_parts=0)
    assert verify_database(database) == expected
    other = write_embeddings(
        tmp_path / "f", make_gaussians(7, seed=3), parts=2, data="other", extra={"size": ("int64", range(7))}
    )
    index_embeddings(database, [other])  # adds a column, and rows that lack one
    build_index(Database.open(database), "none")  # compacts the files
    assert verify_database(database).differences == ()
    assert verify_database(database).rows == 46


def test_rows_that_another_program_changed_are_listed(database):
    opened = Database.open(database)
    origin = next(iter(opened.origins))
    opened.items.update(where="part = 1 AND `index` = 4", values={"uncertainty": 0.5})
    opened.items.delete("part = 2 AND `index` = 2")
    differences = verify_database(database).differences
    assert len(differences) == 2
    assert differences[0] == f"part 1 of {origin}: a row differs"
    assert differences[1].startswith(f"part 2 of {origin}: 1")
    assert "rows are there" in differences[1]


def test_a_part_that_is_gone_and_an_older_version_are_listed(database, tmp_path):
    opened = Database.open(database)
    opened.items.delete("part = 0")
    assert "part 0" in verify_database(database).differences[0]
    opened.items.restore(1)  # without rows, as after the loss of the newest manifests
    assert len(verify_database(database).differences) == 3


def test_any_flipped_bit_is_found_or_harmless(database, tmp_path):
    """The law: either reading fails with the name of the database, or verifying does, or nothing has changed."""
    expected, copy = read_all(database), tmp_path / "copy"
    files = [path for path in sorted(database.rglob("*")) if path.is_file() and path.stat().st_size]
    draw = random.Random(0)
    for _ in range(60):
        path = draw.choice(files)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(database, copy)
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (copy / path.relative_to(database)).write_bytes(content)
        message = str(copy)
        try:
            differences = verify_database(copy).differences
            assert differences or read_all(copy) == expected, path
        except (ValueError, FileNotFoundError) as error:
            message = str(error)
        assert str(copy) in message, path


def test_a_database_of_an_earlier_version_has_no_checksums(database):
    Database.open(database).connection.drop_table("checksums")
    assert verify_database(database) == VerificationResult(
        database=str(database), rows=39, differences=(), unverified_parts=3
    )


def test_damaged_settings_are_an_error_with_the_name_of_the_database():
    text = IndexSettings(kind="ivf-sq", recall=0.9).to_json()
    assert IndexSettings.from_json(text, "db") == IndexSettings(kind="ivf-sq", recall=0.9)
    earlier = {name: value for name, value in json.loads(text).items() if name != "checksum"}
    assert IndexSettings.from_json(json.dumps(earlier), "db").recall == 0.9
    for damaged in (text.replace("0.9", "0.8"), text[:-3], "[1]", "[" * 100_000):
        with pytest.raises(ValueError, match="db: the settings of the database are damaged"):
            IndexSettings.from_json(damaged, "db")


def test_row_hashes_tell_rows_apart():
    vectors = pa.array([[1.0, 2.0], [1.0, -0.0], [1.0, 0.0], None, [0.0, 0.0]], pa.list_(pa.float32(), 2))
    table = pa.table({"vector": vectors, "text": ["a", "a", "a", "a", "a"]})
    hashes = _hash_rows(table)
    assert len(set(hashes)) == 5
    assert _hash_rows(table.slice(1, 2)) == hashes[1:3]
    assert _hash_rows(table.set_column(1, "text", [["b", None, "a", "a", "a"]]))[2:] == hashes[2:]
    assert _view_bytes(table["vector"]).shape == (5, 9)


def test_index_verify_command(database, embeddings, capsys):
    main(["index", "--out", str(database), "--verify"])
    assert capsys.readouterr().out == f"{database}: 39 rows are as they were written.\n"
    with pytest.raises(SystemExit) as end:
        main(["index", str(embeddings.folder), "--out", str(database), "--verify"])
    assert end.value.code == 2
    Database.open(database).items.delete("part = 0")
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["index", "--out", str(database), "--verify"])
    printed = capsys.readouterr().out
    assert end.value.code == 1
    assert "part 0 of" in printed
    assert "Remove the database" in printed
    with pytest.raises(SystemExit):
        main(["index", "--out", str(database), "--verify", "--json"])
    assert len(json.loads(capsys.readouterr().out)["differences"]) == 1
    with pytest.raises(SystemExit):
        main(["index", "--out", str(database)])
    assert "no embedding" in capsys.readouterr().err
