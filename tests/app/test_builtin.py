import csv
from importlib.util import find_spec
from itertools import islice

import pytest

from prolip import scenes
from prolip.app import builtin
from prolip.app.builtin import CAPTION_COLUMNS, write_table


def test_scenes_have_the_captions_of_their_scene_but_for_a_few(tmp_path):
    source = scenes.Scenes(
        "simple",
        length=50,
        size=builtin.SCENE_SIZE,
        seed=builtin.SCENE_SEED,
        captions=2,
        veiled=builtin.VEILED,
    )
    table = write_table(tmp_path, islice(builtin._iter_scenes(), 46))
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    wrong = []
    for row in rows:
        index = int(row["image"].split("-")[1].removesuffix(".png"))
        captions = source.read(index).captions
        if [row[name] for name in CAPTION_COLUMNS] != list(captions):
            wrong.append(row["image"])
    assert wrong == ["scene-022.png"]
    assert "scene-039-copy.png" in [row["image"] for row in rows]
    assert all((tmp_path / row["image"]).is_file() for row in rows)


def test_examples_of_scenes_are_labeled(workspace):
    examples = workspace.examples
    assert [examples.labels.count(label) for label in range(6)] == [8] * 6
    assert [image.name for image in examples.images] == [examples.class_names[i] for i in examples.labels]


@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn has the photographs")
def test_whole_photographs_come_first():
    names = [sample.name for sample in builtin._iter_photo_views()]
    assert [name.endswith("-whole") for name in names[:2]] == [True, True]
    assert len(set(names)) == len(names) >= 16
    examples = builtin._make_photo_examples()
    assert set(examples.labels) < set(range(len(examples.class_names)))
