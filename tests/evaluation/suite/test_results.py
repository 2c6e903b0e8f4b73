"""The file of results under several writers, and after a kill."""

import json
import math
import multiprocessing
from dataclasses import asdict

import pytest

from prolip.evaluation.suite.results import append_result, find_result, read_results
from tests.evaluation.suite.made_results import make_task_result

WRITERS, LINES = 3, 40


def line(key="mnist", data="d", version=1, **others):
    return make_task_result(key, 0.5, n=3, model="m", data=data, version=version, **others)


def write_many(path, writer, start):
    start.wait()
    for number in range(LINES):
        append_result(path, line(f"{writer} {number}", bad_examples=("x" * (1 + 997 * number % 5000),)))


def test_concurrent_writers_lose_no_line(tmp_path):
    path = tmp_path / "out" / "results.jsonl"
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(WRITERS)
    writers = [context.Process(target=write_many, args=(path, writer, start)) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = {one.key: one for one in read_results(path)}
    assert found.keys() == {f"{writer} {number}" for writer in range(WRITERS) for number in range(LINES)}
    assert all(set(one.bad_examples[0]) == {"x"} for one in found.values())


def test_line_written_in_between_is_preserved(tmp_path, monkeypatch):
    """Another run writes between this one's look at the file and its write."""
    path = tmp_path / "results.jsonl"
    dumps = json.dumps

    def meanwhile(content, **options):
        monkeypatch.undo()
        append_result(path, line("other"))
        return dumps(content, **options)

    append_result(path, line("first"))
    monkeypatch.setattr("prolip.evaluation.suite.results.json.dumps", meanwhile)
    append_result(path, line("mine"))
    assert [one.key for one in read_results(path)] == ["first", "other", "mine"]


def test_append_result_starts_a_new_line_after_an_incomplete_one(tmp_path):
    path = tmp_path / "results.jsonl"
    append_result(path, line("first"))
    append_result(path, line("torn"))
    whole = path.read_bytes()
    for cut in range(1, 60, 7):
        path.write_bytes(whole[:-cut])
        append_result(path, line("third"))
        # without its newline alone a line is whole
        assert [one.key for one in read_results(path)] == ["first", *["torn"] * (cut == 1), "third"]


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00\x00\x00", b"\xff\xfe", b"[" * 100_000, b"3", b"null", b'{"key": "mnist"}']
    + [
        json.dumps(asdict(line()) | change).encode()
        for change in (
            {"metrics": None},
            {"metrics": {}},
            {"metrics": {"main_metric": math.nan, "values": {}}},
            {"metrics": {"main_metric": "high", "values": {}}},
            {"other": 1},
        )
    ],
)  # fmt: skip
def test_garbage_is_dropped(tmp_path, garbage):
    path = tmp_path / "results.jsonl"
    append_result(path, line("first"))
    path.write_bytes(path.read_bytes() + garbage + b"\n")
    append_result(path, line("second"))
    assert [one.key for one in read_results(path)] == ["first", "second"]


def test_read_results_returns_the_latest_of_each_subject(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    for one in (line(data="old"), line("stl10"), line(rank_by="cosine"), line(data="new")):
        append_result(path, one)
    found = read_results(path)
    assert [(one.key, one.rank_by, one.data) for one in found] == [
        ("stl10", "csd", "d"),
        ("mnist", "cosine", "d"),
        ("mnist", "csd", "new"),
    ]
    assert find_result(found, line(data="new")) == found[2]
    assert find_result(found, line(data="old")) is None
    assert find_result(found, line("stl10", version=2)) is None


def test_append_result_reports_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.evaluation.suite.results.os.write", lambda _, text: len(text) - 1)
    with pytest.raises(OSError, match="disk full"):
        append_result(tmp_path / "results.jsonl", line())
