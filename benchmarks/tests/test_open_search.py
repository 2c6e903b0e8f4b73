"""The benchmark of search in an open database: what it compares and reports."""

from benchmarks import open_search


def test_run_and_print_result(capsys, monkeypatch):
    result = open_search.run(scale=0.001, repeats=1)
    assert (result.rows, result.dimensions) == (1000, 512)
    assert result.ratios[open_search.PRODUCT] == 1
    assert set(result.ratios) == set(result.seconds)
    assert min(result.seconds.values()) > 0
    open_search.print_result(result)
    out = capsys.readouterr().out
    assert all(name in out for name in result.seconds)
