"""The table for embedding-atlas: a plane of principal components, and everything that is shown of an item."""

import numpy as np
import pytest

from prolip import cli
from prolip.embeddings import EmbeddingDataset, read_gaussians
from prolip.gaussian import Gaussian
from prolip.integrations import write_atlas

parquet = pytest.importorskip("pyarrow.parquet")
decomposition = pytest.importorskip("sklearn.decomposition")


def read_means(embeddings, modality):
    parts = EmbeddingDataset.open(embeddings).iter_parts(modality, ["mean", "log_var"])
    return Gaussian.cat([read_gaussians(rows) for _, rows in parts]).mean.double().numpy()


def test_atlas_positions_are_principal_components_of_scaled_means(embeddings, tmp_path):
    """scikit-learn computes them from the rows; rows of a modality are repeated so that both weigh the same."""
    table = parquet.read_table(write_atlas(embeddings, tmp_path / "atlas.parquet"))
    scaled = {}
    for modality in ("image", "text"):
        means = read_means(embeddings, modality)
        centered = means - means.mean(0)
        scaled[modality] = centered / np.sqrt((centered**2).sum(1).mean())
    captions = len(scaled["text"]) // len(scaled["image"])
    assert len(scaled["text"]) == captions * len(scaled["image"])
    pca = decomposition.PCA(2, svd_solver="full")
    pca.fit(np.concatenate([np.repeat(scaled["image"], captions, 0), scaled["text"]]))
    for modality in ("image", "text"):
        rows = table.to_pandas().query("modality == @modality")
        positions = rows[["projection_x", "projection_y"]].to_numpy()
        expected = pca.transform(scaled[modality])
        np.testing.assert_allclose(np.abs(positions), np.abs(expected), atol=1e-5)  # signs are arbitrary


def test_atlas_has_a_row_for_every_embedding(embeddings, tmp_path):
    cli.main(["export", str(embeddings), "--to", "atlas", "--out", str(tmp_path / "a.parquet")])
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == [
        "id", "index", "modality", "caption", "path", "url", "uncertainty", "projection_x", "projection_y",
    ]  # fmt: skip
    rows = {}
    for _, part in EmbeddingDataset.open(embeddings).iter_parts():
        for row in part.select(["id", "modality", "caption", "uncertainty"]).to_pylist():
            rows[row["id"], row["modality"], row["caption"]] = row["uncertainty"]
    found = {(r["id"], r["modality"], r["caption"]): r["uncertainty"] for r in table.to_pylist()}
    assert found == rows


def test_atlas_of_one_modality(tmp_path):
    import prolip

    (tmp_path / "captions.txt").write_text("a red circle\na blue star\n\na thing\n")
    folder = str(tmp_path / "texts")
    prolip.embed("scenes-tiny", str(tmp_path / "captions.txt"), folder, modality="text")
    table = parquet.read_table(write_atlas(folder, tmp_path / "atlas.parquet"))
    assert set(table["modality"].to_pylist()) == {"text"}
    assert np.isfinite(table["projection_x"].to_numpy()).all()


def test_embedding_atlas_opens_the_file(embeddings, tmp_path):
    """With the program itself, where it is installed."""
    pytest.importorskip("embedding_atlas", reason="embedding-atlas is not installed")
    import subprocess
    import sys

    path = write_atlas(embeddings, tmp_path / "atlas.parquet")
    columns = ["--x", "projection_x", "--y", "projection_y", "--text", "caption"]
    out = tmp_path / "app.zip"
    words = [
        sys.executable,
        "-m",
        "embedding_atlas.cli",
        str(path),
        *columns,
        "--export-application",
        str(out),
    ]
    subprocess.run(words, check=True, timeout=300)
    assert out.stat().st_size > 100_000
