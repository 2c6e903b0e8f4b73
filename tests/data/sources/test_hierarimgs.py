"""The index of HierarImgs: what the builder writes is read, and what is wrong with one is said."""

import json

import pytest

from prolip.data.sources.hierarimgs import read_hierarimgs


def test_files_are_by_level_and_lie_beside_the_index(tmp_path):
    entries = [{"original": f"{n}.png", "levels": [f"{n}-0.png", f"{n}-1.png"]} for n in range(3)]
    (tmp_path / "index.json").write_text(json.dumps({"images": entries}))
    data = read_hierarimgs(tmp_path)
    assert data == read_hierarimgs(tmp_path / "index.json")
    assert data.originals == tuple(tmp_path / f"{n}.png" for n in range(3))
    assert data.levels == tuple(tuple(tmp_path / f"{n}-{k}.png" for n in range(3)) for k in range(2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "names no images"),
        ({"images": []}, "names no images"),
        ({"images": [{"original": "a.png"}]}, '"original" and "levels"'),
        ({"images": [{"original": "a", "levels": ["b"]}, {"original": "a", "levels": []}]}, "same number"),
    ],
)
def test_what_is_wrong_with_an_index_is_said(tmp_path, content, message):
    (tmp_path / "index.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_hierarimgs(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        read_hierarimgs(tmp_path / "nowhere")
