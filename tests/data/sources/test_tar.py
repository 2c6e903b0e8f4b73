"""Shards on disk against `tarfile`; patterns; damage; threads, forks and pickles."""

import json
import multiprocessing
import os
import pickle
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import webdataset

from prolip.data.sample import BadSampleError, Sample
from prolip.data.sources import tar
from prolip.data.sources.tar import FileCache, TarShards, expand_braces, expand_paths
from prolip.data.sources.tar_format import read_at
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset as write_scenes
from prolip.storage import is_remote, open_stream
from tests.data.tar_files import PNG, member, pairs, samples_by_tarfile, tar_bytes, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def three(tmp_path):
    """Shards of 4, 1 and 6 samples."""
    for n, (start, count) in enumerate([(0, 4), (4, 1), (5, 6)]):
        write_tar(tmp_path / f"{n:03d}.tar", pairs(count, start))
    return str(tmp_path / "{000..002}.tar")


def bad(source, index):
    with pytest.raises(BadSampleError) as caught:
        source.read(index)
    return caught.value.record


def read_all(source):
    return [source.read(n) for n in range(len(source))]


# Reading


def test_samples_are_those_of_tarfile_in_order(three, tmp_path):
    source = TarShards(three)
    wanted = []
    for n in range(3):
        path = tmp_path / f"{n:03d}.tar"
        for key, files in samples_by_tarfile(path.read_bytes()):
            files = dict(files)
            wanted.append(
                Sample(key, f"{path}: {key}", files["jpg"], (files["txt"].decode(),), {"txt": files["txt"]})
            )
    assert read_all(source) == wanted
    assert len(source) == 11
    assert source.chunks.tolist() == [4, 1, 6]
    assert source.chunks.dtype == np.int64
    assert source.name == three


@pytest.mark.parametrize("index", [-1, 11])
def test_tar_shards_refuses_indices_out_of_range(three, index):
    with pytest.raises(IndexError, match=f"index {index} .* 11 samples"):
        TarShards(three).read(index)


def test_two_files_of_a_kind_are_one_bad_sample(tmp_path):
    files = [*pairs(1), ("x.jpg", PNG), ("x.JPG", PNG), ("x.txt", b"a"), *pairs(1, 5)]
    source = TarShards(write_tar(tmp_path / "1.tar", files))
    assert bad(source, 1) == (
        "two files of one kind",
        f"{tmp_path}/1.tar: x",
        "two files with the extension jpg",
    )
    assert source.read(2).key == "00005"


def test_long_keys(tmp_path):
    name = "folder/" * 40 + "n" * 50
    source = TarShards(write_tar(tmp_path / "1.tar", [(f"{name}.jpg", PNG), (f"{name}.txt", b"a")]))
    assert source.read(0).key == name


def test_a_damaged_shard_ends_in_one_bad_sample(tmp_path):
    content = tar_bytes(pairs(4))
    for n, cut in enumerate([None, 3 * 2048 + 700, None, 0]):
        (tmp_path / f"{n}.tar").write_bytes(content[:cut])
    source = TarShards(str(tmp_path / "*.tar"))
    assert source.chunks.tolist() == [4, 4, 4, 1]
    detail = "the tar ends within '00003.jpg' at byte 6844; good samples before it: 3"
    assert bad(source, 7) == ("broken shard", str(tmp_path / "1.tar"), detail)
    assert bad(source, 12) == (
        "broken shard",
        str(tmp_path / "3.tar"),
        "an empty file at byte 0; good samples before it: 0",
    )
    assert [source.read(n).key for n in (6, 8, 11)] == ["00002", "00000", "00003"]


def test_tar_shards_opens_shards_with_damage_only(tmp_path):
    (tmp_path / "1.tar").write_bytes(b"")
    assert bad(TarShards(str(tmp_path / "1.tar")), 0).reason == "broken shard"


def test_tar_shards_opens_empty_shards(tmp_path):
    assert len(TarShards(write_tar(tmp_path / "1.tar", []))) == 0


def test_other_members_come_along(tmp_path):
    files = [("1.png", PNG), ("1.cls", b"7"), ("1.json", b"{}"), ("1.npy", b"\x93NUMPY")]
    sample = TarShards(write_tar(tmp_path / "1.tar", files), captions=()).read(0)
    assert sample.captions == ()
    assert sample.extra == {"cls": b"7", "json": b"{}", "npy": b"\x93NUMPY"}


# A tar that changes under our hands


def test_a_shard_that_vanished(three, tmp_path):
    source = TarShards(three)
    (tmp_path / "002.tar").unlink()
    fresh = pickle.loads(pickle.dumps(source))
    assert bad(fresh, 6)[:2] == ("missing file", str(tmp_path / "002.tar"))
    assert fresh.read(0).key == "00000"


def test_a_shard_that_changed(three, tmp_path):
    source = pickle.loads(pickle.dumps(TarShards(three)))
    os.utime(tmp_path / "000.tar", ns=(0, 0))
    assert bad(source, 0) == (
        "broken shard",
        str(tmp_path / "000.tar"),
        "it has changed since the data was opened",
    )


def test_a_shard_that_was_cut_while_open(three, tmp_path):
    source = TarShards(three)
    source.read(0)
    os.truncate(tmp_path / "000.tar", 600)
    assert bad(source, 2).detail == "it has changed since the data was opened"


def test_a_shard_that_was_rewritten_while_open(three, tmp_path):
    source = TarShards(three)
    assert source.read(0).key == "00000"
    write_tar(tmp_path / "000.tar", pairs(4, 90))  # in place, and of the same size
    os.utime(tmp_path / "000.tar", ns=(0, 12345))  # clocks of file systems tick only every few ms
    for number in range(4):
        assert bad(source, number) == (
            "broken shard",
            str(tmp_path / "000.tar"),
            "it has changed since the data was opened",
        )
    assert source.read(4).key == "00004"


def test_a_shard_that_is_replaced_while_open_is_read_to_the_end(three, tmp_path):
    source = TarShards(three)
    wanted = read_all(source)
    write_tar(tmp_path / "new.tar", pairs(4, 90))
    os.replace(tmp_path / "new.tar", tmp_path / "000.tar")
    assert read_all(source) == wanted


def test_a_shard_that_changes_while_it_is_read(three, tmp_path, monkeypatch):
    def late(*args):
        os.utime(tmp_path / "000.tar", ns=(0, 12345))
        return read_at(*args)

    source = TarShards(three)
    monkeypatch.setattr(tar, "read_at", late)
    assert bad(source, 0).detail == "it has changed since the data was opened"


# Processes, threads


def test_a_pickle_reads_the_same(three):
    source = TarShards(three)
    copy = pickle.loads(pickle.dumps(source))
    assert read_all(copy) == read_all(source)
    assert copy.fingerprint() == source.fingerprint()


def test_a_fork_reads_the_same_even_if_a_lock_was_held(three):
    source = TarShards(three)
    wanted = read_all(source)
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def child():
        send.send((read_all(source) == wanted, source._files._process == os.getpid()))

    process = context.Process(target=child)
    with source._files._lock:
        process.start()
    try:
        assert receive.poll(20), "the child waits for a lock that no one holds"
        assert receive.recv() == (True, True)
    finally:
        process.kill()
        process.join()


def test_threads_read_the_same_with_few_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_OPEN_FILES", 2)
    for n in range(8):
        write_tar(tmp_path / f"{n}.tar", pairs(3, 3 * n))
    source = TarShards(str(tmp_path / "*.tar"))
    numbers = np.random.default_rng(0).integers(0, 24, 2000).tolist()
    with ThreadPoolExecutor(8) as pool:
        samples = list(pool.map(source.read, numbers))
    assert [sample.key for sample in samples] == [f"{n:05d}" for n in numbers]
    assert open_files(tmp_path) <= 2
    del source
    assert open_files(tmp_path) == 0


def open_files(folder):
    """How many of a folder's files this process has open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link).startswith(str(folder)) for link in links)


def test_the_last_used_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_OPEN_FILES", 2)
    stamps = {}
    for name in "abc":
        status = os.stat(write_tar(tmp_path / name, pairs(1)))
        stamps[name] = (status.st_size, status.st_mtime_ns)
    files = FileCache()
    opened = [files.open(str(tmp_path / name), stamps[name]) for name in "abacb"]
    assert opened[0] is opened[2]
    assert opened[1] is not opened[4]


# The fingerprint


def test_the_fingerprint_is_of_files_and_keys(three, tmp_path):
    whole = TarShards(three)
    assert whole.fingerprint() == TarShards(str(tmp_path / "*.tar")).fingerprint()
    assert whole.fingerprint() == TarShards(three).fingerprint()
    paths = list(whole.paths)
    others = [
        TarShards(paths[:2]),
        TarShards(paths[::-1]),
        TarShards(three, captions=()),
        TarShards(three, captions=("txt:lines",)),
        TarShards(three, images=("jpg",)),
    ]
    write_tar(tmp_path / "001.tar", pairs(2, 4))
    others.append(TarShards(three))
    assert len({source.fingerprint() for source in [whole, *others]}) == 7


def test_a_file_name_that_is_not_utf8(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tar")
    with open(path, "wb") as file:
        file.write(tar_bytes(pairs(1)))
    assert len(TarShards(path).fingerprint()) == 16


# Fail early


def test_opening_fails_if_captions_are_in_another_field(tmp_path):
    for n in range(3):
        write_tar(
            tmp_path / f"{n}.tar",
            [(f"{n}.jpg", PNG), (f"{n}.json", json.dumps({"caption": "a", "url": "b"}).encode())],
        )
    wanted = (
        f"{tmp_path}/*.tar: none of the 3 samples that were tried can be used. The first: {tmp_path}/0.tar: 0: "
        "no caption (expected txt; found jpg, json (fields caption, url))"
    )
    with pytest.raises(ValueError, match=re.escape(wanted)):
        TarShards(str(tmp_path / "*.tar"))
    assert len(TarShards(str(tmp_path / "*.tar"), captions=("json:caption",))) == 3


def test_opening_fails_if_images_have_another_extension(tmp_path):
    with pytest.raises(ValueError, match=re.escape("no image (expected jpg; found png, txt)")):
        TarShards(write_tar(tmp_path / "1.tar", [("1.png", PNG), ("1.txt", b"a")]), images=("jpg",))


@pytest.mark.parametrize("kind", ["jpg", "txt"])
def test_hint_names_scattered_files_of_a_sample(kind, tmp_path):
    files = sorted(pairs(3), key=lambda file: (not file[0].endswith(kind), file[0]))  # d/*.jpg d/*.txt
    reason, there = ("no caption", "jpg") if kind == "jpg" else ("no image", "txt")
    hint = f"found {there}; keys are repeated in this shard, .*"
    with pytest.raises(ValueError, match=rf"{reason} \(expected .*; {hint}tar --sort=name\)"):
        TarShards(write_tar(tmp_path / "1.tar", files))


def test_hint_names_images_that_are_links(tmp_path):
    link = member("1.jpg", type=tarfile.LNKTYPE, linkname="0.jpg")
    source = TarShards(
        write_tar(tmp_path / "1.tar", [("0.jpg", PNG), ("0.txt", b"a"), link, ("1.txt", b"b")])
    )
    hint = "'1.jpg' is a link, which is not read: use tar -h --hard-dereference"
    assert bad(source, 1).detail == f"expected jpg, jpeg, png, webp; found txt; {hint}"


def test_other_faults_get_no_hint(tmp_path):
    source = TarShards(write_tar(tmp_path / "1.tar", [*pairs(2), ("2.jpg", PNG), ("3.txt", b""), *pairs(1)]))
    assert source._indexes[0].hint
    assert bad(source, 2).detail.endswith("tar --sort=name")
    twice = [*pairs(2), ("2.jpg", PNG), ("2.txt", b""), ("3.jpg", PNG), *pairs(1)]
    assert bad(TarShards(write_tar(tmp_path / "1.tar", twice)), 2) == (
        "empty caption",
        f"{tmp_path}/1.tar: 2",
        "",
    )
    source = TarShards(write_tar(tmp_path / "1.tar", [*pairs(2), ("2.jpg", PNG)]))
    assert bad(source, 2).detail == "expected txt; found jpg"


# Patterns


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ["00.tar", "01.tar", "02.tar", "10.tar", "b.tar", "[x].tar", "{y}.tar"]:
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "00.tar").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("01.tar", ["01.tar"]),
        ("{00..02}.tar", ["00.tar", "01.tar", "02.tar"]),
        ("{02..00}.tar", ["02.tar", "01.tar", "00.tar"]),
        ("{b,01}.tar", ["b.tar", "01.tar"]),
        ("0*.tar", ["00.tar", "01.tar", "02.tar"]),
        ("[01]0.tar", ["00.tar", "10.tar"]),
        ("{0?,sub/*}.tar", ["00.tar", "01.tar", "02.tar", "sub/00.tar"]),
        ("**/00.tar", ["00.tar", "sub/00.tar"]),
        (["b.tar", "0*.tar", "00.tar", "b.tar"], ["b.tar", "00.tar", "01.tar", "02.tar"]),
        ("[x].tar", ["[x].tar"]),
        ("{y}.tar", ["{y}.tar"]),
    ],
)
def test_patterns(pattern, wanted):
    assert expand_paths(pattern) == wanted


@pytest.mark.usefixtures("folder")
def test_home(tmp_path):
    assert expand_paths("~/00.tar") == [str(tmp_path / "00.tar")]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("none.tar", "none.tar: no such file"),
        ("none*.tar", "none*.tar: no file matches"),
        (
            "{00..12}.tar",
            "03.tar: no such file; 8 more shards are missing",
        ),
        (
            ["00.tar", "x.tar", "y*"],
            "x.tar: no such file; 1 more shards are missing",
        ),
        ([], "no shards were given: the list of patterns is empty"),
    ],
)
def test_what_is_missing_is_named(pattern, said):
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(said)}$"):
        TarShards(pattern)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("sub", "sub: not a file. For the tars in it, use sub/*.tar"),
        ("{00.tar", "{00.tar: the braces are not balanced"),
        ("{0..99999999999}.tar", "the range has more than 1,000,000 shards"),
        ("{0..9999999999999999999999}", "the range has more than 1,000,000 shards"),
        ("{0..9999}{0..9999}{0..9999}", "the braces have more than 1,000,000 shards"),
        ("https://me:secret@host/1.tar", "a https: address is not a file on disk. Open it as a TarStream"),
        ("pipe:cat 1.tar", "a pipe: address is not a file on disk"),
        ("PIPE:cat 1.tar", "a PIPE: address is not a file on disk"),
    ],
)
def test_expand_paths_refuses_invalid_patterns(pattern, said):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        TarShards(pattern)
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_a_pipe_on_disk_is_not_waited_for():
    os.mkfifo("fifo.tar")
    with pytest.raises(ValueError, match=r"fifo.tar: not a file"):
        TarShards("fifo.tar")


def test_backslashes_stay():
    assert expand_braces(r"a\{1,2}") == ["a\\1", "a\\2"]


def test_webdataset_reads_the_same_samples(tmp_path):
    """The library that defined the format, on shards that `prolip data scenes` wrote and on odd names."""
    write_scenes(tmp_path / "scenes", SceneDatasetSpec(image_size=32, num_train=7, num_test=2, shard_size=3))
    odd = [
        ("./a b/x.y.jpg", PNG),
        ("./a b/x.txt", b"one"),
        ("c.JPG", PNG),
        ("c.txt", b"two"),
        ("__d.png", PNG),
        ("__d.txt", b"three"),
        (".hidden.txt", b""),
    ]
    write_tar(tmp_path / "odd.tar", odd)
    for pattern in (str(tmp_path / "scenes" / "train" / "{00000..00002}.tar"), str(tmp_path / "odd.tar")):
        theirs = list(webdataset.WebDataset(pattern, shardshuffle=False))
        ours = TarShards(pattern, images=("jpg", "png", "y.jpg"))
        assert len(ours) == len(theirs)
        for index, sample in enumerate(theirs):
            found = ours.read(index)
            assert found.key == sample["__key__"]
            files = {ending: content for ending, content in sample.items() if not ending.startswith("__")}
            picture = next(ending for ending in ("jpg", "png", "y.jpg") if ending in files)
            assert found.image == files.pop(picture)
            assert dict(found.extra) == files


def test_the_fingerprint_is_of_names_and_sizes_too(tmp_path):
    names = [
        ("a.tar", pairs(2)),
        ("b.tar", pairs(2)),
        ("c/a.tar", [*pairs(1), ("1.jpg", PNG), ("1.txt", b"x" * 20_000)]),
    ]
    (tmp_path / "c").mkdir()
    sources = [TarShards(write_tar(tmp_path / name, files)) for name, files in names]
    assert [len(source) for source in sources] == [2, 2, 2]
    assert len({source.fingerprint() for source in sources}) == 3


def test_a_file_whose_name_looks_like_a_command_is_only_a_file(tmp_path, monkeypatch):
    """A glob in the current folder finds it; opened by that name, it would be run."""
    monkeypatch.chdir(tmp_path)
    name = "pipe:touch was_run;.tar"
    write_tar(tmp_path / name, pairs(1))
    (path,) = expand_paths("*.tar")
    assert (path, is_remote(path)) == (f"./{name}", False)
    with open_stream(path) as file:
        assert file.read() == (tmp_path / name).read_bytes()
    assert not (tmp_path / "was_run").exists()
