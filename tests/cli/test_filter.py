import json

import pytest

from prolip import extras
from prolip.cli import main
from prolip.reports import filtering
from tests.filtering import made_embeddings as made


@pytest.fixture
def embeddings(tmp_path):
    images, texts = made.gaussians(10, 1), made.gaussians(10, 2)
    parts = [made.pairs(images, texts, right=[True, False] * 5)]
    return str(made.write(tmp_path / "e", parts, {"right": "bool"}).folder)


def test_filter_prints_a_table_and_paths(embeddings, tmp_path, capsys):
    main(
        [
            "filter",
            embeddings,
            "--out",
            str(tmp_path / "o"),
            "--keep-fraction",
            "0.4",
            "--ground-truth",
            "right",
        ]
    )
    printed = capsys.readouterr().out
    for words in ("kept", "below the threshold", "last csd that is kept", "precision", "random %"):
        assert words in printed
    for name in ("subset.parquet", "filter.json", "filter.html"):
        assert str(tmp_path / "o" / name) in printed.splitlines()
        assert (tmp_path / "o" / name).exists()


def test_filter_prints_json(embeddings, tmp_path, capsys):
    main(
        ["filter", embeddings, "--out", str(tmp_path / "o"), "--keep-fraction", "0.4", "--rank-by", "cosine",
         "--duplicates", "images", "--no-report", "--json"]
    )  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    assert printed["rank_by"] == "cosine"
    assert printed["outcomes"]["kept"] + printed["outcomes"]["duplicate of a better sample"] == 4
    assert printed["paths"] == [
        str(tmp_path / "o" / name) for name in ("subset.parquet", "dropped.parquet", "filter.json")
    ]
    assert not (tmp_path / "o" / "filter.html").exists()


def test_filter_without_the_report_extra(embeddings, tmp_path, capsys, monkeypatch):
    def absent(*_):
        raise extras.MissingExtraError("this needs jinja2")

    monkeypatch.setattr(filtering, "save_filter_page", absent)
    main(["filter", embeddings, "--out", str(tmp_path / "o"), "--keep-fraction", "0.4"])
    printed = capsys.readouterr()
    assert "prolip: no page: this needs jinja2" in printed.err
    assert "subset.parquet" in printed.out
