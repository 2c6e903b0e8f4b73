import numpy as np
import pytest
import torch

from prolip.filtering import clusters as module
from prolip.filtering.clusters import assign_clusters, group_by_cluster, measure_cluster_recall


def means(count, dim=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


def test_group_by_cluster_lists_every_item():
    z = means(200)
    clusters = assign_clusters(z)
    members = group_by_cluster(clusters)
    assert clusters.shape == (200, 3)
    for cluster, items in enumerate(members):
        assert items.tolist() == [i for i in range(200) if cluster in clusters[i]]
    assert sum(map(len, members)) == 600
    assert len(members) == 15


def test_equal_items_have_equal_clusters():
    z = np.repeat(means(40), 3, axis=0)
    clusters = assign_clusters(z)
    assert all(
        set(clusters[3 * i]) == set(clusters[3 * i + 1]) == set(clusters[3 * i + 2]) for i in range(40)
    )


@pytest.mark.parametrize("min_cosine", [0.6, 0.9])
def test_cluster_recall_matches_definition(monkeypatch, min_cosine):
    monkeypatch.setattr(module, "BLOCK", 32)
    z = means(150, dim=4)
    clusters = assign_clusters(z)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()
    similar = [(i, j) for i in range(150) for j in range(150) if i != j and cosines[i, j] >= min_cosine]
    found = [pair for pair in similar if set(clusters[pair[0]]) & set(clusters[pair[1]])]
    assert measure_cluster_recall(clusters, z, min_cosine) == pytest.approx(
        len(found) / len(similar), abs=1e-12
    )
    assert len(found) < len(similar) or min_cosine > 0.6


def test_cluster_recall_is_none_without_similar_pairs():
    z = np.eye(6, dtype=np.float32)
    assert measure_cluster_recall(assign_clusters(z), z, 0.9) is None
