"""The benchmark of the embedding cache: both ways give the same parts, and the command runs."""

import torch

from benchmarks import embedding_cache
from prolip.embeddings.cache import EmbeddingCache


def test_cache_command(run_benchmark):
    result = run_benchmark("cache", "--images", "30", "--repeats", "1")["result"]
    assert (result["images"], result["dim"], result["repeats"]) == (30, 64, 1)
    for method in ("reference", "ours"):
        assert all(result[method][name] > 0 for name in ("write_seconds", "read_seconds", "megabytes"))


def test_both_ways_read_what_was_written(tmp_path):
    parts = embedding_cache._embed_scenes("scenes-tiny", 9)
    cache, header = EmbeddingCache(folder=tmp_path / "ours"), embedding_cache._make_header(64, 9)
    embedding_cache._write_ours(cache, header, parts)
    embedding_cache._write_reference(tmp_path / "reference", parts)
    for found in (
        embedding_cache._read_ours(cache, header, parts),
        embedding_cache._read_reference(tmp_path / "reference", 1),
    ):
        assert torch.equal(found[0].gaussians[0].log_var, parts[0].gaussians[0].log_var)
        assert (found[0].metadata, found[0].indices) == (parts[0].metadata, parts[0].indices)
