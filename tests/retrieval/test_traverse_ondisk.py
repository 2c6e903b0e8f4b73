"""Over captions on disk the walks are those over captions in memory."""

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.retrieval.candidates import Candidates
from prolip.retrieval.caption_tables import DatabaseTable, EmbeddingsTable
from prolip.retrieval.index.append import fill
from prolip.retrieval.index.build import build
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.scan import Scan
from prolip.retrieval.traverse import traverse
from prolip.retrieval.traverse_ondisk import traverse_table
from tests.retrieval.rooms import gaussians, written

IMAGES, TEXTS, NULL = (
    gaussians(7, seed=5, low=-7.0, high=-4.0),
    gaussians(150, seed=1, high=-3.0),
    gaussians(1, seed=9),
)
ROOTS = ["null", "inclusion", "containment", "inclusion+null", "containment+null"]


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    embeddings = written(folder / "e", gaussians(40), TEXTS, parts=4)
    database = fill(folder / "db", [embeddings])
    build(database)
    table = DatabaseTable(database)
    return {
        "folder": Scan(EmbeddingsTable(embeddings)),
        "database": Scan(table),
        "candidates": Candidates(table, Effort(nprobes=4, refine=4), Effort(nprobes=4, refine=4)),
    }


def numbers(search, places):
    texts = search.table.at(places.flatten()).texts
    return torch.tensor([int(text.split()[1]) for text in texts]).view(places.shape)


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("of", ["image", "caption"])
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("kind", ["folder", "database", "candidates"])
def test_as_in_memory(searches, kind, root, of, by):
    search = searches[kind]
    # 13: half way between two captions both are equally near, and rounding would choose
    wanted = traverse(IMAGES, TEXTS, NULL, root=root, of=of, by=by, steps=13)
    found = traverse_table(IMAGES, search, NULL, root=root, of=of, by=by, steps=13)
    assert torch.equal(numbers(search, found.start), wanted.start)
    assert torch.equal(numbers(search, found.visited), wanted.visited)
    torch.testing.assert_close(found.root_mean, wanted.root_mean)
    if root == "null":
        assert (found.roots == -1).all()
    else:
        assert torch.equal(numbers(search, found.roots), wanted.roots)


def test_bad_input(searches):
    scan = searches["folder"]
    with pytest.raises(ValueError, match=r"images must be \(N, 12\)"):
        traverse_table(gaussians(2, dim=5), scan, NULL)
    with pytest.raises(ValueError, match=r"null \(1, 12\)"):
        traverse_table(IMAGES, scan, IMAGES)
    for options in ({"root": "H"}, {"of": "text"}, {"by": "l2"}):
        with pytest.raises(ValueError, match="not one of"):
            traverse_table(IMAGES, scan, NULL, **options)
    with pytest.raises(ValueError, match="steps"):
        traverse_table(IMAGES, scan, NULL, steps=0)


def test_captions_without_variances_have_the_null_root_alone(tmp_path):
    scan = Scan(EmbeddingsTable(written(tmp_path, IMAGES, TEXTS, variances="trace")))
    points = Gaussian.point(IMAGES.mean)
    assert traverse_table(points, scan, NULL, root="null").visited.shape == (7, 50)
    with pytest.raises(ValueError, match='ask for the root "null"'):
        traverse_table(points, scan, NULL)
