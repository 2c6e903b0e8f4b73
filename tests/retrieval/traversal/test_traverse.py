"""Tests of traversal against the definition, one image at a time."""

import itertools

import pytest
import torch
from torch.nn.functional import normalize

from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.retrieval.traversal import exact
from prolip.retrieval.traversal.traverse import (
    find_captions_at_roots,
    find_roots,
    traverse,
    traverse_to_roots,
)

ROOTS = [
    "null", "inclusion", "containment", "inclusion+null", "containment+null",
    "general-match", "general-containment", "general-match+null", "general-containment+null",
]  # fmt: skip


def one_by_one(images, captions, null, root, of, by, steps):
    """SPEC section 7, one image and one step at a time."""
    bias = captions.uncertainty / 2 if by == "csd" else 0 * captions.uncertainty
    visited, roots = [], []
    for i in range(len(images)):
        start = int((captions.mean @ images.mean[i] - bias).argmax())
        query = images[i : i + 1] if of == "image" else captions[start : start + 1]
        if root == "null":
            at = null.mean[0]
        else:
            measure = public.log_containment if "containment" in root else public.log_inclusion
            best = int(measure(query, captions).argmax())
            if "general" in root:
                score = measure if "containment" in root else (lambda a, b: -public.csd(a, b))
                is_true = score(query, captions) >= score(query, null)
                ranked = torch.where(is_true, captions.uncertainty, score(query, captions) - 1e6)
                best = int(ranked.argmax())
            at = normalize(captions.mean[best] + null.mean[0], dim=0) if "+" in root else captions.mean[best]
        path = []
        for step in range(steps):
            point = captions.mean[start] + step / steps * (at - captions.mean[start])
            path.append(int((captions.mean @ normalize(point, dim=0) - bias).argmax()))
        visited.append(path)
        roots.append(at)
    return torch.tensor(visited), torch.stack(roots)


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("of", ["image", "caption"])
@pytest.mark.parametrize("root", ROOTS)
def test_traverse_matches_definition(draw, monkeypatch, root, of, by):
    monkeypatch.setattr(exact, "BLOCK_ELEMENTS", 100)
    images, captions, null = draw(9, 6), draw(30, 6, high=-2), draw(1, 6)
    # 13: halfway between two captions both are equally near, and rounding would choose
    traversals = traverse(images, captions, null, root=root, root_of=of, rank_by=by, steps=13)
    visited, roots = one_by_one(images, captions, null, root, of, by, 13)
    assert torch.equal(traversals.visited, visited)
    torch.testing.assert_close(traversals.root_mean, roots)
    assert torch.equal(traversals.start, traversals.visited[:, 0])
    assert (traversals.roots == -1).all() == (root == "null")


def test_get_path_merges_repeats_and_ends_near_the_root(draw):
    images, captions, null = draw(5, 4), draw(40, 4, high=-3), draw(1, 4)
    traversals = traverse(images, captions, null, root="inclusion", steps=200)
    for row in range(5):
        path = traversals.get_path(row)
        assert path[0] == traversals.start[row]
        assert all(a != b for a, b in itertools.pairwise(path))
        assert set(path) == set(traversals.visited[row].tolist())
    assert torch.equal(traverse(images, captions, null, root="inclusion", rank_by="cosine", steps=4000).visited[:, -1],
                       traverse(images, captions, null, root="inclusion", rank_by="cosine").roots)  # fmt: skip


def test_traverse_to_roots_weights_the_caption(draw):
    captions, null, indices = draw(10, 5), draw(1, 5), torch.arange(3)
    traversals = traverse_to_roots(captions, null, indices, indices + 4, root="inclusion+null", weight=3.0)
    expected = normalize(3 * captions.mean[4:7] + null.mean, dim=-1)
    torch.testing.assert_close(traversals.root_mean, expected)
    with pytest.raises(ValueError, match="weight"):
        traverse_to_roots(captions, null, indices, indices, root="inclusion+null", weight=0.0)


def test_find_captions_at_roots(draw):
    images, captions, null = draw(6, 5), draw(20, 5), draw(1, 5)
    traversals = traverse(images, captions, null, root="containment+null")
    scores = traversals.root_mean @ captions.mean.T - captions.uncertainty / 2
    assert torch.equal(find_captions_at_roots(traversals, captions), scores.argmax(1))


def test_traverse_of_points_needs_the_null_root(draw):
    images, captions, null = (Gaussian.point(draw(n, 4).mean) for n in (3, 8, 1))
    assert traverse(images, captions, null, root="null").visited.shape == (3, 50)
    with pytest.raises(ValueError, match='root "null"'):
        traverse(images, captions, null)


def test_traverse_rejects_invalid_input(draw):
    with pytest.raises(ValueError, match="null must be one embedding"):
        traverse(draw(2, 4), draw(3, 4), draw(2, 4))
    with pytest.raises(ValueError, match="not one of"):
        traverse(draw(2, 4), draw(3, 4), draw(1, 4), root="H")
    with pytest.raises(ValueError, match="steps"):
        traverse(draw(2, 4), draw(3, 4), draw(1, 4), steps=0)


def test_traverse_equals_find_roots_then_traverse_to_roots(draw):
    images, captions, null = draw(6, 5), draw(20, 5), draw(1, 5)
    found = traverse(images, captions, null, root="inclusion+null", root_of="caption", steps=9)
    roots = find_roots(captions[found.start], captions, "inclusion")
    assert torch.equal(roots, found.roots)
    parts = traverse_to_roots(captions, null, found.start, roots, root="inclusion+null", steps=9)
    assert torch.equal(parts.visited, found.visited)
    assert (find_roots(images, captions, "null") == -1).all()
