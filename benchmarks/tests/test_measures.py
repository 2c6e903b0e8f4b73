"""The references of the benchmark must compute the same thing, or the ratio means nothing."""

import pytest
import torch

from benchmarks import measures, timing
from prolip.losses.contrastive import LogitScaleBias, ppcl
from prolip.measures import public
from prolip.mixture import fit_mixing_weights

pytestmark = pytest.mark.slow


def test_each_reference_gives_our_numbers(generator):
    a = measures.random_gaussians(5, 12, generator=generator)
    b = measures.random_gaussians(5, 12, generator=generator)
    temperature = LogitScaleBias()
    for reference in (measures.broadcast_ppcl, measures.product_ppcl):
        torch.testing.assert_close(reference(a, b, temperature), ppcl(a, b, temperature))
    torch.testing.assert_close(
        measures.broadcast_inclusion(a, b), public.inclusion_matrix(a, b), rtol=1e-4, atol=1e-3
    )
    torch.testing.assert_close(
        measures.broadcast_log_inclusion(a, b), public.log_inclusion_matrix(a, b), rtol=1e-4, atol=1e-3
    )
    torch.testing.assert_close(
        measures.blockwise_log_containment(a, b).float(),
        public.log_containment_matrix(a, b),
        rtol=1e-5,
        atol=1e-5,
    )
    points = torch.randn(2, 6, 12, generator=generator)
    z = measures.random_gaussians(2, 4, 12, generator=generator, log_var=-1.0)
    found = fit_mixing_weights(points, z, alpha=2.0, tolerance=0.0, max_iterations=9)
    wanted = measures.class_by_class_em(points, z, 2.0, 9)
    torch.testing.assert_close(found.weights.float(), wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def results():
    return measures.run(scale=0.002, repeats=1)


def test_run_gives_every_row(results, capsys):
    pairs = ["inclusion_matrix", "log_inclusion_matrix", "log_containment_matrix"]
    names = [*["PPCL, forward and backward"] * 2, *pairs, "EM for mixing weights"]
    assert [row["name"] for row in results] == names
    for row in results:
        assert row["times_faster"] == pytest.approx(row["reference_seconds"] / row["ours_seconds"])
    measures.print_result(results)
    assert "inclusion_matrix" in capsys.readouterr().out


def test_print_result_without_memory(results, capsys):
    """As on macOS, where memory can't be read."""
    memory = ("reference_mebibytes", "ours_mebibytes", "times_smaller")
    measures.print_result([{k: None if k in memory else v for k, v in row.items()} for row in results])
    assert "MiB" not in capsys.readouterr().out


def test_compare_implementations_without_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(timing, "CLEAR", tmp_path / "nowhere" / "clear_refs")
    result = timing.compare_implementations(lambda: None, lambda: None, repeats=1)
    assert result["ours_mebibytes"] is None
    assert "times_smaller" not in result


def test_measure_peak_memory_sees_freed_memory():
    def work():
        torch.ones(32 * 2**18)  # 32 MiB

    result = timing.compare_implementations(work, lambda: None, repeats=2)
    if result["ours_mebibytes"] is not None:
        assert result["reference_mebibytes"] > 25 > result["ours_mebibytes"]
