"""What is needed to repeat a run, and a git state that never fails. Checkouts are written by hand, object by object."""

import hashlib
import json
import platform
import shutil
import struct
import sys
import zlib
from importlib import metadata
from importlib.metadata import version

import pytest
import torch

import prolip
from prolip.training.environment import GitState, describe_environment, get_git_state

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_checkout_that_is_not_installed_has_versions(monkeypatch):
    """Without the package's metadata, which importlib.metadata reads, as in a checkout on PYTHONPATH."""
    installed = describe_environment()
    distribution = metadata.distribution

    def hide_prolip(name):
        if name == "prolip":
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(metadata, "distribution", hide_prolip)
    found = describe_environment()
    assert found.prolip == prolip.__version__
    assert found.packages == installed.packages


def write_object(git, kind, content):
    whole = f"{kind} {len(content)}".encode() + b"\0" + content
    name = hashlib.sha1(whole).hexdigest()
    path = git / "objects" / name[:2] / name[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(whole))
    return name


def write_index(git, blobs):
    """What git believes to be checked out: sizes are right, times are not, so it has to read the files."""
    body = struct.pack(">4sII", b"DIRC", 2, len(blobs))
    for name, (blob, size) in sorted(blobs.items()):
        entry = struct.pack(">10I", 1, 0, 1, 0, 0, 0, 0o100644, 0, 0, size)
        entry += bytes.fromhex(blob) + struct.pack(">H", len(name)) + name.encode()
        body += entry + b"\0" * (8 - len(entry) % 8)
    (git / "index").write_bytes(body + hashlib.sha1(body).digest())


def write_checkout(folder, files):
    """A commit of some files, checked out. Returns its name."""
    git = folder / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    blobs = {name: (write_object(git, "blob", text.encode()), len(text)) for name, text in files.items()}
    rows = [f"100644 {name}".encode() + b"\0" + bytes.fromhex(blobs[name][0]) for name in sorted(blobs)]
    who = "someone <x@example.org> 1700000000 +0000"
    tree = write_object(git, "tree", b"".join(rows))
    commit = write_object(git, "commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nfirst\n".encode())
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(commit + "\n")
    write_index(git, blobs)
    for name, text in files.items():
        (folder / name).write_text(text)
    return commit


def test_the_facts(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["prolip", "train", "--out", "runs/ü"])
    facts = describe_environment().to_dict()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["prolip"] == prolip.__version__
    assert facts["python"] == platform.python_version()
    assert {"torch", "numpy", "pillow", "tokenizers"} <= set(facts["packages"])
    assert facts["packages"]["torch"] == version("torch")
    assert facts["threads"] == torch.get_num_threads()
    assert facts["world_size"] == 1
    assert facts["command"] == ["prolip", "train", "--out", "runs/ü"]
    assert facts["git"] is None
    assert len(facts["accelerators"]) >= torch.cuda.device_count()


@pytest.mark.parametrize(
    ("program", "name"),
    [("/x/site-packages/prolip/__main__.py", "prolip"), ("/x/other/__main__.py", "/x/other/__main__.py")],
)
def test_command_of_python_m_prolip_is_prolip(program, name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, "train"])
    assert describe_environment().command == [name, "train"]


def test_the_world_size_is_that_of_the_ranks(monkeypatch):
    monkeypatch.setattr("prolip.distributed.world_size", lambda: 8)
    assert describe_environment().world_size == 8


@needs_git
def test_a_clean_checkout_even_from_below_and_with_new_files(tmp_path, monkeypatch):
    commit = write_checkout(tmp_path, {"a.txt": "one", "b.txt": "two"})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "metrics.jsonl").write_text("new")
    monkeypatch.chdir(tmp_path / "runs")
    assert get_git_state() == GitState(revision=commit, changed=False)


@needs_git
def test_a_changed_checkout(tmp_path):
    commit = write_checkout(tmp_path, {"a.txt": "one", "b.txt": "two"})
    (tmp_path / "b.txt").write_text("owt")
    assert get_git_state() == GitState(revision=commit, changed=True)


@needs_git
def test_looking_leaves_the_checkout_as_it_was(tmp_path):
    write_checkout(tmp_path, {"a.txt": "one"})
    index = (tmp_path / ".git" / "index").read_bytes()
    get_git_state()
    assert (tmp_path / ".git" / "index").read_bytes() == index


@needs_git
def test_a_checkout_without_commits_has_no_state(tmp_path):
    write_checkout(tmp_path, {})
    (tmp_path / ".git" / "refs" / "heads" / "main").unlink()
    assert get_git_state() is None


def test_no_git_is_no_error(tmp_path, monkeypatch):
    write_checkout(tmp_path, {})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert get_git_state() is None


def test_a_git_that_hangs_or_fails_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("prolip.training.environment.GIT_TIMEOUT", 0.05)
    assert get_git_state() is None
    (tmp_path / "git").write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setattr("prolip.training.environment.GIT_TIMEOUT", 10)
    assert get_git_state() is None
