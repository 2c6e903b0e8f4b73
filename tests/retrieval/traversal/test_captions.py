"""Captions on disk: what was write_embeddings comes back, in blocks and by place, from a folder and from a database."""

import pytest
import torch

from prolip.retrieval.index.append import index_embeddings
from prolip.retrieval.index.database import Database
from prolip.retrieval.traversal.captions import DatabaseCaptions, EmbeddedCaptions
from tests.retrieval.embedding_files import make_gaussians, write_embeddings

TEXTS = 37


def table_of(kind, folder, images=20, **options):
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


def numbers_of(texts):
    return [int(text.split()[1]) for text in texts]


@pytest.mark.parametrize("images", [0, 20])
def test_every_caption_comes_once_with_its_gaussian(tmp_path, kind, images):
    table, texts = table_of(kind, tmp_path, images), make_gaussians(TEXTS, seed=1)
    assert len(table) == TEXTS
    seen = []
    for (places, z), (same, traces) in zip(table.iter_gaussians(), table.iter_mean_traces(), strict=True):
        assert places.dtype == torch.int64
        assert torch.equal(places, same)
        found = table.take(places)
        numbers = numbers_of(found.texts)
        seen += numbers
        for one in (z, found.gaussian()):
            assert torch.equal(one.mean, texts.mean[numbers])
            assert torch.equal(one.log_var, texts.log_var[numbers])
        for one in (traces, found.z):
            assert torch.equal(one.mean, texts.mean[numbers])
            assert torch.equal(one.uncertainty, texts.uncertainty[numbers])
    assert sorted(seen) == list(range(TEXTS))


def test_any_places_in_any_order(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("prolip.retrieval.traversal.captions.ROWS_PER_QUERY", 5)
    table = table_of(kind, tmp_path)
    places = torch.cat([places for places, _ in table.iter_mean_traces()])
    all_texts = table.take(places).texts
    chosen = [30, 2, 2, 17, 0, 36, 30]
    assert table.take(places[chosen]).texts == tuple(all_texts[number] for number in chosen)


def test_a_database_may_give_rows_in_any_order(tmp_path, monkeypatch):
    table, real = table_of("database", tmp_path), Database.iter_batches
    places = torch.cat([places for places, _ in table.iter_mean_traces()])
    wanted = table.take(places).texts

    def backwards(*asked):
        return (batch.take(list(range(len(batch)))[::-1]) for batch in real(*asked))

    monkeypatch.setattr(Database, "iter_batches", backwards)
    assert table.take(places).texts == wanted


def test_what_is_said_of_the_table(tmp_path, kind):
    table = table_of(kind, tmp_path)
    assert table.header.dim == 12
    assert table.name == str(tmp_path / ("e" if kind == "folder" else "db"))


def test_where_only_traces_are_known(tmp_path, kind):
    table = table_of(kind, tmp_path, variances="trace")
    ((places, _), *_) = table.iter_mean_traces()
    assert table.take(places[:2]).log_var is None
    with pytest.raises(ValueError, match="only the trace"):
        table.take(places[:2]).gaussian()
    with pytest.raises(ValueError, match="inclusion needs every variance"):
        next(table.iter_gaussians())


def test_a_condition_only_where_there_are_images(tmp_path):
    assert table_of("database", tmp_path / "both").where == "modality = 'text'"
    assert table_of("database", tmp_path / "texts", images=0).where is None


def test_captions_that_are_gone(tmp_path):
    table = table_of("database", tmp_path)
    with pytest.raises(ValueError, match="1 of 2"):
        table.take(torch.tensor([1, 10_000]))
