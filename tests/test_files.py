import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prolip.files import (
    atomic_write,
    atomic_write_folder,
    escape_formula,
    recover_folder,
    remove_temporary_files,
    replace_nonfinite,
    require_empty_folder,
)


def test_atomic_write_creates_folders_and_no_other_files(tmp_path):
    path = atomic_write(tmp_path / "a" / "b.txt", lambda aside: aside.write_text("new"))
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_atomic_write_gives_the_permissions_of_a_new_file(tmp_path, mask):
    old_mask = os.umask(mask)
    try:
        (tmp_path / "plain").write_text("x")
        path = atomic_write(tmp_path / "t", lambda aside: save_file({"a": torch.ones(1)}, aside))
    finally:
        os.umask(old_mask)
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_failed_atomic_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def half(aside):
        aside.write_text("ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_remove_temporary_files_removes_those_of_dead_processes_only(tmp_path):
    (tmp_path / "deep").mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / "deep" / f".a.tar.{dead.pid}.140"
    kept = [tmp_path / ".hidden", tmp_path / f".b.tar.{os.getpid()}.140", tmp_path / f"c.tar.{dead.pid}.140"]
    for path in (left, *kept):
        path.write_text("")
    remove_temporary_files(tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in kept)


def test_full_disk_error_names_the_file(tmp_path):
    def full(aside):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        atomic_write(tmp_path / "a.json", full)


def fill(text):
    """A writer of a folder with a file and a folder in it."""

    def write(folder):
        (folder / "deep").mkdir(parents=True)
        (folder / "a.txt").write_text(text)
        (folder / "deep" / "b.txt").write_text(text)

    return write


def texts(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


def whole(text):
    return {"a.txt": text, "deep/b.txt": text}


def test_atomic_write_folder_replaces_the_old_folder(tmp_path):
    folder = tmp_path / "model"
    assert atomic_write_folder(folder, fill("old")) == folder
    assert texts(folder) == whole("old")
    (folder / "other.txt").write_text("not in the new one")
    atomic_write_folder(folder, fill("new"))
    assert texts(folder) == whole("new")
    assert list(tmp_path.iterdir()) == [folder]


def test_failed_atomic_write_folder_leaves_the_old_folder(tmp_path):
    folder = atomic_write_folder(tmp_path / "model", fill("old"))

    def half(aside):
        aside.mkdir()
        (aside / "a.txt").write_text("ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomic_write_folder(folder, half)
    assert texts(folder) == whole("old")
    with pytest.raises(OSError, match="disk full"):
        atomic_write_folder(tmp_path / "none yet", half)
    assert list(tmp_path.iterdir()) == [folder], "nothing of either is left"


class Killed(BaseException):
    pass


def killed_at(patch, moment, work):
    """Do the work in a process that dies at a moment: before its k-th change of the disk; from then on it does none.

    Returns whether it came so far.
    """
    count = 0

    def dying(real):
        def change(*args, **options):
            nonlocal count
            count += 1
            if count > moment:
                raise Killed
            return real(*args, **options)

        return change

    with patch.context() as inside:
        inside.setattr(Path, "rename", dying(Path.rename))
        inside.setattr(Path, "mkdir", dying(Path.mkdir))
        inside.setattr(Path, "write_text", dying(Path.write_text))
        inside.setattr(os, "unlink", dying(os.unlink))
        inside.setattr(os, "rmdir", dying(os.rmdir))
        try:
            work()
        except Killed:
            return True
    return False


def test_recover_folder_after_a_kill_at_any_step(tmp_path, monkeypatch):
    outcomes = []
    for moment in range(100):
        folder = atomic_write_folder(tmp_path / str(moment) / "model", fill("old"))
        died = killed_at(monkeypatch, moment, lambda folder=folder: atomic_write_folder(folder, fill("new")))
        recover_folder(folder)
        assert texts(folder) in (whole("old"), whole("new"))
        assert not folder.with_name(".model.old").exists()
        outcomes.append(texts(folder)["a.txt"])
        atomic_write_folder(folder, fill("newer"))  # what was left is no obstacle
        assert texts(folder) == whole("newer")
        assert list(folder.parent.iterdir()) == [folder]
        if not died:
            break
    assert len(outcomes) > 7
    assert outcomes == sorted(outcomes, reverse=True), "old until a moment, new from then on"
    assert outcomes[0] == "old"
    assert outcomes[-1] == "new"


def test_recover_folder_without_an_old_folder(tmp_path):
    recover_folder(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    folder = atomic_write_folder(tmp_path / "model", fill("new"))
    shutil.copytree(folder, tmp_path / ".model.old")
    (folder / "a.txt").write_text("newer")
    recover_folder(folder)
    assert (folder / "a.txt").read_text() == "newer", "the old one does not come back over it"
    assert list(tmp_path.iterdir()) == [folder]


def test_require_empty_folder_rejects_files(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not an empty folder"):
        require_empty_folder(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    require_empty_folder(tmp_path / "folder")
    require_empty_folder(tmp_path / "none")


def test_remove_temporary_files_ignores_invalid_process_ids(tmp_path):
    path = tmp_path / f".a.{10**30}.1"
    path.write_text("")
    remove_temporary_files(tmp_path)
    assert path.exists()


def test_replace_nonfinite():
    assert replace_nonfinite({"a": [float("nan"), (1.0, float("inf"))], "b": "NaN"}) == {
        "a": [None, [1.0, None]],
        "b": "NaN",
    }


def test_text_that_begins_like_a_formula_is_guarded():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "  =1"):
        assert escape_formula(text) == f"'{text}"
    for text in ("", "a=1", "1 - 2", "'x"):
        assert escape_formula(text) == text
