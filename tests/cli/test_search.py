"""Tests of the commands `prolip index` and `prolip search`."""

import json

import pytest
from PIL import Image

from prolip.cli import COMMANDS
from prolip.cli.parser import run_command
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.retrieval.index.build import index
from prolip.retrieval.index.database import Database
from prolip.retrieval.response import search


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


def test_search_prints_paths_of_image_files(tmp_path, monkeypatch, capsys):
    (tmp_path / "pics").mkdir()
    for color in ("red", "blue"):
        Image.new("RGB", (48, 48), color).save(tmp_path / "pics" / f"{color}.png")
    index(embed("scenes-tiny", tmp_path / "pics", tmp_path / "e", modality="image"), tmp_path / "db")
    monkeypatch.chdir(tmp_path)
    prolip("search", "db", "--image", "pics/red.png")
    lines = capsys.readouterr().out.splitlines()
    (first,) = (line for line in lines if "pics/red.png" in line and " 1 " in line)
    assert str(tmp_path) not in first
    assert any("pics/blue.png" in line for line in lines)


def test_search_for_the_name_of_a_file_warns(folder, tmp_path, monkeypatch, caplog):
    (tmp_path / "red.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    prolip("search", folder / "db", "red.png", "-k", "1")
    assert "--image red.png" in caplog.text


def test_search_help_explains_scores_and_quantiles(capsys):
    with pytest.raises(SystemExit):
        prolip("search", "--help")
    text = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "csd: expected squared distance." in text
    assert "match: by the probability of the loss that the model was trained with." in text
    assert "Quantile of the uncertainty, from 0 to 1, not a value of it" in text


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


def test_search_function_and_command_find_the_same(folder, tmp_path, capsys):
    found = search(folder / "db", "a red circle", k=3, modality="image", device="cpu")
    prolip("search", folder / "db", "a red circle", "-k", "3", "--modality", "image", "--json")
    assert json.loads(capsys.readouterr().out) == json.loads(found.to_json())
    assert (found.query, found.query_modality, len(found.hits)) == ("a red circle", "text", 3)


def test_search_takes_an_image_by_path_or_value(folder, tmp_path):
    image, database = Image.new("RGB", (48, 48), "red"), Database.open(folder / "db")
    image.save(tmp_path / "red.png")
    by_path, by_value = (search(database, query, k=5) for query in (tmp_path / "red.png", image))
    assert by_path.query_modality == by_value.query_modality == "image"
    assert by_path.hits.column("id") == by_value.hits.column("id")
    query = search(database, "a red circle", k=90, modality="image")
    included = search(database, "a red circle", k=90, modality="image", only_included=True)
    assert 0 < len(included.hits) < len(query.hits)
    assert set(included.hits.column("id")) <= set(query.hits.column("id"))


def test_index_takes_one_or_several_data_sets_or_their_paths(folder, tmp_path):
    a, b = (EmbeddingDataset.open(folder / name) for name in "ab")
    one, several = index(folder / "a", tmp_path / "one"), index([str(folder / "a"), b], tmp_path / "several")
    assert (one.rows, several.rows) == (len(a), len(a) + len(b))
    assert json.loads(one.to_json())["rows"] == one.rows
    with pytest.raises(TypeError, match="did you mean recall"):
        index(a, tmp_path / "one", recal=0.9)
