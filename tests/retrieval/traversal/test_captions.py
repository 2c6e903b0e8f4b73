"""Tests of captions on disk: read in blocks and by position, from embeddings and from a database."""

import pytest
import torch

from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.database import Database
from prolip.retrieval.traversal.captions import DatabaseCaptions, EmbeddedCaptions
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

TEXTS = 37


def make_table(kind, folder, images=20, **options):
    embeddings = write_embeddings(
        folder / "e", make_gaussians(images), make_gaussians(TEXTS, seed=1), parts=4, **options
    )
    return (
        EmbeddedCaptions(embeddings)
        if kind == "folder"
        else DatabaseCaptions(index_embeddings(folder / "db", [embeddings]))
    )


@pytest.fixture(params=["folder", "database"])
def kind(request):
    return request.param


def parse_indices(texts):
    return [int(text.split()[1]) for text in texts]


@pytest.mark.parametrize("images", [0, 20])
def test_iteration_gives_every_caption_once(tmp_path, kind, images):
    table, texts = make_table(kind, tmp_path, images), make_gaussians(TEXTS, seed=1)
    assert len(table) == TEXTS
    seen = []
    for (positions, z), (same, traces) in zip(table.iter_gaussians(), table.iter_mean_traces(), strict=True):
        assert positions.dtype == torch.int64
        assert torch.equal(positions, same)
        found = table.take(positions)
        indices = parse_indices(found.texts)
        seen += indices
        for one in (z, found.to_gaussian()):
            assert torch.equal(one.mean, texts.mean[indices])
            assert torch.equal(one.log_var, texts.log_var[indices])
        for one in (traces, found.z):
            assert torch.equal(one.mean, texts.mean[indices])
            assert torch.equal(one.uncertainty, texts.uncertainty[indices])
    assert sorted(seen) == list(range(TEXTS))


def test_take_any_positions_in_any_order(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("prolip.retrieval.traversal.captions.ROWS_PER_QUERY", 5)
    table = make_table(kind, tmp_path)
    positions = torch.cat([positions for positions, _ in table.iter_mean_traces()])
    all_texts = table.take(positions).texts
    chosen = [30, 2, 2, 17, 0, 36, 30]
    assert table.take(positions[chosen]).texts == tuple(all_texts[index] for index in chosen)


def test_take_from_a_database_with_rows_in_any_order(tmp_path, monkeypatch):
    table, real = make_table("database", tmp_path), Database.iter_batches
    positions = torch.cat([positions for positions, _ in table.iter_mean_traces()])
    wanted = table.take(positions).texts

    def reversed_batches(*arguments):
        return (batch.take(list(range(len(batch)))[::-1]) for batch in real(*arguments))

    monkeypatch.setattr(Database, "iter_batches", reversed_batches)
    assert table.take(positions).texts == wanted


def test_table_name_and_header(tmp_path, kind):
    table = make_table(kind, tmp_path)
    assert table.header.dim == 12
    assert table.name == str(tmp_path / ("e" if kind == "folder" else "db"))


def test_table_of_traces_rejects_gaussians(tmp_path, kind):
    table = make_table(kind, tmp_path, variances="trace")
    ((positions, _), *_) = table.iter_mean_traces()
    assert table.take(positions[:2]).log_var is None
    with pytest.raises(ValueError, match="only the trace"):
        table.take(positions[:2]).to_gaussian()
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        next(table.iter_gaussians())


def test_where_is_none_if_all_rows_are_texts(tmp_path):
    assert make_table("database", tmp_path / "both").where == "modality = 'text'"
    assert make_table("database", tmp_path / "texts", images=0).where is None


def test_take_rejects_missing_captions(tmp_path):
    table = make_table("database", tmp_path)
    with pytest.raises(ValueError, match="1 of 2"):
        table.take(torch.tensor([1, 10_000]))
