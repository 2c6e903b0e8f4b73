"""All methods must compute the same traversal, or the times mean nothing."""

import pytest
import torch

from benchmarks import traverse as bench
from prolip.retrieval.traversal.captions import EmbeddedCaptions
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.traverse import traverse

pytestmark = pytest.mark.slow


def test_write_captions_round_trip(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "PART_SIZE", 40)
    texts, images, null = bench.draw_gaussians(100, 8, 3)
    scan = ExactSearch(EmbeddedCaptions(bench.write_captions(tmp_path / "e", texts)))
    wanted, found = traverse(images, texts, null), traverse(images, scan, null)
    for indices, expected in ((found.visited, wanted.visited), (found.roots, wanted.roots)):
        assert bench._compute_agreement(scan, indices, expected) == 1
    assert bench._compute_agreement(scan, found.roots, wanted.roots + 1) == 0
    assert len(wanted.visited.unique()) > 5
    assert bool((images.uncertainty.mean() < texts.uncertainty.mean()).all())
    assert torch.equal(bench.draw_gaussians(100, 8, 3)[0].mean, texts.mean)


def test_run_and_print_result(capsys, monkeypatch):
    monkeypatch.setattr(bench, "SIZES", ((100_000, 16),))
    monkeypatch.setattr(bench, "IMAGES", (1, 2))
    monkeypatch.setattr(bench, "ROOT_IMAGES", 4)
    monkeypatch.setattr(bench, "BANDS", ((4, 1), (16, 16)))
    result = bench.run(scale=0.01, repeats=1)
    sizes = [(r["captions"], r["dimensions"], r["images"]) for r in result["traversals"]]
    assert sizes == [(1000, 16, 1), (1000, 16, 2)]
    for r in result["traversals"]:
        assert r["seconds"].keys() == set(bench.METHODS)
        assert 0 <= r["same_steps"] <= 1
    assert [r["captions"] for r in result["roots"]] == ["scenes", "random, D 16"]
    for r in result["roots"]:
        assert len(r["same_roots"]) == len(bench.BANDS)
        assert r["same_roots"][-1] == 1, "a quarter of a thousand captions are candidates"
    bench.print_result(result)
    printed = capsys.readouterr().out
    assert "1,000" in printed
    assert all(method in printed for method in bench.METHODS)
    with pytest.raises(ValueError, match="scale"):
        bench.run(scale=0)
