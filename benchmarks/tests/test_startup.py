"""The benchmark of the search command: what it runs and reports."""

import pytest

from benchmarks import startup


@pytest.mark.slow
def test_run_times_every_part_and_the_command(capsys):
    result = startup.run(rows=10, repeats=1)
    assert set(result) == {*startup.IMPORTS, startup.SEARCH}
    assert result[startup.REFERENCE].ratio == result[startup.REFERENCE].cpu_ratio == 1
    for times in result.values():
        assert times.seconds / times.ratio == pytest.approx(result[startup.REFERENCE].seconds)
    startup.print_result(result)
    out = capsys.readouterr().out
    assert f"{result[startup.SEARCH].cpu_ratio:.2f}" in out


def test_run_takes_the_median_of_processes(monkeypatch):
    seconds = {"import torch": iter([2.0, 4.0, 3.0]), "search": iter([9.0, 6.0, 3.0])}

    def time_process(arguments):
        elapsed = next(seconds["search" if "search" in arguments else "import torch"])
        return elapsed, elapsed / 2

    monkeypatch.setattr(startup, "IMPORTS", (startup.REFERENCE,))
    monkeypatch.setattr(startup, "_make_database", lambda folder, rows: "DB")
    monkeypatch.setattr(startup, "_time_process", time_process)
    times = startup.run(rows=10, repeats=3)[startup.SEARCH]
    assert (times.seconds, times.ratio, times.cpu_seconds, times.cpu_ratio) == (6.0, 2.0, 3.0, 2.0)
