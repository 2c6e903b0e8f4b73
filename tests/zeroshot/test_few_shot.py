"""Images to learn from: of the right class, in turn, and never among those that are test."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from prolip.zeroshot.few_shot import choose_shots, split_few_shot

CLASSES = 5
LABELS = st.lists(st.integers(0, CLASSES - 1), max_size=40).map(lambda x: torch.tensor(x, dtype=torch.int64))
SEEDS = st.integers(0, 2**31)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@given(LABELS, st.integers(1, 7), SEEDS)
def test_choose_shots_draws_different_images_of_each_class(labels, shots, seed):
    chosen = choose_shots(labels, CLASSES, shots, seeded(seed))
    assert chosen.shape == (CLASSES, shots)
    for number, row in enumerate(chosen.tolist()):
        own = (labels == number).nonzero()[:, 0].tolist()
        if not own:
            assert row == [-1] * shots
            continue
        assert set(row) <= set(own)
        assert len(set(row)) == min(shots, len(own)), "different as long as there are"
        assert row == [row[i % len(own)] for i in range(shots)], "then in turn"


@given(LABELS, st.integers(0, 7), SEEDS)
def test_split_few_shot_is_disjoint_and_complete(labels, most, seed):
    test, train = split_few_shot(labels, CLASSES, most, seeded(seed))
    assert not set(test.tolist()) & set(train.tolist())
    assert sorted([*test.tolist(), *train.tolist()]) == list(range(len(labels)))
    assert test.tolist() == sorted(test.tolist())
    assert train.tolist() == sorted(train.tolist())
    counts, own = torch.bincount(labels, minlength=CLASSES), torch.bincount(labels[train], minlength=CLASSES)
    assert own.tolist() == [min(count // 2, most) for count in counts.tolist()]


def test_split_few_shot_may_choose_every_image():
    labels = torch.tensor([0] * 8 + [1] * 8)
    seen = {int(n) for seed in range(60) for n in choose_shots(labels, 2, 1, seeded(seed)).flatten()}
    assert seen == set(range(16))
    seen = {int(n) for seed in range(60) for n in split_few_shot(labels, 2, 1, seeded(seed)).train}
    assert seen == set(range(16))


def test_choose_shots_is_reproducible():
    labels = torch.arange(40) % 4
    first, again, other = (choose_shots(labels, 4, 3, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("labels", [[0, 5], [-1, 0], [[0, 1]], [0.0, 1.0]])
def test_invalid_labels_are_rejected(labels):
    for function in (choose_shots, split_few_shot):
        with pytest.raises(ValueError, match=r"int64 \(N,\) in 0\.\.4"):
            function(torch.tensor(labels), CLASSES, 1, seeded(0))
