"""The index that is kept on disk: the same as a fresh one, made again when the tar changes, never in the way."""

import errno
import os
import tarfile
import time

import numpy as np
import pytest

from prolip.data.sources import tar_index
from prolip.data.sources.tar_index import ARRAY_NAMES, load_index, scan_tar
from prolip.files import get_cache_folder
from tests.data.tar_files import member, pairs, tar_bytes, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prolip" / "shards"


@pytest.fixture
def scans(monkeypatch):
    """How often a tar was scanned."""
    calls = []
    monkeypatch.setattr(tar_index, "scan_tar", lambda file: calls.append(file) or scan_tar(file))
    return calls


def assert_same(a, b):
    for name in ARRAY_NAMES:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype
    assert (a.prefix, a.extensions, a.damage, a.hint) == (b.prefix, b.extensions, b.damage, b.hint)


@pytest.mark.parametrize("cut", [None, 5000, 0], ids=["whole", "damaged", "empty"])
def test_cached_index_equals_a_fresh_one(cut, tmp_path, scans, cache):
    files = [
        ("日本/a.jpg", b"1"),
        ("日本/a.txt", b"2"),
        ("日本/ab.jpg", b"3"),
        ("日本/b.x\0", b"4"),
        *pairs(4),
    ]
    path = tmp_path / "1.tar"
    path.write_bytes(tar_bytes(files)[:cut])
    fresh, stamp = load_index(str(path))
    kept, again = load_index(str(path))
    assert len(scans) == 1
    assert stamp == again == (path.stat().st_size, path.stat().st_mtime_ns)
    assert_same(fresh, kept)
    assert bool(fresh.damage) == (cut is not None)
    assert fresh.hint == ""
    assert len(list(cache.iterdir())) == 1


def test_a_changed_tar_is_scanned_again(tmp_path, scans):
    path = write_tar(tmp_path / "1.tar", pairs(2))
    assert len(load_index(path)[0]) == 2
    os.utime(path, ns=(0, 12345))
    load_index(path)
    write_tar(tmp_path / "1.tar", pairs(30))
    assert len(load_index(path)[0]) == 30
    assert len(scans) == 3


@pytest.mark.parametrize("how", ["rewritten", "replaced"])
def test_a_tar_of_the_same_size_and_time_is_scanned_again(how, tmp_path, scans):
    path = write_tar(tmp_path / "1.tar", pairs(2))
    before = os.stat(path)
    load_index(path)
    other = tmp_path / ("1.tar" if how == "rewritten" else "new.tar")
    time.sleep(0.02)  # the clock of a file system ticks every few ms
    write_tar(other, pairs(2, start=7))  # as cp -p does, and as rsync -t does
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)
    index, stamp = load_index(path)
    assert stamp == (before.st_size, before.st_mtime_ns)
    assert [index.key(n) for n in range(2)] == ["00007", "00008"]
    assert len(scans) == 2


def test_old_indexes_of_a_tar_do_not_stay(tmp_path, cache):
    path, other = write_tar(tmp_path / "1.tar", pairs(2)), write_tar(tmp_path / "2.tar", pairs(2))
    load_index(path)
    load_index(other)
    kept = set(cache.iterdir())
    assert len(kept) == 2
    for count in (3, 4, 5):
        write_tar(tmp_path / "1.tar", pairs(count))
        assert len(load_index(path)[0]) == count
    assert set(cache.iterdir()) == kept


def test_an_old_index_that_can_not_be_replaced_is_no_error(tmp_path, cache):
    load_index(write_tar(tmp_path / "1.tar", pairs(2)))
    (old,) = cache.iterdir()
    path = write_tar(tmp_path / "1.tar", pairs(3))
    old.unlink()
    old.mkdir()
    assert len(load_index(path)[0]) == 3
    assert list(cache.iterdir()) == [old]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([*pairs(2), *pairs(1)], "keys are repeated in this shard"),
        ([*pairs(2), member("1.jpg", type=tarfile.SYMTYPE, linkname="0.jpg")], "'1.jpg' is a link, which is not "),
        ([*pairs(2), member("latest", type=tarfile.SYMTYPE, linkname="0.jpg")], ""),
        ([*pairs(2), ("README", b""), member("d.d", type=tarfile.DIRTYPE), ("00001.cls", b"")], ""),
    ],
    ids=["again", "link", "link without ending", "good"],
)  # fmt: skip
def test_hint_is_cached(files, wanted, tmp_path, scans):
    path = write_tar(tmp_path / "1.tar", files)
    fresh, kept = load_index(path)[0], load_index(path)[0]
    assert len(scans) == 1
    assert_same(fresh, kept)
    assert fresh.hint.startswith(wanted)
    assert bool(fresh.hint) == bool(wanted)


def test_another_scanner_scans_again(tmp_path, scans, monkeypatch):
    path = write_tar(tmp_path / "1.tar", pairs(2))
    load_index(path)
    monkeypatch.setattr(tar_index, "INDEX_VERSION", -1)
    load_index(path)
    assert len(scans) == 2


def test_an_index_of_another_tar_is_not_taken(tmp_path, scans, cache):
    one, two = write_tar(tmp_path / "1.tar", pairs(2)), write_tar(tmp_path / "2.tar", pairs(30))
    load_index(one)
    (kept,) = cache.iterdir()
    load_index(two)
    (other,) = set(cache.iterdir()) - {kept}
    os.replace(kept, other)
    assert len(load_index(two)[0]) == 30
    assert len(scans) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "pickle"])
def test_a_corrupt_index_is_made_again(damage, tmp_path, scans, cache):
    path = write_tar(tmp_path / "1.tar", pairs(20))
    fresh, _ = load_index(path)
    (kept,) = cache.iterdir()
    content = bytearray(kept.read_bytes())
    if damage == "pickle":
        np.savez(kept, told=np.array([{}], dtype=object))
    elif damage == "flipped":
        content[content.index(b"blocks.npy") + 200] ^= 255
        kept.write_bytes(content)
    else:
        kept.write_bytes({"cut": content[:-100], "empty": b"", "text": b"hello"}[damage])
    assert_same(load_index(path)[0], fresh)
    assert_same(load_index(path)[0], fresh)
    assert len(scans) == 2


def test_a_cache_that_can_not_be_written_is_no_error(tmp_path, scans, monkeypatch):
    (tmp_path / "file").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = write_tar(tmp_path / "1.tar", pairs(2))
    assert [len(load_index(path)[0]) for _ in range(2)] == [2, 2]
    assert len(scans) == 2


def test_a_full_disk_is_no_error(tmp_path, monkeypatch, cache):
    def full(*args, **kw):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert len(load_index(write_tar(tmp_path / "1.tar", pairs(2)))[0]) == 2
    assert list(cache.iterdir()) == []


def test_missing_home_folder_is_not_an_error(tmp_path, monkeypatch):
    def homeless(name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(tar_index, "get_cache_folder", homeless)
    assert len(load_index(write_tar(tmp_path / "1.tar", pairs(2)))[0]) == 2


def test_an_empty_variable_means_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_cache_folder("shards") == tmp_path / ".cache" / "prolip" / "shards"


def test_a_failing_disk_stays_an_oserror(tmp_path, monkeypatch):
    def broken(*args):
        raise OSError(errno.EIO, "Input/output error")

    path = write_tar(tmp_path / "1.tar", pairs(2))
    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(OSError, match="Input/output error"):
        load_index(path)
