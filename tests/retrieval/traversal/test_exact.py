"""Tests of exact search: block by block it finds what a comparison of all captions does."""

import pytest
import torch
from torch.nn.functional import normalize

from prolip.measures.nearest import find_nearest
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.traversal import exact
from prolip.retrieval.traversal.captions import DatabaseCaptions, EmbeddedCaptions
from prolip.retrieval.traversal.exact import ExactSearch, nearest_at_steps
from prolip.retrieval.traversal.max_inclusion import find_max_inclusion
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

QUERIES, TEXTS = make_gaussians(6, seed=5, low=-7.0, high=-4.0), make_gaussians(90, seed=1, high=-3.0)


@pytest.fixture(scope="module", params=["folder", "database"])
def scan(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("scan")
    embeddings = write_embeddings(tmp_path / "e", make_gaussians(10), TEXTS, parts=7)
    folder = EmbeddedCaptions(embeddings)
    return ExactSearch(
        folder
        if request.param == "folder"
        else DatabaseCaptions(index_embeddings(tmp_path / "db", [embeddings]))
    )


def caption_indices(scan, positions):
    """Indices of captions; that of index n is called "caption n"."""
    texts = scan.table.take(positions.flatten()).texts
    return torch.tensor([int(text.split()[1]) for text in texts]).view(positions.shape)


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_exact_find_nearest(scan, by):
    wanted = find_nearest(QUERIES, TEXTS, 1, metric=by)[1]
    assert torch.equal(caption_indices(scan, scan.find_nearest(QUERIES, rank_by=by)), wanted[:, 0])


@pytest.mark.parametrize("measure", ["inclusion", "containment"])
def test_exact_find_max_inclusion(scan, measure):
    wanted = find_max_inclusion(QUERIES, TEXTS, measure)[1]
    assert len(wanted.unique()) > 1
    assert torch.equal(caption_indices(scan, scan.find_max_inclusion(QUERIES, measure)), wanted)


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_exact_find_nearest_at_steps(scan, by):
    ends = normalize(QUERIES.mean.flip(0), dim=-1)
    wanted = nearest_at_steps(QUERIES.mean, ends, TEXTS.mean_trace(), 13, by)[1]
    assert torch.equal(
        caption_indices(scan, scan.find_nearest_at_steps(QUERIES.mean, ends, 13, rank_by=by)), wanted
    )


def test_exact_search_takes_the_first_of_equal_captions(tmp_path):
    same = TEXTS[:1][[0] * 9]
    scan = ExactSearch(EmbeddedCaptions(write_embeddings(tmp_path, make_gaussians(3), same, parts=3)))
    first = next(scan.table.iter_mean_traces())[0][0]
    assert (
        scan.find_nearest(QUERIES).tolist() == scan.find_max_inclusion(QUERIES).tolist() == [int(first)] * 6
    )
    assert (scan.find_nearest_at_steps(QUERIES.mean, QUERIES.mean, 4) == first).all()


def test_exact_search_rejects_a_table_without_captions(tmp_path):
    with pytest.raises(ValueError, match="no caption"):
        ExactSearch(EmbeddedCaptions(write_embeddings(tmp_path, make_gaussians(10)))).find_nearest(QUERIES)


def test_exact_search_shows_progress(tmp_path, capsys):
    ExactSearch(
        EmbeddedCaptions(write_embeddings(tmp_path, make_gaussians(10), TEXTS)), progress=True
    ).find_nearest(QUERIES)
    assert "scanning" in capsys.readouterr().err


def similarity(mean, caption, by):
    if by == "cosine":
        return float(mean @ caption.mean / caption.mean.norm())
    return float(1 - ((mean - caption.mean).square().sum() + caption.uncertainty) / 2)


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("elements", [1, 50, 2**18])
def test_nearest_at_steps_matches_definition(draw, monkeypatch, by, elements):
    monkeypatch.setattr(exact, "BLOCK_ELEMENTS", elements)
    starts, ends, captions = draw(4, 5).mean, draw(4, 5).mean, draw(15, 5, low=-4, high=-1)
    values, rows = nearest_at_steps(starts, ends, captions.mean_trace(), 7, by)
    for n in range(4):
        for step in range(7):
            point = starts[n] + step / 7 * (ends[n] - starts[n])
            near = [similarity(normalize(point, dim=0), caption, by) for caption in captions]
            assert rows[n, step] == max(range(15), key=near.__getitem__)
            assert values[n, step] == pytest.approx(max(near) * float(point.norm()))
    apart = [
        nearest_at_steps(starts, ends, captions[part].mean_trace(), 7, by)
        for part in (slice(9), slice(9, 15))
    ]
    torch.testing.assert_close(torch.maximum(apart[0][0], apart[1][0]), values)
