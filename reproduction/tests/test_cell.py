import json

import pytest

from reproduction.cell import COMMITTED, FORMAT, get_cell_path, read_cell, read_cells, write_cell
from reproduction.recipe import compute_current_fingerprint
from reproduction.tests.factories import cell


def test_cell_round_trip(tmp_path):
    one = cell("clip", 2, "hour", x={"y": [0.5, None]})
    assert read_cell(write_cell(tmp_path, one)) == one
    assert (tmp_path / "hour" / "clip-2.json").is_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "is not a cell"),
        (json.dumps({"format": FORMAT, "version": 2, "scale": "hour"}), "has no variant, seed, fingerprint"),
    ],
)
def test_read_cell_error_says_what_to_do(tmp_path, content, message):
    path = get_cell_path(tmp_path, "hour", "clip", 0)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ValueError, match=f"clip-0.json.*{message}.*--scale hour"):
        read_cells([tmp_path])


def test_read_cell_rejects_wrong_folder(tmp_path):
    path = write_cell(tmp_path, cell("clip"))
    with pytest.raises(ValueError, match="holds the cell minutes/clip-0"):
        read_cell(path.rename(path.with_name("siglip-0.json")))


def test_cells_of_another_version_count_as_missing(tmp_path):
    path = write_cell(tmp_path, cell())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 0}))
    assert read_cell(path) is None
    assert read_cells([tmp_path]) == []


def test_read_cells_prefers_earlier_folder(tmp_path):
    own, theirs = tmp_path / "own", tmp_path / "package"
    write_cell(theirs, cell(x=1))
    write_cell(theirs, cell(scale="hour", x=2))
    write_cell(own, cell(x=3))
    assert {(one.scale, one.numbers["x"]) for one in read_cells([own, theirs])} == {
        ("minutes", 3),
        ("hour", 2),
    }


def test_read_cells_does_not_mix_recipes(tmp_path):
    own, theirs = tmp_path / "own", tmp_path / "package"
    write_cell(own, cell(seed=0, fingerprint="new"))
    for seed in range(3):
        write_cell(theirs, cell(seed=seed, fingerprint="old" if seed == 1 else "new"))
    write_cell(theirs, cell(scale="hour", fingerprint="old"))
    assert {(one.scale, one.seed) for one in read_cells([own, theirs])} == {
        ("minutes", 0),
        ("minutes", 2),
        ("hour", 0),
    }


def test_read_cells_prefers_current_recipe(tmp_path):
    own, theirs = tmp_path / "own", tmp_path / "package"
    write_cell(own, cell("clip", fingerprint="old", x=1))
    write_cell(theirs, cell("clip", fingerprint=compute_current_fingerprint("clip", "minutes"), x=2))
    assert [one.numbers["x"] for one in read_cells([own, theirs])] == [2]


def test_committed_cells_can_be_read():
    assert all(one.numbers for one in read_cells([COMMITTED]))
