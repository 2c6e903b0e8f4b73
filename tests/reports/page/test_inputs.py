"""The data on which a model is evaluated."""

import pytest
from PIL import Image

from prolip.data.sources.labeled import open_labeled
from prolip.reports.page.inputs import SEED, choose_default_data, find_inputs
from tests.reports.page.runs import make_config


def test_find_inputs_generates_scenes_with_another_seed(tmp_path):
    spec = "scenes:simple,size=32,unseen=8,complete=0.5,length=999,seed=4"
    inputs = find_inputs(make_config(tmp_path, source=spec), limit=12, progress=False)
    assert (len(inputs.pairs), inputs.pairs.size, inputs.pairs.seed) == (12, 32, SEED)
    assert len(inputs.pairs.world.unseen) == 8
    assert inputs.origin
    assert len(inputs.zero_shot.source) == len(inputs.prompts.source) == len(inputs.retrieval) == 12
    assert len(inputs.hierarimgs.originals) <= 12
    assert set(inputs.captions) == set(inputs.hierarcaps.captions)


def test_find_inputs_generates_captions_of_all_levels(tmp_path):
    trained = "scenes:simple,size=32,captions=1,levels=0.25/0.25/0.25/0.25"
    config = make_config(tmp_path, source=trained, held_out="scenes:simple,size=32,complete=1,levels=0/0/0/1")
    source = find_inputs(config, limit=12, progress=False).pairs
    captions = [caption for index in range(12) for caption in source.captions(index)]
    assert len(captions) == 48
    assert {caption.level for caption in captions} == {0, 1, 2, 3}


def test_choose_default_data_prefers_held_out_data(tmp_path):
    assert choose_default_data(make_config(tmp_path, source="train.csv", held_out="val.csv")) == "val.csv"
    assert choose_default_data(make_config(tmp_path, source="train.csv")) == "train.csv"
    assert choose_default_data(make_config(tmp_path, source="")) == ""


def test_find_inputs_falls_back_to_training_data(tmp_path):
    config = make_config(tmp_path, source="scenes:simple,size=32,length=50")
    assert len(find_inputs(config, limit=7, progress=False).pairs) == 7


def test_find_inputs_uses_named_classes(tmp_path):
    config = make_config(tmp_path, held_out="scenes:simple,size=32,length=50")
    first = find_inputs(config, limit=7, progress=False)
    folder = next(iter(first.prompts.source.files())).parents[1]
    inputs = find_inputs(config, limit=4, labeled=folder, progress=False)
    assert inputs.zero_shot is inputs.prompts
    assert inputs.zero_shot.class_names == open_labeled(folder).class_names
    assert len(inputs.zero_shot.source) == 4


def test_find_inputs_limits_sets_evenly(tmp_path):
    config = make_config(tmp_path, held_out="scenes:simple,size=32,length=50")
    every = find_inputs(config, limit=9, progress=False).hierarimgs
    some = find_inputs(config, limit=3, hierarimgs=every.path, progress=False).hierarimgs
    assert some.originals == (
        every.originals[0],
        every.originals[len(every.originals) // 2],
        every.originals[-1],
    )
    assert [len(level) for level in some.levels] == [3] * len(every.levels)


def test_find_inputs_skips_run_data_without_images(tmp_path):
    (tmp_path / "t.csv").write_text("image,caption\na.png,a thing\nb.png,a red thing\n")
    inputs = find_inputs(make_config(tmp_path, source=str(tmp_path / "t.csv")), limit=5)
    assert inputs.pairs is None
    assert "can't be read" in inputs.note
    assert "a.png" in inputs.note


def test_find_inputs_splits_chains_into_captions(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("image,caption\na.png,a thing => a red thing\n")
    inputs = find_inputs(make_config(tmp_path), data=tmp_path / "t.csv", limit=5)
    assert inputs.captions == ("a thing", "a red thing")
    assert not inputs.origin


def test_find_inputs_rejects_missing_classes(tmp_path):
    with pytest.raises(FileNotFoundError):
        find_inputs(make_config(tmp_path), labeled=tmp_path / "nowhere", limit=5)
