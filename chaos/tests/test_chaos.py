"""Faults hit where they should; and what was hit goes on to the same result."""

import multiprocessing
import os

import pytest

from chaos.__main__ import main
from chaos.faults import ERRORS, HOWS, Fault, FaultInjector
from chaos.jobs import JOBS
from chaos.run import disturb_job

OPERATIONS = ["open", "write abcdef", "write ghi", "replace", "mkdir", "unlink"]


def act(folder, fault, sender):
    """Do OPERATIONS below a folder, and some elsewhere. Sends how many were counted, or the error's number."""
    os.chdir(folder / "work")
    injector = FaultInjector(folder / "work", fault)
    injector.install()
    try:
        with open("a.tmp", "wb") as file:
            file.write(b"abcdef")
            file.write(b"ghi")
        os.replace("a.tmp", "a")
        os.mkdir("b")
        open(folder / "elsewhere", "w").close()
        os.unlink("a")
    except OSError as error:
        sender.send(("error", error.errno))
    else:
        sender.send(("count", injector.count))


def act_in_fork(folder, fault=None):
    """(exit code, what it sent or None, files below the folder with their contents)"""
    (folder / "work").mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=act, args=(folder, fault, there))
    process.start()
    there.close()
    process.join()
    try:
        sent = here.recv()
    except EOFError:  # it was killed
        sent = None
    files = {path.name: path.read_bytes() if path.is_file() else None for path in (folder / "work").iterdir()}
    return process.exitcode, sent, files


def test_operations_below_the_folder_are_counted(tmp_path):
    assert act_in_fork(tmp_path) == (0, ("count", len(OPERATIONS)), {"b": None})


@pytest.mark.parametrize(
    ("number", "how", "files"),
    [
        (0, "kill before", {}),
        (0, "kill after", {"a.tmp": b""}),
        (1, "kill before", {"a.tmp": b""}),
        (1, "kill within", {"a.tmp": b"abc"}),
        (3, "kill before", {"a.tmp": b"abcdefghi"}),
        (3, "kill after", {"a": b"abcdefghi"}),
        (4, "kill after", {"a": b"abcdefghi", "b": None}),
        (5, "kill before", {"a": b"abcdefghi", "b": None}),
    ],
)
def test_kills_hit_before_within_and_after_an_operation(number, how, files, tmp_path):
    code, sent, found = act_in_fork(tmp_path, Fault(number, how))
    assert (code, sent) == (-9, None)
    assert found == files


@pytest.mark.parametrize("how", ERRORS)
def test_errors_are_raised_and_files_can_still_be_removed(how, tmp_path):
    code, sent, files = act_in_fork(tmp_path / "a", Fault(3, how))
    assert (code, sent) == (0, ("error", ERRORS[how]))
    assert files == {"a.tmp": b"abcdefghi"}
    code, sent, files = act_in_fork(tmp_path / "b", Fault(5, how))
    assert sent == ("count", 5)  # a removal isn't hit
    assert files == {"b": None}


def test_text_files_are_hit_too(tmp_path):
    injector = FaultInjector(tmp_path)
    with injector._open_file(tmp_path / "a.txt", "w", encoding="utf-8") as file:
        file.write("grün")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "grün"
    assert injector.count == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_jobs_go_on_to_the_same_result(name, tmp_path):
    record = disturb_job(name, len(HOWS), 0, tmp_path)
    assert record.problems == []
    assert record.tried == len(HOWS)
    assert record.killed + record.failed + record.unharmed == record.tried
    assert record.killed > 0


def test_unknown_jobs_are_named():
    with pytest.raises(SystemExit, match="unknown jobs: sleep"):
        main(("sleep",))
