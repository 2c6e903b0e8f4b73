"""The file of results under several writers, and after a kill."""

import json
import multiprocessing

import pytest

from prolip.evaluation.suite.results import append_result, find_result, read_results

WRITERS, LINES = 3, 40


def line(key="mnist", data="d", **others):
    return {
        "key": key, "model": "m", "metric": "csd", "templates": None, "data": data, "version": 1,
        "metrics": {"main_metric": 0.5}, "n": 3, "bad": {"count": 0}, **others,
    }  # fmt: skip


def write_many(path, writer, start):
    start.wait()
    for number in range(LINES):
        append_result(path, line(f"{writer} {number}", padding="x" * (1 + 997 * number % 5000)))


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
    found = {one["key"]: one for one in read_results(path)}
    assert found.keys() == {f"{writer} {number}" for writer in range(WRITERS) for number in range(LINES)}
    assert all(set(one["padding"]) == {"x"} for one in found.values())


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
    assert [one["key"] for one in read_results(path)] == ["first", "other", "mine"]


def test_append_result_starts_a_new_line_after_an_incomplete_one(tmp_path):
    path = tmp_path / "results.jsonl"
    append_result(path, line("first"))
    append_result(path, line("torn"))
    whole = path.read_bytes()
    for cut in range(1, 60, 7):
        path.write_bytes(whole[:-cut])
        append_result(path, line("third"))
        # without its newline alone a line is whole
        assert [one["key"] for one in read_results(path)] == ["first", *["torn"] * (cut == 1), "third"]


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00\x00\x00", b"\xff\xfe", b"[" * 100_000, b"3", b"null", b'{"key": "mnist"}']
    + [json.dumps(line() | change).encode() for change in ({"metrics": None}, {"metrics": {}})],
)  # fmt: skip
def test_garbage_is_dropped(tmp_path, garbage):
    path = tmp_path / "results.jsonl"
    append_result(path, line("first"))
    path.write_bytes(path.read_bytes() + garbage + b"\n")
    append_result(path, line("second"))
    assert [one["key"] for one in read_results(path)] == ["first", "second"]


def test_read_results_returns_the_latest_of_each_subject(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    for one in (line(data="old"), line("stl10"), line(metric="cosine"), line(data="new")):
        append_result(path, one)
    found = read_results(path)
    assert [(one["key"], one["metric"], one["data"]) for one in found] == [
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
