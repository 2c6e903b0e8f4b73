"""Candidates find what a scan does, without an index exactly, and with one as far as it goes."""

import pytest
import torch
from torch.nn.functional import normalize

from prolip.gaussian import Gaussian
from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.build import build_index
from prolip.retrieval.index.settings import SearchEffort
from prolip.retrieval.traversal import candidates
from prolip.retrieval.traversal.candidates import CandidateSearch
from prolip.retrieval.traversal.captions import DatabaseCaptions
from prolip.retrieval.traversal.exact import ExactSearch
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

EFFORT = SearchEffort(nprobes=4, refine=4)
QUERIES = make_gaussians(5, seed=5, low=-7.0, high=-4.0)


def table_of(folder, texts, *, images=30, **options):
    database = index_embeddings(
        folder / "db", [write_embeddings(folder / "e", make_gaussians(images), texts, **options)]
    )
    build_index(database, "none")
    return DatabaseCaptions(database)


@pytest.fixture
def table(tmp_path):
    return table_of(tmp_path, make_gaussians(600, seed=1))


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("at_once", [1, 4, 256])
def test_without_an_index_they_are_exact(table, monkeypatch, by, at_once):
    monkeypatch.setattr(candidates, "QUERY_CHUNK", at_once)
    few, scan = CandidateSearch(table, EFFORT, EFFORT), ExactSearch(table)
    assert torch.equal(few.find_nearest(QUERIES, rank_by=by), scan.find_nearest(QUERIES, rank_by=by))
    ends = normalize(QUERIES.mean.flip(0), dim=-1)
    found, wanted = (one.find_nearest_at_steps(QUERIES.mean, ends, 11, rank_by=by) for one in (few, scan))
    assert len(wanted.unique()) > 5, "more than the starts"
    assert torch.equal(found, wanted)


def test_of_captions_of_one_width_the_nearest_includes_most(tmp_path, monkeypatch):
    """So with as many bands as widths one candidate of each is enough."""
    monkeypatch.setattr(candidates, "ROOT_CHUNK", 2)
    widths = torch.linspace(-6, -1, candidates.BANDS).repeat(20)
    mean = make_gaussians(len(widths), seed=2).mean
    table = table_of(tmp_path, Gaussian(mean, widths[:, None].expand(-1, 12).contiguous()))
    few = CandidateSearch(table, EFFORT, EFFORT, band_candidates=1)
    queries = Gaussian(QUERIES.mean, torch.tensor([-9.0, -7, -5, -4, -2])[:, None].expand(-1, 12))
    wanted = ExactSearch(table).find_max_inclusion(queries)
    assert len(table.take(wanted).z.uncertainty.unique()) > 1
    assert torch.equal(few.find_max_inclusion(queries), wanted)


def test_every_caption_is_in_one_band(table):
    bands = CandidateSearch(table, EFFORT, EFFORT)._bands
    counts = [table.database.count_rows(band) for band in bands]
    assert sum(counts) == len(table) == table.database.count_rows(" OR ".join(f"({band})" for band in bands))
    assert max(counts) <= 2 * min(counts)


def test_roots_of_mixed_widths(table):
    """As docs/traversal.md tells it: all of them, on Gaussians whose width differs by dimension."""
    assert torch.equal(
        CandidateSearch(table, EFFORT, EFFORT).find_max_inclusion(QUERIES),
        ExactSearch(table).find_max_inclusion(QUERIES),
    )


def test_containment_is_scanned_for(table):
    wanted = ExactSearch(table).find_max_inclusion(QUERIES, "containment")
    assert torch.equal(
        CandidateSearch(table, EFFORT, EFFORT, band_candidates=1).find_max_inclusion(QUERIES, "containment"),
        wanted,
    )


def test_with_an_index_a_step_is_helped_by_its_neighbours(tmp_path, monkeypatch):
    """With one cell looked into, what one step misses others find."""
    table = table_of(tmp_path, make_gaussians(3000, seed=1), images=0)
    table.database.create_index("ivf-sq")
    few, ends = (
        CandidateSearch(table, SearchEffort(nprobes=1, refine=1), SearchEffort(nprobes=1, refine=1)),
        normalize(QUERIES.mean.flip(0), dim=-1),
    )
    wanted = ExactSearch(table).find_nearest_at_steps(QUERIES.mean, ends, 40)
    together = (few.find_nearest_at_steps(QUERIES.mean, ends, 40) == wanted).float().mean()
    shares = torch.arange(40)[:, None] / 40
    points = normalize(torch.lerp(QUERIES.mean[:, None], ends[:, None], shares), dim=-1).flatten(0, 1)
    monkeypatch.setattr(candidates, "QUERY_CHUNK", 1)
    alone = (few.find_nearest(Gaussian.point(points)) == wanted.flatten()).float().mean()
    assert alone <= together
    assert together > 0.9


def test_what_is_missing_is_told(tmp_path):
    texts = make_gaussians(50, seed=1)
    raw = DatabaseCaptions(
        index_embeddings(tmp_path / "raw", [write_embeddings(tmp_path / "e", make_gaussians(30), texts)])
    )
    with pytest.raises(ValueError, match="no quantiles"):
        CandidateSearch(raw, EFFORT, EFFORT).find_max_inclusion(QUERIES)
    traces = table_of(tmp_path / "traces", texts, variances="trace")
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        CandidateSearch(traces, EFFORT, EFFORT).find_max_inclusion(QUERIES)
    images = table_of(tmp_path / "images", texts[:0])
    with pytest.raises(ValueError, match="no caption"):
        CandidateSearch(images, EFFORT, EFFORT).find_nearest(QUERIES)
