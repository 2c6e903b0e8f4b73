"""Candidates find what a scan does, without an index exactly, and with one as far as it goes."""

import pytest
import torch
from torch.nn.functional import normalize

from prolip.gaussian import Gaussian
from prolip.retrieval import candidates
from prolip.retrieval.candidates import Candidates
from prolip.retrieval.caption_tables import DatabaseTable
from prolip.retrieval.index.append import fill
from prolip.retrieval.index.build import build
from prolip.retrieval.index.settings import Effort
from prolip.retrieval.scan import Scan
from tests.retrieval.rooms import gaussians, written

EFFORT = Effort(nprobes=4, refine=4)
QUERIES = gaussians(5, seed=5, low=-7.0, high=-4.0)


def table_of(folder, texts, *, images=30, **options):
    database = fill(folder / "db", [written(folder / "e", gaussians(images), texts, **options)])
    build(database, "none")
    return DatabaseTable(database)


@pytest.fixture
def table(tmp_path):
    return table_of(tmp_path, gaussians(600, seed=1))


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("at_once", [1, 4, 256])
def test_without_an_index_they_are_exact(table, monkeypatch, by, at_once):
    monkeypatch.setattr(candidates, "AT_ONCE", at_once)
    few, scan = Candidates(table, EFFORT, EFFORT), Scan(table)
    assert torch.equal(few.nearest(QUERIES, by=by), scan.nearest(QUERIES, by=by))
    ends = normalize(QUERIES.mean.flip(0), dim=-1)
    found, wanted = (one.along(QUERIES.mean, ends, 11, by=by) for one in (few, scan))
    assert len(wanted.unique()) > 5, "more than the starts"
    assert torch.equal(found, wanted)


def test_of_captions_of_one_width_the_nearest_includes_most(tmp_path, monkeypatch):
    """So with as many bands as widths one candidate of each is enough."""
    monkeypatch.setattr(candidates, "ROOTS_AT_ONCE", 2)
    widths = torch.linspace(-6, -1, candidates.BANDS).repeat(20)
    mean = gaussians(len(widths), seed=2).mean
    table = table_of(tmp_path, Gaussian(mean, widths[:, None].expand(-1, 12).contiguous()))
    few = Candidates(table, EFFORT, EFFORT, each=1)
    queries = Gaussian(QUERIES.mean, torch.tensor([-9.0, -7, -5, -4, -2])[:, None].expand(-1, 12))
    wanted = Scan(table).most_inclusive(queries)
    assert len(table.at(wanted).z.uncertainty.unique()) > 1
    assert torch.equal(few.most_inclusive(queries), wanted)


def test_every_caption_is_in_one_band(table):
    bands = Candidates(table, EFFORT, EFFORT)._bands
    counts = [table.database.count(band) for band in bands]
    assert sum(counts) == len(table) == table.database.count(" OR ".join(f"({band})" for band in bands))
    assert max(counts) <= 2 * min(counts)


def test_roots_of_mixed_widths(table):
    """As docs/traversal.md tells it: all of them, on Gaussians whose width differs by dimension."""
    assert torch.equal(
        Candidates(table, EFFORT, EFFORT).most_inclusive(QUERIES), Scan(table).most_inclusive(QUERIES)
    )


def test_containment_is_scanned_for(table):
    wanted = Scan(table).most_inclusive(QUERIES, "containment")
    assert torch.equal(
        Candidates(table, EFFORT, EFFORT, each=1).most_inclusive(QUERIES, "containment"), wanted
    )


def test_with_an_index_a_step_is_helped_by_its_neighbours(tmp_path, monkeypatch):
    """With one cell looked into, what one step misses others find."""
    table = table_of(tmp_path, gaussians(3000, seed=1), images=0)
    table.database.build_index("ivf-sq")
    few, ends = (
        Candidates(table, Effort(nprobes=1, refine=1), Effort(nprobes=1, refine=1)),
        normalize(QUERIES.mean.flip(0), dim=-1),
    )
    wanted = Scan(table).along(QUERIES.mean, ends, 40)
    together = (few.along(QUERIES.mean, ends, 40) == wanted).float().mean()
    shares = torch.arange(40)[:, None] / 40
    points = normalize(torch.lerp(QUERIES.mean[:, None], ends[:, None], shares), dim=-1).flatten(0, 1)
    monkeypatch.setattr(candidates, "AT_ONCE", 1)
    alone = (few.nearest(Gaussian.point(points)) == wanted.flatten()).float().mean()
    assert alone <= together
    assert together > 0.9


def test_what_is_missing_is_told(tmp_path):
    texts = gaussians(50, seed=1)
    raw = DatabaseTable(fill(tmp_path / "raw", [written(tmp_path / "e", gaussians(30), texts)]))
    with pytest.raises(ValueError, match="no quantiles"):
        Candidates(raw, EFFORT, EFFORT).most_inclusive(QUERIES)
    traces = table_of(tmp_path / "traces", texts, variances="trace")
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        Candidates(traces, EFFORT, EFFORT).most_inclusive(QUERIES)
    images = table_of(tmp_path / "images", texts[:0])
    with pytest.raises(ValueError, match="no caption"):
        Candidates(images, EFFORT, EFFORT).nearest(QUERIES)
