"""Records of timed runs: what is kept, and what counts as slower."""

import json
import math

import pytest

from benchmarks import records
from benchmarks.records import RecordConfig, TimingRecord, collected_runs, find_changes, measure
from benchmarks.timing import time_interleaved

TIMES = {"reference": [1.0, 2.0, 1.0], "ours": [2.0, 2.0, 4.0]}


def make_record(low, ratio, high, name="ours"):
    return TimingRecord(group="", name=name, runs=5, seconds=ratio, ratio=ratio, low=low, high=high)


def run(times=TIMES, repeats=3, scale=1.0):
    records.record_runs("a group", times)
    return {"seconds": times}


def read(path):
    return json.loads(path.read_text())["runs"]


def test_records_hold_ratios_within_rounds():
    with collected_runs() as make_records:
        run()
    reference, ours = make_records()
    assert (reference.label, reference.seconds, reference.ratio) == ("a group: reference", 1.0, 1.0)
    assert (ours.seconds, ours.ratio, ours.runs) == (2.0, 2.0, 3)
    assert ours.low == pytest.approx(1.2), "of the ratios 1, 2, 4"
    assert ours.high == pytest.approx(3.6)


def test_records_join_runs_of_the_same_name():
    with collected_runs() as make_records:
        run({"l2": [1.0], "csd": [3.0]})
        run({"l2": [10.0], "csd": [10.0]})
    assert [(one.name, one.runs, one.ratio) for one in make_records()] == [("l2", 2, 1.0), ("csd", 2, 2.0)]


def test_record_of_a_single_implementation_holds_its_seconds():
    with collected_runs() as make_records:
        run({"index": [3.0, 5.0]})
    assert make_records()[0].ratio == 4.0


def test_time_interleaved_records_its_runs():
    with collected_runs() as make_records:
        time_interleaved({"a": lambda: None, "b": lambda: None}, 4, group="nothing")
    assert [(one.label, one.runs) for one in make_records()] == [("nothing: a", 4), ("nothing: b", 4)]
    time_interleaved({"a": lambda: None}, 1)  # nothing is collected outside of the block
    assert len(make_records()) == 2


def test_find_changes_needs_noise_that_does_not_overlap():
    before = [make_record(1.0, 1.1, 1.2), make_record(1.0, 1.1, 1.2, "b"), make_record(1.0, 1.1, 1.2, "c")]
    now = [make_record(1.19, 1.5, 1.6), make_record(1.21, 1.3, 1.6, "b"), make_record(0.8, 0.9, 0.99, "c")]
    changes = find_changes(before, [*now, make_record(9.0, 9.0, 9.0, "new")])
    assert [change.now.name for change in changes] == ["b", "c"]
    assert changes[0].factor == pytest.approx(1.3 / 1.1)


def test_measure_writes_records_and_compares_runs_of_the_same_options(tmp_path, capsys):
    path = tmp_path / "records.json"
    measure("search", RecordConfig(json=path), run, print, scale=1.0, repeats=3)
    measure("search", RecordConfig(json=path), run, print, scale=0.5, repeats=3)
    assert list(read(path)) == ["search scale=1.0", "search scale=0.5"]
    content = read(path)["search scale=1.0"]
    assert content["result"] == {"seconds": TIMES}
    assert content["environment"]["packages"]["torch"]
    assert [record["name"] for record in content["records"]] == list(TIMES)
    capsys.readouterr()

    slower = {**TIMES, "ours": [20.0, 40.0, 20.0]}
    measure("search", RecordConfig(against=path), run, print, scale=1.0, repeats=9, times=slower)
    out = capsys.readouterr().out
    assert "has no run of" in out, "times is an option, too"
    assert "It has: 'search scale=1.0', 'search scale=0.5'" in out
    measure("search", RecordConfig(against=path), lambda **_: run(slower), print, scale=1.0, repeats=9)
    out = capsys.readouterr().out
    assert "2 of 2 records compared, 1 changed" in out
    (line,) = (line for line in out.splitlines() if "a group: ours" in line)
    assert "10.00" in line, "20 instead of 2 times the reference"
    measure("search", RecordConfig(against=path), run, lambda _: None, scale=1.0, repeats=3)
    assert capsys.readouterr().out == "Against the earlier run: 2 of 2 records compared, 0 changed.\n"


def test_measure_replaces_the_run_of_the_same_options(tmp_path):
    path = tmp_path / "records.json"
    for times in (TIMES, {**TIMES, "ours": [9.0, 9.0, 9.0]}):
        measure("search", RecordConfig(json=path), lambda times=times: run(times), print)
    (content,) = read(path).values()
    assert content["records"][1]["seconds"] == 9.0


def test_measure_refuses_files_before_it_measures(tmp_path):
    def fail(**_):
        raise AssertionError("it must not be measured")

    missing, other = tmp_path / "none.json", tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        measure("search", RecordConfig(against=missing), fail, print)
    for config in (RecordConfig(against=other), RecordConfig(json=other)):
        with pytest.raises(ValueError, match=r"other\.json"):
            measure("search", config, fail, print)


def test_results_with_dataclasses_and_numbers_as_keys_become_json(tmp_path):
    path = tmp_path / "records.json"
    measure("x", RecordConfig(json=path), lambda: {1: make_record(1.0, 1.0, math.inf)}, print)
    assert read(path)["x"]["result"]["1"]["name"] == "ours"
