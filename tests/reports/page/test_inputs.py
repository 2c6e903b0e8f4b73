"""What a model is judged on."""

import pytest
from PIL import Image

from prolip.data.sources.labeled import open_labeled
from prolip.reports.page.inputs import SEED, default_data, find_inputs
from tests.reports.page.runs import config_of


def test_scenes_keep_their_world_and_get_a_seed_of_their_own(tmp_path):
    spec = "scenes:simple,size=32,unseen=8,complete=0.5,length=999,seed=4"
    found = find_inputs(config_of(tmp_path, source=spec), limit=12, progress=False)
    assert (len(found.pairs), found.pairs.size, found.pairs.seed) == (12, 32, SEED)
    assert len(found.pairs.world.unseen) == 8
    assert found.world is found.pairs.world
    assert len(found.zero_shot.source) == len(found.prompts.source) == len(found.retrieval) == 12
    assert len(found.hierarimgs.originals) <= 12
    assert set(found.captions) == set(found.hierarcaps.captions)


def test_scenes_have_the_captions_of_training_not_only_the_longest(tmp_path):
    trained = "scenes:simple,size=32,captions=1,levels=0.25/0.25/0.25/0.25"
    config = config_of(tmp_path, source=trained, held_out="scenes:simple,size=32,complete=1,levels=0/0/0/1")
    source = find_inputs(config, limit=12, progress=False).pairs
    captions = [caption for index in range(12) for caption in source.captions(index)]
    assert len(captions) == 48
    assert {caption.level for caption in captions} == {0, 1, 2, 3}


def test_held_out_data_comes_before_what_was_trained_on(tmp_path):
    assert default_data(config_of(tmp_path, source="train.csv", held_out="val.csv")) == "val.csv"
    assert default_data(config_of(tmp_path, source="train.csv")) == "train.csv"
    assert default_data(config_of(tmp_path, source="")) == ""


def test_training_data_stands_in_where_nothing_is_held_out(tmp_path):
    config = config_of(tmp_path, source="scenes:simple,size=32,length=50")
    assert len(find_inputs(config, limit=7, progress=False).pairs) == 7


def test_named_classes_replace_those_of_scenes(tmp_path):
    config = config_of(tmp_path, held_out="scenes:simple,size=32,length=50")
    first = find_inputs(config, limit=7, progress=False)
    folder = next(iter(first.prompts.source.files())).parents[1]
    found = find_inputs(config, limit=4, labeled=folder, progress=False)
    assert found.zero_shot is found.prompts
    assert found.zero_shot.class_names == open_labeled(folder).class_names
    assert len(found.zero_shot.source) == 4


def test_large_sets_are_thinned_out_evenly(tmp_path):
    config = config_of(tmp_path, held_out="scenes:simple,size=32,length=50")
    whole = find_inputs(config, limit=9, progress=False).hierarimgs
    some = find_inputs(config, limit=3, hierarimgs=whole.path, progress=False).hierarimgs
    assert some.originals == (
        whole.originals[0],
        whole.originals[len(whole.originals) // 2],
        whole.originals[-1],
    )
    assert [len(level) for level in some.levels] == [3] * len(whole.levels)


def test_own_data_whose_pictures_are_gone_is_left_out_with_a_reason(tmp_path):
    (tmp_path / "t.csv").write_text("image,caption\na.png,a thing\nb.png,a red thing\n")
    found = find_inputs(config_of(tmp_path, source=str(tmp_path / "t.csv")), limit=5)
    assert found.pairs is None
    assert "can't be read here" in found.note
    assert "a.png" in found.note


def test_chains_are_walked_link_by_link(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("image,caption\na.png,a thing => a red thing\n")
    found = find_inputs(config_of(tmp_path), data=tmp_path / "t.csv", limit=5)
    assert found.captions == ("a thing", "a red thing")
    assert found.world is None


def test_bad_classes_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        find_inputs(config_of(tmp_path), labeled=tmp_path / "nowhere", limit=5)
