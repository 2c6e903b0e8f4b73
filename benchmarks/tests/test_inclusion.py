"""The benchmark of inclusion: all implementations give the same H, by the kernels that their names say."""

import pytest
import torch

from benchmarks import inclusion
from prolip.measures import inclusion_kernel

pytestmark = pytest.mark.slow


def test_all_give_the_same(monkeypatch):
    used = []
    for name in ("_sum_by_dimension", "_sum_by_pair"):
        kernel = getattr(inclusion_kernel, name)
        monkeypatch.setattr(
            inclusion_kernel,
            name,
            lambda *args, name=name, kernel=kernel: (used.append(name), kernel(*args))[1],
        )
    monkeypatch.setattr(torch, "compile", lambda function, fullgraph: function)
    works = inclusion.make_works(130, 130, 8)
    results = {name: work() for name, work in works.items()}
    assert used == ["_sum_by_dimension", "_sum_by_pair"]
    for h in results.values():
        torch.testing.assert_close(h, results[inclusion.COMPILED], rtol=1e-4, atol=1e-3)


def test_inclusion_command(run_benchmark, capsys, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, fullgraph: function)
    result = run_benchmark("inclusion", "--rows", "8", "--columns", "9", "--dimensions", "64")["result"]
    assert result["times_faster"][inclusion.COMPILED] == 1
    assert min(result["nanoseconds"].values()) > 0
    assert set(result["passes"]) == set(inclusion.PASSES)
    assert sum(inclusion.PASSES.values()) == 7
    assert "ns per triple" in capsys.readouterr().out
