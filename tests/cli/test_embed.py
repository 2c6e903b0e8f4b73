"""`prolip embed`: what it writes and prints."""

import json
import re

import pytest

from prolip.cli import main
from prolip.embeddings.dataset import EmbeddingDataset
from tests.embeddings.shards import write_shards


@pytest.fixture
def model(nano, tmp_path):
    return str(nano.save_pretrained(tmp_path / "model"))


def test_embed_writes_a_folder_and_prints_a_summary(model, tmp_path, capsys):
    data = write_shards(tmp_path / "s", [12], bad={3})
    out = tmp_path / "out"
    main(
        ["embed", data, "--out", str(out), "--model", model, "--part-size", "8", "--max-bad-fraction", "0.2"]
    )
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}: 22 embeddings in 2 parts, ")
    assert printed.err == f"skipped 1 of 12 samples (unreadable image 1); see {out / 'errors.csv'}\n"
    assert len(EmbeddingDataset.open(out)) == 22


def test_embed_prints_json(model, tmp_path, capsys):
    main(
        ["embed", "scenes:simple,length=5,size=32", "--out", str(tmp_path / "o"), "--model", model, "--modality",
         "image", "--variances", "trace", "--precision", "float16", "--json"]
    )  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    main(["embed", "scenes:simple,length=5,size=32", "--out", str(tmp_path / "one"), "--model", model])
    assert re.search(r" in 1 part, [1-9]\d* kB$", capsys.readouterr().out.strip())
    assert printed["rows"] == printed["samples"] == 5
    assert printed["bad"] == {}
    header = EmbeddingDataset.open(tmp_path / "o").header
    assert (header.variances, header.precision, header.modality) == ("trace", "float16", "image")
    assert printed["identity"] == header.identity


def test_embed_rejects_another_model(model, tmp_path, capsys):
    data = "scenes:simple,length=3,size=48"
    main(["embed", data, "--out", str(tmp_path / "o"), "--model", model])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["embed", data, "--out", str(tmp_path / "o"), "--model", "scenes-tiny"])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert "holds embeddings of another model" in printed
    assert len(printed.splitlines()) == 1


def test_embed_stores_absolute_paths(model, tmp_path, monkeypatch):
    write_shards(tmp_path / "s", [3])
    monkeypatch.chdir(tmp_path)
    main(["embed", "s", "--out", "o", "--model", "model"])
    header = EmbeddingDataset.open("o").header
    assert (header.data, header.model) == (str(tmp_path / "s"), str(tmp_path / "model"))
    monkeypatch.chdir("/")
    assert len(EmbeddingDataset.open(tmp_path / "o").open_source()) == 3
