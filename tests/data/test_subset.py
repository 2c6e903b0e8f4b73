"""A part of a source: which samples it has, and what it is part of."""

import os
import shutil

import pytest

from prolip import scenes
from prolip.data.open import open_data
from prolip.data.source import FileBacked, Source, Subset
from prolip.embeddings.identity import data_identity
from prolip.scenes.writer import SceneDatasetSpec, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=3, num_train=6, unseen=3), progress=False)
    return out


def test_spread_reaches_from_the_first_to_the_last_sample():
    source = scenes.Scenes("simple", length=101, size=32)
    part = Subset(source, 11)
    assert isinstance(part, Source)
    assert part.indices.tolist() == list(range(0, 101, 10))
    assert part.read(3).key == source.read(30).key
    assert part.fingerprint() != Subset(source, 12).fingerprint()
    assert len(Subset(source, 1000)) == 101
    assert len(Subset(source, 1)) == 1
    with pytest.raises(ValueError, match="limit"):
        Subset(source, 0)


def test_a_part_of_files_that_changed_is_other_data(folder, tmp_path):
    shutil.copytree(folder / "train", tmp_path / "train")
    source = open_data(tmp_path / "train", captions=["json:captions"])
    part = Subset(source, 2)
    assert isinstance(part, FileBacked)
    assert list(part.files()) == list(source.files()) != []
    before = data_identity(part, None)
    assert data_identity(Subset(source, 2), None) == before
    os.utime(source.files()[0], ns=(0, 0))
    assert data_identity(part, None) != before
    assert not Subset(scenes.Scenes("simple", length=5, size=32), 2).files()
