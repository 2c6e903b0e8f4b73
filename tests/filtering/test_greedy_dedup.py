import numpy as np
import pytest
import torch

from prolip.filtering import greedy_dedup
from prolip.filtering.greedy_dedup import NO_DUPLICATE, CosineSimilarityTest, GroupSimilarity, remove_greedily


def greedy_loop(count, similar):
    """From the best to the worst. similar: (i, j) -> bool."""
    kept = []
    for i in range(count):
        if not any(similar(i, j) for j in kept):
            kept.append(i)
    return kept


def check(found, similar):
    """The right items are kept, and every other one has a better, similar one that is kept."""
    kept = greedy_loop(len(found), similar)
    assert [i for i, better in enumerate(found) if better == NO_DUPLICATE] == kept
    assert all(
        better == NO_DUPLICATE or (better < i and better in kept and similar(i, better))
        for i, better in enumerate(found)
    )


def means(count, dim=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


@pytest.mark.parametrize("min_cosine", [0.5, 0.9, 0.99])
def test_cosine_above_matches_greedy_loop(monkeypatch, min_cosine):
    monkeypatch.setattr(greedy_dedup, "BLOCK", (7, 5))
    z = means(120)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()
    found = remove_greedily(120, [CosineSimilarityTest(z, min_cosine, [np.arange(120)])]).tolist()
    check(found, lambda i, j: cosines[i, j] >= min_cosine)
    assert 0 < found.count(NO_DUPLICATE) < 120


def test_cosine_above_compares_only_within_clusters():
    z = np.tile(means(1), (6, 1))
    clusters = [np.array([0, 2, 4]), np.array([1, 3]), np.array([4, 5])]
    assert remove_greedily(6, [CosineSimilarityTest(z, 0.9, clusters)]).tolist() == [-1, -1, 0, 1, 0, -1]


def test_same_group_and_cosine_above_combine():
    z, groups = means(80, seed=3), np.random.default_rng(0).integers(-1, 30, 80)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()

    def same(i, j):
        return groups[i] != NO_DUPLICATE and groups[i] == groups[j]

    found = remove_greedily(
        80, [GroupSimilarity(groups), CosineSimilarityTest(z, 0.95, [np.arange(80)])]
    ).tolist()
    check(found, lambda i, j: same(i, j) or cosines[i, j] >= 0.95)
    check(remove_greedily(80, [GroupSimilarity(groups)]).tolist(), same)


def test_chain_of_similar_items_keeps_every_other_one():
    angles = np.arange(9) * 0.1
    z = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    found = remove_greedily(9, [CosineSimilarityTest(z, float(np.cos(0.15)), [np.arange(9)])])
    assert found.tolist() == [-1, 0, -1, 2, -1, 4, -1, 6, -1]


def test_remove_greedily_without_similar_items():
    assert (
        remove_greedily(
            0,
            [
                GroupSimilarity(np.empty(0, np.int64)),
                CosineSimilarityTest(np.empty((0, 3), np.float32), 0.9, [np.arange(0)]),
            ],
        ).tolist()
        == []
    )
    assert remove_greedily(3, [GroupSimilarity(np.full(3, NO_DUPLICATE))]).tolist() == [NO_DUPLICATE] * 3
