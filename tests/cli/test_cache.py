"""`prolip cache`: what it lists, removes and keeps."""

import json
import os

import pytest

from prolip.cli import main
from prolip.data.sources.folder import ImageFolder
from prolip.embeddings.base_embedder import ImageTransform
from prolip.embeddings.cache import EmbeddingCache
from prolip.embeddings.embedder import Embedder
from tests.embeddings.shards import make_png


@pytest.fixture
def cache(nano, tmp_path):
    """A cache with the texts, the images and the dark images of a folder, the texts used first."""
    (tmp_path / "images").mkdir()
    for number in range(3):
        (tmp_path / "images" / f"{number}.png").write_bytes(make_png(number))
    source = ImageFolder(tmp_path / "images", captions=False)
    embedder = Embedder(model=nano, cache=tmp_path / "cache", progress=False)
    embedder.embed_texts(["a thing"])
    embedder.embed_images(source)
    embedder.embed_images(source, ImageTransform("dark", lambda pixels, _: pixels // 2))
    entries = EmbeddingCache(folder=tmp_path / "cache").list_entries()
    order = {None: 10, "dark": 20}
    for entry in entries:
        used = 5 if entry.header.modality == "text" else order[entry.header.transform]
        os.utime(entry.folder / ".lock", (used, used))
    return tmp_path / "cache"


def run(capsys, *words):
    main(["cache", *map(str, words)])
    return capsys.readouterr().out


def test_cache_lists_data_sets_with_sizes(cache, capsys, monkeypatch):
    monkeypatch.setenv("PROLIP_CACHE_SIZE", "3 GB")
    printed = run(capsys, "--cache", cache)
    assert "1 texts" in printed
    assert "dark" in printed.split(f"{cache}:")[0]
    assert f"{cache}: 3 data sets" in printed
    assert "below 3 GB" in printed


def test_cache_prints_json(cache, capsys):
    content = json.loads(run(capsys, "--cache", cache, "--json"))
    assert [entry["transform"] for entry in content["data_sets"]] == [None, None, "dark"]
    sizes = [entry["size"] for entry in content["data_sets"]]
    assert content["size"] == sum(sizes)
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert content["size"] == sum(path.stat().st_size for path in files)
    assert content["removed"] == []


def test_cache_shrinks_to_a_size(cache, capsys):
    sizes = [entry["size"] for entry in json.loads(run(capsys, "--cache", cache, "--json"))["data_sets"]]
    content = json.loads(run(capsys, "--cache", cache, "--max-size", str(sizes[1] + sizes[2]), "--json"))
    assert [entry["data"] for entry in content["removed"]] == ["1 texts"]
    assert "removed 1 data sets" in run(capsys, "--cache", cache, "--max-size", str(sizes[2]))


def test_cache_clear_removes_all(cache, capsys):
    assert "removed 3 data sets" in run(capsys, "--cache", cache, "--clear")
    assert ": 0 data sets" in run(capsys, "--cache", cache)


@pytest.mark.parametrize("words", [("--clear", "--max-size", "1GB"), ("--max-size", "much")])
def test_cache_rejects_invalid_options(cache, capsys, words):
    with pytest.raises(SystemExit) as ended:
        run(capsys, "--cache", cache, *words)
    assert ended.value.code == 2
    assert "--max-size" in capsys.readouterr().err
    assert len(EmbeddingCache(folder=cache).list_entries()) == 3


def test_cache_that_does_not_exist_is_empty(tmp_path, capsys):
    assert ": 0 data sets" in run(capsys, "--cache", tmp_path / "nowhere")
