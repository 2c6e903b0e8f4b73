"""Tests of the comparison of roots, on a few scenes."""

from benchmarks import traverse_anchors as bench


def test_run_scores_every_root_and_prints(capsys):
    result = bench.run(num_scenes=12)
    assert result["images"] == 12
    rows = {(row["root"], row["with_null"], row["steps_by"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"]) == 24
    assert [key for key in rows if key[2] == "match"] == [
        (root, False, "match") for root in bench.RANKED_BY_MATCH
    ]
    assert all(0 <= row["rises"] <= 1 and row["captions"] >= 1 for row in rows.values())
    assert all(row["true and general"] <= row["true"] <= 1 for row in rows.values())
    bench.print_result(result)
    assert "true" in capsys.readouterr().out
