"""Tests of the count of searches that sound sure and are wrong, on a few scenes."""

from benchmarks import doubts as bench


def test_run_counts_doubts_and_prints(capsys):
    result = bench.run(num_images=60, num_scenes=8)
    rows = {row["queries"]: row for row in result["rows"]}
    assert [*rows] == ["true of an image", "true of no image", "about other things"]
    assert rows["about other things"]["count"] == len(bench.FOREIGN)
    assert rows["about other things"]["unknown words"] == 1
    assert rows["true of an image"]["unknown words"] == rows["true of an image"]["low match"] == 0
    assert all(row["sounds sure"] <= row["sounds sure, before"] for row in rows.values())
    bench.print_result(result)
    assert "about other things" in capsys.readouterr().out
