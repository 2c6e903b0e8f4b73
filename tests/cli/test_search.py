"""Tests of the commands `prolip index` and `prolip search`."""

import json

import pytest
from PIL import Image

from prolip.cli import COMMANDS
from prolip.cli.parser import run_command
from prolip.embeddings.embed import embed
from prolip.retrieval.index.database import Database


def prolip(name, *words):
    run_command(COMMANDS[name], f"prolip {name}", [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    for name, length in (("a", 90), ("b", 60)):
        embed("scenes-tiny", f"scenes:simple,size=48,length={length}", folder / name)
    prolip("index", folder / "a", "--out", folder / "db")
    return folder


def test_index_appends_and_reports(folder, tmp_path, capsys):
    prolip("index", folder / "a", folder / "b", "--out", tmp_path / "db")
    rows = Database.open(tmp_path / "db").count_rows()
    assert f"{rows:,} rows. Every search is exact." in capsys.readouterr().out
    prolip("index", folder / "b", "--out", tmp_path / "db", "--kind", "ivf-sq", "--recall", "0.9", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], printed["kind"], printed["target_recall"]) == (rows, "ivf-sq", 0.9)
    assert 0.9 <= printed["recall"] <= 1
    assert "quantiles" not in printed


def test_search_prints_a_table_and_confidence(folder, capsys):
    prolip("search", folder / "db", "a red circle", "-k", "4")
    out = capsys.readouterr().out
    assert "a red circle: 4 images" in out
    assert "match probability of the first" in out


def test_search_passes_all_options(folder, capsys):
    prolip(
        "search", folder / "db", "a thing", "-k", "3", "--rank-by", "cosine", "--where", "index > 5", "--modality",
        "text", "--max-uncertainty", "0.9", "--only-included", "--candidates", "50", "--exact", "--model",
        "scenes-tiny", "--json", "--device", "cpu",
    )  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    assert (
        printed["method"] == "the 50 nearest by CSD (exact), those that the query includes, sorted by cosine"
    )
    assert {hit["modality"] for hit in printed["hits"]} == {"text"}
    assert all(hit["index"] > 5 for hit in printed["hits"])
    assert len(printed["hits"]) <= 3
    prolip("search", folder / "db", "a thing", "--rerank", "containment", "--json")
    assert json.loads(capsys.readouterr().out)["method"].endswith("sorted by containment")


def test_search_by_image_writes_a_sheet(folder, tmp_path, capsys):
    Image.new("RGB", (48, 48), "red").save(tmp_path / "red.png")
    prolip(
        "search", folder / "db", "--image", tmp_path / "red.png", "-k", "2", "--sheet", tmp_path / "found.png"
    )
    assert str(tmp_path / "found.png") in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "found.png").stat().st_size > 1000
    prolip("search", folder / "db", "a star", "-k", "2", "--json", "--sheet", tmp_path / "star.png")
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["hits"]) == 2, "stdout is JSON alone"
    assert "star.png" in shown.err


@pytest.mark.parametrize("words", [[], ["a star", "--image", "x.png"]])
def test_search_needs_either_text_or_image(folder, words):
    with pytest.raises(ValueError, match="pass either a text or an image"):
        prolip("search", folder / "db", *words)


def test_search_without_database_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no database"):
        prolip("search", tmp_path / "none", "a star")
