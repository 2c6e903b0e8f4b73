"""Errors of the operating system end in sentences, not in their numbers."""

import errno
import os
import subprocess
import sys

import pytest
from safetensors import SafetensorError

from prolip.cli import main, reported_errors
from prolip.cli.os_errors import SENTENCES, describe_error
from prolip.files import atomic_write
from prolip.model import folder


def report(capsys, error):
    """What the command line prints for an error."""
    with pytest.raises(SystemExit) as ended, reported_errors("prolip"):
        raise error
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("code", SENTENCES)
def test_errors_of_the_system_name_the_file_and_what_to_do(capsys, code):
    printed = report(capsys, OSError(code, os.strerror(code), "some/file"))
    assert printed.startswith("prolip: some/file: ")
    assert "Errno" not in printed
    assert printed.count(". ") >= 1, "a sentence on what to do follows"


def test_a_full_disk(capsys):
    with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "w", buffering=1) as file:
        file.write("x\n")
    assert "no space is left on its disk. Free some" in report(capsys, caught.value)


def test_other_errors_lose_their_numbers(capsys):
    assert report(capsys, OSError(errno.ECONNRESET, "reset", "x")) == "prolip: reset: 'x'\n"
    assert (
        report(capsys, ValueError("no model ([Errno -2] unknown host)"))
        == "prolip: no model (unknown host)\n"
    )
    assert describe_error(OSError("as it is")) == "as it is"


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file", "file: it is a file, but a folder is needed"),
        ("file/deep", "file/deep: a part of this path is a file"),
    ],
)
@pytest.mark.parametrize("command", ["index", "embed"])
def test_a_file_in_place_of_the_output_folder(tmp_path, monkeypatch, capsys, command, out, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    words = ["embed", "scenes:simple,size=48,length=2", "--model", "scenes-tiny", "--out"]
    if command == "index":
        main([*words, "e"])
        words = ["index", "e", "--out"]
    with pytest.raises(SystemExit):
        main([*words, out])
    assert message in capsys.readouterr().err


def test_full_disk_while_weights_are_written_names_the_file(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(folder, "save_file", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic_write(tmp_path / "model.safetensors", lambda path: folder.write_safetensors({}, path))
    assert caught.value.errno == errno.ENOSPC
    assert describe_error(caught.value).startswith(f"{tmp_path / 'model.safetensors'}: no space is left")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(PermissionError) as caught:
        atomic_write(tmp_path / "locked" / "a", lambda path: path.write_text(""))
    assert describe_error(caught.value).startswith(f"{tmp_path / 'locked' / 'a'}: permission denied")


def test_a_name_that_is_not_utf8_says_what_to_set(capsys):
    with pytest.raises(UnicodeEncodeError) as caught:
        ("x" * 1000 + "runs/\udcc3\udcbc" + "y" * 1000).encode()
    printed = report(capsys, caught.value)
    assert "runs/" in printed
    assert len(printed) < 300, "a whole file may have been encoded"
    assert "PYTHONUTF8=1" in printed


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 8 GiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 100663296 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.\nMore lines"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_a_lack_of_memory_is_a_sentence(capsys, error):
    printed = report(capsys, error)
    assert printed.startswith("prolip: there is not enough memory")
    assert printed.count("\n") == 1
    assert str(error).partition("\n")[0] in printed


def test_a_lack_of_memory_is_found_behind_another_error(capsys):
    error = RuntimeError("the worker failed")
    error.__cause__ = MemoryError()
    assert "not enough memory" in report(capsys, error)


def test_other_runtime_errors_are_raised():
    with pytest.raises(RuntimeError, match="a bug"), reported_errors("prolip"):
        raise RuntimeError("a bug")


LIMITED = """
import resource, sys
import prolip.training.trainer, torch._dynamo  # libraries are loaded before the limit: theirs may abort
from prolip.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux, to know its own memory")
def test_a_limit_of_memory_ends_training_with_a_sentence(tmp_path):
    training = "train nano --batch-size 8192 --samples 8192 --data.workers 0 --log.display none --out run"
    command = [sys.executable, "-c", LIMITED, *training.split()]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    assert result.stderr.splitlines()[-1].startswith("prolip: there is not enough memory")
    assert "Traceback" not in result.stderr
