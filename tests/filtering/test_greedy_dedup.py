import numpy as np
import pytest
import torch

from prolip.filtering import greedy_dedup
from prolip.filtering.greedy_dedup import NO_DUPLICATE, CosineAbove, SameGroup, remove_greedily


def staying(count, alike):
    """From the best to the worst. alike: (i, j) -> bool."""
    stay = []
    for i in range(count):
        if not any(alike(i, j) for j in stay):
            stay.append(i)
    return stay


def check(found, alike):
    """Those stay that should, and every other one has a better one that stays and is alike."""
    stay = staying(len(found), alike)
    assert [i for i, twin in enumerate(found) if twin == NO_DUPLICATE] == stay
    assert all(
        twin == NO_DUPLICATE or (twin < i and twin in stay and alike(i, twin)) for i, twin in enumerate(found)
    )


def means(count, dim=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


@pytest.mark.parametrize("least", [0.5, 0.9, 0.99])
def test_near_as_going_from_the_best_to_the_worst(monkeypatch, least):
    monkeypatch.setattr(greedy_dedup, "BLOCK", (7, 5))
    z = means(120)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()
    found = remove_greedily(120, [CosineAbove(z, least, [np.arange(120)])]).tolist()
    check(found, lambda i, j: cosines[i, j] >= least)
    assert 0 < found.count(NO_DUPLICATE) < 120


def test_only_those_that_share_a_cell_are_compared():
    z = np.tile(means(1), (6, 1))
    cells = [np.array([0, 2, 4]), np.array([1, 3]), np.array([4, 5])]
    assert remove_greedily(6, [CosineAbove(z, 0.9, cells)]).tolist() == [-1, -1, 0, 1, 0, -1]


def test_equal_and_near_together():
    z, groups = means(80, seed=3), np.random.default_rng(0).integers(-1, 30, 80)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()

    def same(i, j):
        return groups[i] != NO_DUPLICATE and groups[i] == groups[j]

    found = remove_greedily(80, [SameGroup(groups), CosineAbove(z, 0.95, [np.arange(80)])]).tolist()
    check(found, lambda i, j: same(i, j) or cosines[i, j] >= 0.95)
    check(remove_greedily(80, [SameGroup(groups)]).tolist(), same)


def test_a_chain_in_which_neighbours_are_alike_leaves_every_other_one():
    angles = np.arange(9) * 0.1
    z = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    found = remove_greedily(9, [CosineAbove(z, float(np.cos(0.15)), [np.arange(9)])])
    assert found.tolist() == [-1, 0, -1, 2, -1, 4, -1, 6, -1]


def test_nobody_is_alike_to_nobody():
    assert (
        remove_greedily(
            0,
            [
                SameGroup(np.empty(0, np.int64)),
                CosineAbove(np.empty((0, 3), np.float32), 0.9, [np.arange(0)]),
            ],
        ).tolist()
        == []
    )
    assert remove_greedily(3, [SameGroup(np.full(3, NO_DUPLICATE))]).tolist() == [NO_DUPLICATE] * 3
