"""Vectors for databases: their Euclidean order, found by FAISS, is the exact order of CSD."""

import numpy as np
import pytest
import torch

from prolip import cli
from prolip.embeddings import EmbeddingDataset, read_gaussians
from prolip.gaussian import Gaussian
from prolip.integrations import make_item_vectors, make_query_vectors, write_vectors
from prolip.measures.public import csd_matrix

parquet = pytest.importorskip("pyarrow.parquet")


def test_faiss_finds_the_order_of_csd(draw):
    faiss = pytest.importorskip("faiss")
    items, queries = draw(500, 24, low=-8, high=-1), draw(20, 24)
    index = faiss.IndexFlatL2(25)
    index.add(make_item_vectors(items))
    distances, order = index.search(make_query_vectors(queries), 50)
    exact = csd_matrix(queries, items)
    expected = exact.argsort(1)[:, :50]
    assert (torch.from_numpy(order) == expected).float().mean() > 0.999  # but for ties within float32
    torch.testing.assert_close(
        torch.from_numpy(distances).double() + queries.uncertainty[:, None],
        exact.gather(1, torch.from_numpy(order)), rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    cosine_order = (queries.mean @ items.mean.mT).argsort(1, descending=True)[:, :50]
    assert (torch.from_numpy(order) == cosine_order).float().mean() < 0.5  # the traces matter


def test_inner_product_of_vectors_is_the_cosine_of_means(draw):
    items, queries = draw(7, 5), draw(3, 5)
    product = make_query_vectors(queries) @ make_item_vectors(items).T
    np.testing.assert_allclose(product, (queries.mean @ items.mean.mT).numpy(), atol=1e-6)


def test_vectors_of_points_end_with_zero():
    points = Gaussian.point(torch.eye(3))
    np.testing.assert_array_equal(make_item_vectors(points), np.eye(3, 4))
    np.testing.assert_array_equal(make_query_vectors(points), np.eye(3, 4))


def test_export_writes_vectors_of_all_embeddings(embeddings, tmp_path, capsys):
    cli.main(["export", str(embeddings), "--to", "vectors", "--out", str(tmp_path / "new" / "v.parquet")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "new" / "v.parquet")
    table = parquet.read_table(tmp_path / "new" / "v.parquet")
    dataset = EmbeddingDataset.open(embeddings)
    parts = [rows for _, rows in dataset.iter_parts()]
    expected = np.concatenate([make_item_vectors(read_gaussians(rows)) for rows in parts])
    vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    for name in ("id", "modality", "caption"):
        assert table[name].to_pylist() == [value for rows in parts for value in rows[name].to_pylist()]


def test_write_vectors_refuses_bad_input(embeddings, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"table\.parquet"):
        write_vectors(embeddings, tmp_path)
    with pytest.raises(ValueError, match="s3://"):
        write_vectors(embeddings, "s3://bucket/v.parquet")
    with pytest.raises(SystemExit):
        cli.main(["export", str(tmp_path), "--to", "vectors", "--out", str(tmp_path / "v.parquet")])
    assert "holds no embeddings" in capsys.readouterr().err
