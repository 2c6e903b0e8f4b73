import numpy as np
import pytest

from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import ConcatSource, compute_fingerprint, require_captions, require_index
from prolip.scenes import Scenes


def test_joined_sources_are_one_after_another():
    parts = [Scenes("simple", length=length, seed=seed) for seed, length in enumerate((3, 1, 5))]
    joined = ConcatSource(parts)
    assert len(joined) == 9
    assert joined.chunks.tolist() == [3, 1, 5]
    expected = [part.read(index).key for part in parts for index in range(len(part))]
    assert [joined.read(index).key for index in range(9)] == expected
    assert joined.name == "scenes:simple + scenes:simple + scenes:simple"


def test_the_fingerprint_of_a_join_tells_parts_and_order():
    one, two = Scenes("simple", length=3), Scenes("hard", length=3)
    prints = {ConcatSource(parts).fingerprint() for parts in ([one], [one, two], [two, one], [one, one])}
    assert len(prints) == 4


@pytest.mark.parametrize("index", [-1, 9])
def test_numbers_outside_a_join(index):
    with pytest.raises(IndexError, match="out of range"):
        ConcatSource([Scenes("simple", length=9)]).read(index)


def test_nothing_to_join():
    with pytest.raises(ValueError, match="no source"):
        ConcatSource([])


def test_a_fingerprint_is_the_same_everywhere():
    assert compute_fingerprint("a", 1) == "2a094f2f3c5033c9"
    assert compute_fingerprint("a", 1) != compute_fingerprint("a1")


def test_an_index_is_from_zero_to_the_length():
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


def test_the_first_good_sample_is_enough():
    source = Counted(10_000, good=0)
    require_captions(source)
    assert source.asked == [0]


def test_samples_from_all_over_are_tried():
    source = Counted(10_000, good=9_999)
    require_captions(source)
    assert len(source.asked) == 100
    assert max(np.diff(source.asked)) <= 102
    with pytest.raises(ValueError, match=r"100 samples.* row 0: no cap"):
        require_captions(Counted(10_000, good=5))


def test_few_samples_are_all_tried():
    source = Counted(7, good=5)
    require_captions(source)
    assert source.asked == [0, 1, 2, 3, 4, 5]
    require_captions(Counted(0, good=0))


def test_other_faults_are_left_to_the_loader():
    require_captions(Counted(10, good=None, reason="broken shard"))
