"""Traversal: all images together as one after another by the definition."""

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

ROOTS = ["null", "inclusion", "containment", "inclusion+null", "containment+null"]


def one_by_one(images, captions, null, root, of, by, steps):
    """SPEC section 7, image after image, step after step."""
    bias = captions.uncertainty / 2 if by == "csd" else 0 * captions.uncertainty
    visited, roots = [], []
    for i in range(len(images)):
        start = int((captions.mean @ images.mean[i] - bias).argmax())
        query = images[i : i + 1] if of == "image" else captions[start : start + 1]
        if root == "null":
            at = null.mean[0]
        else:
            judge = public.log_containment if "containment" in root else public.log_inclusion
            best = int(judge(query, captions).argmax())
            at = normalize(captions.mean[best] + null.mean[0], dim=0) if "+" in root else captions.mean[best]
        way = []
        for step in range(steps):
            point = captions.mean[start] + step / steps * (at - captions.mean[start])
            way.append(int((captions.mean @ normalize(point, dim=0) - bias).argmax()))
        visited.append(way)
        roots.append(at)
    return torch.tensor(visited), torch.stack(roots)


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("of", ["image", "caption"])
@pytest.mark.parametrize("root", ROOTS)
def test_as_one_after_another(draw, monkeypatch, root, of, by):
    monkeypatch.setattr(exact, "BLOCK_ELEMENTS", 100)
    images, captions, null = draw(9, 6), draw(30, 6, high=-2), draw(1, 6)
    # 13: half way between two captions both are equally near, and rounding would choose
    walks = traverse(images, captions, null, root=root, root_of=of, rank_by=by, steps=13)
    visited, roots = one_by_one(images, captions, null, root, of, by, 13)
    assert torch.equal(walks.visited, visited)
    torch.testing.assert_close(walks.root_mean, roots)
    assert torch.equal(walks.start, walks.visited[:, 0])
    assert (walks.roots == -1).all() == (root == "null")


def test_paths_merge_repeats_and_end_near_the_root(draw):
    images, captions, null = draw(5, 4), draw(40, 4, high=-3), draw(1, 4)
    walks = traverse(images, captions, null, root="inclusion", steps=200)
    for row in range(5):
        path = walks.get_path(row)
        assert path[0] == walks.start[row]
        assert all(a != b for a, b in itertools.pairwise(path))
        assert set(path) == set(walks.visited[row].tolist())
    assert torch.equal(traverse(images, captions, null, root="inclusion", rank_by="cosine", steps=4000).visited[:, -1],
                       traverse(images, captions, null, root="inclusion", rank_by="cosine").roots)  # fmt: skip


def test_the_weight_of_the_caption_in_the_root(draw):
    captions, null, numbers = draw(10, 5), draw(1, 5), torch.arange(3)
    walks = traverse_to_roots(captions, null, numbers, numbers + 4, root="inclusion+null", weight=3.0)
    expected = normalize(3 * captions.mean[4:7] + null.mean, dim=-1)
    torch.testing.assert_close(walks.root_mean, expected)
    with pytest.raises(ValueError, match="weight"):
        traverse_to_roots(captions, null, numbers, numbers, root="inclusion+null", weight=0.0)


def test_nearest_to_roots(draw):
    images, captions, null = draw(6, 5), draw(20, 5), draw(1, 5)
    walks = traverse(images, captions, null, root="containment+null")
    scores = walks.root_mean @ captions.mean.T - captions.uncertainty / 2
    assert torch.equal(find_captions_at_roots(walks, captions), scores.argmax(1))


def test_deterministic_models_have_the_null_root_alone(draw):
    images, captions, null = (Gaussian.point(draw(n, 4).mean) for n in (3, 8, 1))
    assert traverse(images, captions, null, root="null").visited.shape == (3, 50)
    with pytest.raises(ValueError, match='root "null"'):
        traverse(images, captions, null)


def test_bad_input(draw):
    with pytest.raises(ValueError, match="null must be one embedding"):
        traverse(draw(2, 4), draw(3, 4), draw(2, 4))
    with pytest.raises(ValueError, match="not one of"):
        traverse(draw(2, 4), draw(3, 4), draw(1, 4), root="H")
    with pytest.raises(ValueError, match="steps"):
        traverse(draw(2, 4), draw(3, 4), draw(1, 4), steps=0)


def test_a_traversal_is_a_search_and_a_traverse_to_roots(draw):
    images, captions, null = draw(6, 5), draw(20, 5), draw(1, 5)
    whole = traverse(images, captions, null, root="inclusion+null", root_of="caption", steps=9)
    roots = find_roots(captions[whole.start], captions, "inclusion")
    assert torch.equal(roots, whole.roots)
    parts = traverse_to_roots(captions, null, whole.start, roots, root="inclusion+null", steps=9)
    assert torch.equal(parts.visited, whole.visited)
    assert (find_roots(images, captions, "null") == -1).all()
