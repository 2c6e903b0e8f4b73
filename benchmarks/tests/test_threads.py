"""The benchmark of the choice of threads: what it compares and reports."""

import pytest

from benchmarks import threads


@pytest.mark.slow
@pytest.mark.parametrize("work", ["training", "embedding"])
def test_run_and_print_result(capsys, monkeypatch, work):
    monkeypatch.setattr(threads, "STEPS", 1)
    monkeypatch.setattr(threads, "list_thread_counts", lambda: [1, 2])
    results = threads.run(size="nano", work=work, repeats=1)
    assert list(results) == list(threads.CONDITIONS)
    for result in results.values():
        assert result.chosen in result.rates
        assert result.of_best == result.rates[result.chosen] / max(result.rates.values())
        assert result.of_one == result.rates[result.chosen] / result.rates[1]
    threads.print_result(results)
    assert "beside a busy process" in capsys.readouterr().out


def test_run_refuses_a_size_without_a_recipe():
    with pytest.raises(ValueError, match="--size"):
        threads.run(size="huge")
