"""The benchmark of search: what it compares and reports."""

import math

import numpy as np
import pytest

from benchmarks import search


def test_run_and_print_result(capsys, monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 3)
    monkeypatch.setattr(search, "DIM", 120)
    result = search.run(scale=0.001, repeats=1)
    assert (result["rows"], result["dimensions"], result["queries"]) == (1000, 120, 3)
    assert list(result["searches"]) == ["exact", "ivf-rq", "ivf-sq"]
    assert result["searches"]["exact"]["recall"] == 1
    for row in result["searches"].values():
        assert min(row["l2_seconds"], row["csd_seconds"], row["ratio"]) > 0
        assert 0 <= row["recall"] <= 1
    assert 0 < result["searches"]["ivf-rq"]["bytes_per_item"] < result["searches"]["ivf-sq"]["bytes_per_item"]
    search.print_result(result)
    out = capsys.readouterr().out
    assert "1,000 items, 120 dimensions" in out
    for name, row in result["searches"].items():
        (line,) = (line for line in out.splitlines() if f" {name} " in line)
        assert f"{row['ratio']:.2f}" in line
        assert f"{1000 * row['csd_seconds']:.1f} ms" in line


def test_compare_queries_takes_median_of_ratios(monkeypatch):
    """The ratio is the median of the queries' own ratios."""
    seconds = iter([{"l2": [1.0], "csd": [2.0]}, {"l2": [4.0], "csd": [2.0]}, {"l2": [1.0], "csd": [1.1]}])
    asked = []

    def time_interleaved(workloads, repeats, group):
        asked.append({name: work.args[1] for name, work in workloads.items()})
        return next(seconds)

    monkeypatch.setattr(search, "time_interleaved", time_interleaved)
    monkeypatch.setattr(search, "_compute_recall", lambda *a: 0.9)
    mean = np.eye(3, dtype=np.float32)
    row = search._compare_queries(None, mean, np.ones(3), mean, None, 1, "exact")
    assert row == {"l2_seconds": 1.0, "csd_seconds": 2.0, "ratio": 1.1, "recall": 0.9}
    assert asked == [{"l2": "mean", "csd": "vector"}] * 3


def test_draw_clusters_has_near_neighbors():
    mean, trace, queries = search.draw_clusters(2000)
    assert (mean.shape, trace.shape, queries.shape) == ((2000, 512), (2000,), (search.QUERIES, 512))
    np.testing.assert_allclose(np.linalg.norm(mean, axis=1), 1, rtol=1e-5)
    assert trace.min() > 0
    nearest = (queries @ mean.T).max(1)
    assert np.median(nearest) > 0.4, "neighbors of one's own cluster; those of others are near 0"


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"scale": 11.0}, {"scale": math.nan}, {"repeats": 0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        search.run(**options)
