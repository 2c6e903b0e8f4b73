"""A scan block after block finds what a look at all captions at once does."""

import pytest
import torch
from torch.nn.functional import normalize

from prolip.measures.nearest import nearest
from prolip.retrieval.blocks import nearest_to_steps
from prolip.retrieval.caption_tables import DatabaseTable, EmbeddingsTable
from prolip.retrieval.index.append import fill
from prolip.retrieval.max_inclusion import most_inclusive
from prolip.retrieval.scan import Scan
from tests.retrieval.rooms import gaussians, written

QUERIES, TEXTS = gaussians(6, seed=5, low=-7.0, high=-4.0), gaussians(90, seed=1, high=-3.0)


@pytest.fixture(params=["folder", "database"])
def scan(request, tmp_path):
    embeddings = written(tmp_path / "e", gaussians(10), TEXTS, parts=7)
    folder = EmbeddingsTable(embeddings)
    return Scan(folder if request.param == "folder" else DatabaseTable(fill(tmp_path / "db", [embeddings])))


def numbers(scan, places):
    """The caption with number n is called "caption n"."""
    texts = scan.table.at(places.flatten()).texts
    return torch.tensor([int(text.split()[1]) for text in texts]).view(places.shape)


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_the_nearest(scan, by):
    wanted = nearest(QUERIES, TEXTS, 20, by=by)[1]
    assert torch.equal(numbers(scan, scan.few_nearest(QUERIES, 20, by=by)), wanted)
    assert torch.equal(numbers(scan, scan.nearest(QUERIES, by=by)), wanted[:, 0])
    assert scan.few_nearest(QUERIES, 1000, by=by).shape == (6, 90)


@pytest.mark.parametrize("measure", ["inclusion", "containment"])
def test_the_most_inclusive(scan, measure):
    wanted = most_inclusive(QUERIES, TEXTS, measure)[1]
    assert len(wanted.unique()) > 1
    assert torch.equal(numbers(scan, scan.most_inclusive(QUERIES, measure)), wanted)


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_the_nearest_to_steps(scan, by):
    ends = normalize(QUERIES.mean.flip(0), dim=-1)
    wanted = nearest_to_steps(QUERIES.mean, ends, TEXTS.mean_trace(), 13, by)[1]
    assert torch.equal(numbers(scan, scan.along(QUERIES.mean, ends, 13, by=by)), wanted)


def test_of_equal_captions_the_first_counts(tmp_path):
    same = TEXTS[:1][[0] * 9]
    scan = Scan(EmbeddingsTable(written(tmp_path, gaussians(3), same, parts=3)))
    first = next(scan.table.mean_traces())[0][0]
    assert scan.nearest(QUERIES).tolist() == scan.most_inclusive(QUERIES).tolist() == [int(first)] * 6
    assert (scan.along(QUERIES.mean, QUERIES.mean, 4) == first).all()


def test_a_table_without_captions(tmp_path):
    with pytest.raises(ValueError, match="no caption"):
        Scan(EmbeddingsTable(written(tmp_path, gaussians(10)))).nearest(QUERIES)


def test_a_bar_for_those_who_look(tmp_path, capsys):
    Scan(EmbeddingsTable(written(tmp_path, gaussians(10), TEXTS)), progress=True).nearest(QUERIES)
    assert "scanning" in capsys.readouterr().err
