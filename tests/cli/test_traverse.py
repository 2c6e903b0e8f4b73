"""Tests of `prolip traverse` over captions on disk (over files: test_evaluate.py)."""

import json

import pytest
from PIL import Image

from prolip.cli import main
from prolip.embeddings.embed import embed
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index

CAPTIONS = ["a red circle", "a thing", "a small green square", "a blue star"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traverse")
    (folder / "captions.txt").write_text("\n".join(CAPTIONS * 80))
    Image.new("RGB", (48, 48), "red").save(folder / "red.png")
    embeddings = embed("scenes-tiny", folder / "captions.txt", folder / "embeddings", modality="text")
    build_index(index_embeddings(folder / "database", [embeddings]), "ivf-sq", recall=0.01)
    return folder


@pytest.mark.parametrize("words", [["embeddings"], ["database"], ["database", "--scan"]])
def test_traverse_gives_the_same_path_for_file_embeddings_and_database(folder, capsys, words):
    found = []
    for captions in (["captions.txt"], words):
        name, *options = captions
        arguments = [
            str(folder / "red.png"),
            "--captions",
            str(folder / name),
            "--model",
            "scenes-tiny",
            *options,
        ]
        main(["traverse", *arguments, "--json"])
        (path,) = json.loads(capsys.readouterr().out).values()
        found.append(([step["caption"] for step in path["steps"]], path["root"]["caption"]))
    assert found[0] == found[1]
    assert set(found[0][0]) <= set(CAPTIONS)
