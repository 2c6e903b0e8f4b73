"""Scores of chains against loops over texts, one image at a time."""

from itertools import combinations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from scipy.stats import kendalltau

from prolip.evaluation import chains as scores
from prolip.gaussian import Gaussian

WORDS = [f"caption {number}" for number in range(7)]


def indices(rows, columns):
    return st.lists(
        st.lists(st.integers(0, len(WORDS) - 1), min_size=columns, max_size=columns),
        min_size=rows,
        max_size=rows,
    )


@given(visited=indices(5, 6), chains=indices(5, 4))
def test_traversal_scores_match_sets_of_texts(visited, chains):
    precision = recall = some = 0.0
    for path, chain in zip(visited, chains, strict=True):
        seen, own = {WORDS[i] for i in path}, [WORDS[i] for i in chain]
        precision += len(seen & set(own)) / len(seen) / 5
        recall += sum(text in seen for text in own) / 4 / 5
        some += bool(seen & set(own)) / 5
    found = scores.traversal_scores(torch.tensor(visited), torch.tensor(chains))
    values = (found.precision.value, found.recall.value, found.any_recall.value)
    assert values == pytest.approx((precision, recall, some), abs=1e-12)
    assert found.precision.n == found.recall.n == found.any_recall.n == 5


@given(roots=indices(1, 5), chains=indices(5, 4))
def test_roots_are_scored_by_the_one_caption_that_they_retrieve(roots, chains):
    found = scores.root_scores(torch.tensor(roots[0]), torch.tensor(chains))
    pairs = list(zip(roots[0], chains, strict=True))
    assert found.recall.value == pytest.approx(sum(root in chain for root, chain in pairs) / 5)
    assert found.mean_recall.value == pytest.approx(sum(chain.count(root) for root, chain in pairs) / 20)
    assert found.level_0.value == pytest.approx(sum(root == chain[0] for root, chain in pairs) / 5)


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=6))
def test_the_order_of_levels_by_loops_with_ties(rows):
    values = torch.tensor(rows, dtype=torch.float64)
    falling = [row[i] > row[i + 1] for row in rows for i in range(3)]
    found = scores.adjacent_order(values)
    assert found.value == pytest.approx(sum(falling) / len(falling))
    assert found.n == len(rows), "pairs of one chain are not independent"
    pairs = scores.compare_level_pairs(values)
    for i in range(4):
        assert pairs[i][i] is None
        for j in set(range(4)) - {i}:
            assert pairs[i][j].value == pytest.approx(sum(row[i] > row[j] for row in rows) / len(rows))
    signs = [(row[j] > row[i]) - (row[j] < row[i]) for row in rows for i, j in combinations(range(4), 2)]
    assert scores.kendall_by_level(values) == pytest.approx(sum(signs) / len(signs))


def test_kendall_is_scipys_where_nothing_ties(generator):
    values = torch.randn(40, 5, generator=generator)
    taus = [kendalltau(range(5), row.tolist()).correlation for row in values]
    assert scores.kendall_by_level(values) == pytest.approx(sum(taus) / len(taus), abs=1e-12)


def test_a_single_level_has_no_order():
    values = torch.ones(3, 1)
    assert scores.adjacent_order(values) is None
    assert scores.kendall_by_level(values) is None
    assert scores.compare_level_pairs(values) == ((None,),)


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_hierarcaps_protocol_by_a_loop_over_images_and_thresholds(draw, generator, steps, monkeypatch):
    monkeypatch.setattr(scores, "BLOCK_ROWS", 3)
    images, captions, null = draw(8, 6), draw(30, 6), draw(1, 6)
    chains = torch.randint(0, 30, (11, 4), generator=generator)
    image_of = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 3])
    best = (images.mean @ captions.mean.T).argmax(1)
    chains[[0, 8]] = best[0]  # two chains whose levels are found, all by one caption: it counts once
    radius = (captions.mean - null.mean).norm(dim=-1)
    least, most = radius.min().item(), radius.max().item()
    precisions, recalls = [], []
    for number, image in enumerate(images.mean):
        taken = set()
        for step in range(steps):
            limit = least if steps == 1 else least + (most - least) * step / (steps - 1) + 1e-12
            inside = [i for i in range(30) if radius[i] <= limit or (steps == 1)]
            taken.add(max(inside, key=lambda i: float(image @ captions.mean[i])))
        own = [chains[row].tolist() for row in range(11) if image_of[row] == number]
        precisions.append(len(taken & {i for chain in own for i in chain}) / len(taken))
        recalls.append(sum(any(chain[level] in taken for chain in own) for level in range(4)) / 4)
    found = scores.score_radial_protocol(images, captions, null, chains, image_of, steps=steps)
    assert found.precision.value == pytest.approx(sum(precisions) / 8, abs=1e-12)
    assert found.recall.value == pytest.approx(sum(recalls) / 8, abs=1e-12)
    assert found.d_corr == pytest.approx(scores.kendall_by_level(radius[chains]))


def test_perfect_embeddings_have_full_recall():
    """Captions on a ray from the root to the image, each nearer to the image than the one before."""
    root, image = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    angles = torch.tensor([0.3, 0.7, 1.1, 1.5])
    captions = Gaussian.point(torch.stack([angles.cos(), angles.sin()], 1))
    chain, first = torch.arange(4)[None], torch.zeros(1, dtype=torch.int64)
    found = scores.score_radial_protocol(
        Gaussian.point(image[None]), captions, Gaussian.point(root[None]), chain, first
    )
    assert (found.precision.value, found.recall.value, found.d_corr) == (1.0, 1.0, 1.0)


def test_captions_at_the_threshold_itself_are_within_it():
    """Two captions equally near to the root: the first threshold, their radius, has both."""
    angles = torch.tensor([0.3, -0.3, 3.0])
    captions = Gaussian.point(torch.stack([angles.cos(), angles.sin()], 1))
    root = Gaussian.point(torch.tensor([[1.0, 0.0]]))
    first = torch.zeros(1, dtype=torch.int64)
    found = scores.score_radial_protocol(captions[1:2], captions, root, torch.tensor([[1]]), first, steps=2)
    assert (found.precision.value, found.recall.value) == (1.0, 1.0)
