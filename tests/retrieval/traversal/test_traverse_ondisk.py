"""Tests of traversal over captions on disk against captions in memory."""

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.traversal.candidates import CandidateSearch
from prolip.retrieval.traversal.captions import DatabaseCaptions, EmbeddedCaptions
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.traverse import traverse
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

IMAGES, TEXTS, NULL = (
    make_gaussians(7, seed=5, low=-7.0, high=-4.0),
    make_gaussians(150, seed=1, high=-3.0),
    make_gaussians(1, seed=9),
)
ROOTS = [
    "null", "inclusion", "containment", "inclusion+null", "containment+null",
    "general-match", "general-containment", "general-match+null", "general-containment+null",
]  # fmt: skip


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    embeddings = write_embeddings(folder / "e", make_gaussians(40), TEXTS, parts=4)
    database = index_embeddings(folder / "db", [embeddings])
    build_index(database)
    table = DatabaseCaptions(database)
    return {
        "folder": ExactSearch(EmbeddedCaptions(embeddings)),
        "database": ExactSearch(table),
        "candidates": CandidateSearch(
            table, SearchEffort(nprobes=4, refine=4), SearchEffort(nprobes=4, refine=4)
        ),
    }


def caption_indices(search, positions):
    texts = search.table.take(positions.flatten()).texts
    return torch.tensor([int(text.split()[1]) for text in texts]).view(positions.shape)


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("of", ["image", "caption"])
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("kind", ["folder", "database", "candidates"])
def test_traverse_on_disk_matches_memory(searches, kind, root, of, by):
    search = searches[kind]
    # 13: half way between two captions both are equally near, and rounding would choose
    wanted = traverse(IMAGES, TEXTS, NULL, root=root, root_of=of, rank_by=by, steps=13)
    found = traverse(IMAGES, search, NULL, root=root, root_of=of, rank_by=by, steps=13)
    assert torch.equal(caption_indices(search, found.start), wanted.start)
    assert torch.equal(caption_indices(search, found.visited), wanted.visited)
    torch.testing.assert_close(found.root_mean, wanted.root_mean)
    if root == "null":
        assert (found.roots == -1).all()
    else:
        assert torch.equal(caption_indices(search, found.roots), wanted.roots)


def test_traverse_on_disk_rejects_invalid_input(searches):
    scan = searches["folder"]
    with pytest.raises(ValueError, match=r"images must be \(N, 12\)"):
        traverse(make_gaussians(2, dim=5), scan, NULL)
    with pytest.raises(ValueError, match=r"null .*\(1, 12\)"):
        traverse(IMAGES, scan, IMAGES)
    for options in ({"root": "H"}, {"root_of": "text"}, {"rank_by": "l2"}):
        with pytest.raises(ValueError, match="not one of"):
            traverse(IMAGES, scan, NULL, **options)
    with pytest.raises(ValueError, match="steps"):
        traverse(IMAGES, scan, NULL, steps=0)


def test_captions_without_variances_need_the_null_root(tmp_path):
    scan = ExactSearch(EmbeddedCaptions(write_embeddings(tmp_path, IMAGES, TEXTS, variances="trace")))
    points = Gaussian.point(IMAGES.mean)
    assert traverse(points, scan, NULL, root="null").visited.shape == (7, 50)
    with pytest.raises(ValueError, match='root "null"'):
        traverse(points, scan, NULL)
