import errno
import os
import subprocess
import sys

import pytest

from prolip.files import remove_leftovers, write_whole


def test_it_makes_folders_and_leaves_nothing_else(tmp_path):
    path = write_whole(tmp_path / "a" / "b.txt", lambda aside: aside.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def half(aside):
        aside.write_text("ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / "deep").mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / "deep" / f".a.tar.{dead.pid}.140"
    kept = [tmp_path / ".hidden", tmp_path / f".b.tar.{os.getpid()}.140", tmp_path / f"c.tar.{dead.pid}.140"]
    for path in (left, *kept):
        path.write_text("")
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in kept)


def test_a_full_disk_names_the_file(tmp_path):
    def full(aside):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        write_whole(tmp_path / "a.json", full)
