import numpy as np
import pytest
import torch

from prolip.filtering import clusters as module
from prolip.filtering.clusters import assign_clusters, group_by_cluster, measure_cluster_recall


def means(count, dim=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1).numpy()


def test_every_item_is_in_its_cells_and_cells_are_in_order():
    z = means(200)
    clusters = assign_clusters(z)
    members = group_by_cluster(clusters)
    assert clusters.shape == (200, 3)
    for cell, items in enumerate(members):
        assert items.tolist() == [i for i in range(200) if cell in clusters[i]]
    assert sum(map(len, members)) == 600
    assert len(members) == 15


def test_items_that_are_the_same_share_all_cells():
    z = np.repeat(means(40), 3, axis=0)
    clusters = assign_clusters(z)
    assert all(
        set(clusters[3 * i]) == set(clusters[3 * i + 1]) == set(clusters[3 * i + 2]) for i in range(40)
    )


@pytest.mark.parametrize("least", [0.6, 0.9])
def test_recall_by_its_definition(monkeypatch, least):
    monkeypatch.setattr(module, "BLOCK", 32)
    z = means(150, dim=4)
    clusters = assign_clusters(z)
    cosines = (torch.from_numpy(z) @ torch.from_numpy(z).mT).numpy()
    alike = [(i, j) for i in range(150) for j in range(150) if i != j and cosines[i, j] >= least]
    seen = [pair for pair in alike if set(clusters[pair[0]]) & set(clusters[pair[1]])]
    assert measure_cluster_recall(clusters, z, least) == pytest.approx(len(seen) / len(alike), abs=1e-12)
    assert len(seen) < len(alike) or least > 0.6


def test_no_pair_that_is_alike_has_no_recall():
    z = np.eye(6, dtype=np.float32)
    assert measure_cluster_recall(assign_clusters(z), z, 0.9) is None
