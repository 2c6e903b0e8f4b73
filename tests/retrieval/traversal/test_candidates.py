"""Tests of candidate search against exact search, with and without an index."""

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


def make_table(folder, texts, *, images=30, **options):
    database = index_embeddings(
        folder / "db", [write_embeddings(folder / "e", make_gaussians(images), texts, **options)]
    )
    build_index(database, "none")
    return DatabaseCaptions(database)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("candidates"), make_gaussians(600, seed=1))


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("chunk", [1, 4, 256])
def test_candidate_search_is_exact_without_an_index(table, monkeypatch, by, chunk):
    monkeypatch.setattr(candidates, "QUERY_CHUNK", chunk)
    search, scan = CandidateSearch(table, EFFORT, EFFORT), ExactSearch(table)
    assert torch.equal(search.find_nearest(QUERIES, rank_by=by), scan.find_nearest(QUERIES, rank_by=by))
    ends = normalize(QUERIES.mean.flip(0), dim=-1)
    found, wanted = (one.find_nearest_at_steps(QUERIES.mean, ends, 11, rank_by=by) for one in (search, scan))
    assert len(wanted.unique()) > 5, "more captions than the starts"
    assert torch.equal(found, wanted)


def test_one_candidate_per_band_suffices_for_equal_uncertainty(tmp_path, monkeypatch):
    """With as many bands as uncertainties, one candidate per band is enough."""
    monkeypatch.setattr(candidates, "ROOT_CHUNK", 2)
    log_vars = torch.linspace(-6, -1, candidates.NUM_BANDS).repeat(20)
    mean = make_gaussians(len(log_vars), seed=2).mean
    table = make_table(tmp_path, Gaussian(mean, log_vars[:, None].expand(-1, 12).contiguous()))
    search = CandidateSearch(table, EFFORT, EFFORT, candidates_per_band=1)
    queries = Gaussian(QUERIES.mean, torch.tensor([-9.0, -7, -5, -4, -2])[:, None].expand(-1, 12))
    wanted = ExactSearch(table).find_max_inclusion(queries)
    assert len(table.take(wanted).z.uncertainty.unique()) > 1
    assert torch.equal(search.find_max_inclusion(queries), wanted)


def test_bands_partition_the_captions(table):
    bands = CandidateSearch(table, EFFORT, EFFORT)._band_conditions
    counts = [table.database.count_rows(band) for band in bands]
    assert sum(counts) == len(table) == table.database.count_rows(" OR ".join(f"({band})" for band in bands))
    assert max(counts) <= 2 * min(counts)


def test_candidate_roots_with_mixed_variances(table):
    """All roots are found for Gaussians whose variance differs by dimension (docs/traversal.md)."""
    assert torch.equal(
        CandidateSearch(table, EFFORT, EFFORT).find_max_inclusion(QUERIES),
        ExactSearch(table).find_max_inclusion(QUERIES),
    )


def test_candidate_search_scans_for_containment(table):
    wanted = ExactSearch(table).find_max_inclusion(QUERIES, "containment")
    assert torch.equal(
        CandidateSearch(table, EFFORT, EFFORT, candidates_per_band=1).find_max_inclusion(
            QUERIES, "containment"
        ),
        wanted,
    )


@pytest.mark.slow
def test_candidates_are_shared_between_steps(tmp_path, monkeypatch):
    """With one partition searched, other steps find what one step misses."""
    table = make_table(tmp_path, make_gaussians(3000, seed=1), images=0)
    table.database.create_index("ivf-sq")
    search, ends = (
        CandidateSearch(table, SearchEffort(nprobes=1, refine=1), SearchEffort(nprobes=1, refine=1)),
        normalize(QUERIES.mean.flip(0), dim=-1),
    )
    wanted = ExactSearch(table).find_nearest_at_steps(QUERIES.mean, ends, 40)
    together = (search.find_nearest_at_steps(QUERIES.mean, ends, 40) == wanted).float().mean()
    fractions = torch.arange(40)[:, None] / 40
    points = normalize(torch.lerp(QUERIES.mean[:, None], ends[:, None], fractions), dim=-1).flatten(0, 1)
    monkeypatch.setattr(candidates, "QUERY_CHUNK", 1)
    alone = (search.find_nearest(Gaussian.point(points)) == wanted.flatten()).float().mean()
    assert alone <= together
    assert together > 0.9


def test_candidate_search_rejects_what_the_database_lacks(tmp_path):
    texts = make_gaussians(50, seed=1)
    raw = DatabaseCaptions(
        index_embeddings(tmp_path / "raw", [write_embeddings(tmp_path / "e", make_gaussians(30), texts)])
    )
    with pytest.raises(ValueError, match="needs quantiles"):
        CandidateSearch(raw, EFFORT, EFFORT).find_max_inclusion(QUERIES)
    traces = make_table(tmp_path / "traces", texts, variances="trace")
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        CandidateSearch(traces, EFFORT, EFFORT).find_max_inclusion(QUERIES)
    images = make_table(tmp_path / "images", texts[:0])
    with pytest.raises(ValueError, match="no caption"):
        CandidateSearch(images, EFFORT, EFFORT).find_nearest(QUERIES)
