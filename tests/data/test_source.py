import os
import shutil

import numpy as np
import pytest

from prolip import scenes
from prolip.data.open import open_data
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import (
    ConcatSource,
    FileBacked,
    Source,
    Subset,
    compute_fingerprint,
    require_index,
    require_usable_sample,
)
from prolip.embeddings.identity import data_identity
from prolip.scenes import Scenes
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset


def test_concat_source_reads_sources_one_after_another():
    parts = [Scenes("simple", length=length, seed=seed) for seed, length in enumerate((3, 1, 5))]
    joined = ConcatSource(parts)
    assert len(joined) == 9
    assert joined.chunks.tolist() == [3, 1, 5]
    expected = [part.read(index).key for part in parts for index in range(len(part))]
    assert [joined.read(index).key for index in range(9)] == expected
    assert joined.name == "scenes:simple + scenes:simple + scenes:simple"


def test_concat_source_fingerprint_depends_on_sources_and_order():
    one, two = Scenes("simple", length=3), Scenes("hard", length=3)
    prints = {ConcatSource(parts).fingerprint() for parts in ([one], [one, two], [two, one], [one, one])}
    assert len(prints) == 4


@pytest.mark.parametrize("index", [-1, 9])
def test_concat_source_refuses_indices_out_of_range(index):
    with pytest.raises(IndexError, match="out of range"):
        ConcatSource([Scenes("simple", length=9)]).read(index)


def test_concat_source_refuses_no_sources():
    with pytest.raises(ValueError, match="at least one source"):
        ConcatSource([])


def test_a_fingerprint_is_the_same_everywhere():
    assert compute_fingerprint("a", 1) == "2a094f2f3c5033c9"
    assert compute_fingerprint("a", 1) != compute_fingerprint("a1")


def test_require_index_refuses_indices_out_of_range():
    require_index(0, 1)
    for index in (-1, 1):
        with pytest.raises(IndexError, match=f"{index} .* 1 samples"):
            require_index(index, 1)


class Counted:
    """A source of n samples of which only one is good."""

    name = "counted"

    def __init__(self, count, good, reason="no caption"):
        self.count, self.good, self.reason, self.asked = count, good, reason, []

    def __len__(self):
        return self.count

    def read(self, index):
        self.asked.append(index)
        if index != self.good:
            raise BadSampleError(self.reason, f"row {index}")
        return Sample("k", "w", b"", ("a",))


def test_require_captions_stops_at_the_first_good_sample():
    source = Counted(10_000, good=0)
    require_usable_sample(source)
    assert source.asked == [0]


def test_require_captions_tries_samples_from_all_over_the_source():
    source = Counted(10_000, good=9_999)
    require_usable_sample(source)
    assert len(source.asked) == 100
    assert max(np.diff(source.asked)) <= 102
    with pytest.raises(ValueError, match=r"100 samples.* row 0: no cap"):
        require_usable_sample(Counted(10_000, good=5))


def test_require_captions_tries_all_samples_of_a_small_source():
    source = Counted(7, good=5)
    require_usable_sample(source)
    assert source.asked == [0, 1, 2, 3, 4, 5]
    require_usable_sample(Counted(0, good=0))


def test_require_captions_ignores_damaged_files():
    require_usable_sample(Counted(10, good=None, reason="broken shard"))


# Subset


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=3, num_train=6, unseen=3), progress=False)
    return out


def test_subset_from_indices_has_these_samples_in_this_order():
    source = scenes.Scenes("simple", length=9, size=32)
    part = Subset.from_indices(source, np.array([7, 2, 3]))
    assert [part.read(i).key for i in range(len(part))] == [source.read(i).key for i in (7, 2, 3)]
    others = [Subset.from_indices(source, np.array(rows)) for rows in ([7, 3, 2], [0, 4, 8])]
    assert len({part.fingerprint(), *(other.fingerprint() for other in others)}) == 3
    assert others[1].fingerprint() == Subset(source, 3).fingerprint(), "the same samples"


def test_subset_reaches_from_the_first_to_the_last_sample():
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


def test_subset_of_changed_files_is_other_data(folder, tmp_path):
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
