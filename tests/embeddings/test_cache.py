"""The cache of embeddings: complete parts that fit are read; the least recently used data sets are removed."""

import multiprocessing
import os
import shutil
import time
from dataclasses import replace

import pytest
import torch

from prolip.data.sample import SampleError
from prolip.embeddings import cache as cache_module
from prolip.embeddings.cache import EmbeddingCache, get_max_size, parse_size
from prolip.embeddings.inference_loop import EncodedPart
from prolip.embeddings.sample_metadata import SampleMetadata
from tests.embeddings.test_header import HEADER

IMAGES = replace(HEADER, modality="image", dim=3, part_size=4, parts=2, columns={})
TEXTS = replace(IMAGES, modality="text", part_size=3)
NAMES = [f"{number:016x}" for number in range(5)]


@pytest.fixture
def part(draw):
    """Samples 4 to 7, of which 6 is bad."""
    metadata = [SampleMetadata(str(index), ("a", "b"), {"cls": index}) for index in (4, 5, 7)]
    errors = {6: SampleError("unreadable image", "here", "why")}
    blocks = [draw(2, 3, dtype=torch.float32), draw(1, 3, dtype=torch.float32)]
    return EncodedPart(blocks, [4, 5, 7], metadata, [("a.png", 1, 2), None, None], errors)


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(folder=tmp_path / "cache")


def write(cache, name, part, used=None):
    """A data set with one part, which was last used at the time `used`."""
    with cache.open(name, IMAGES) as cached:
        cached.write_images(1, part)
        folder = cached.dataset.folder
    if used is not None:
        os.utime(folder / ".lock", (used, used))
    return folder


def names(cache):
    return [entry.folder.name for entry in cache.list_entries()]


def test_write_and_read_images(cache, part):
    write(cache, NAMES[0], part)
    with cache.open(NAMES[0], IMAGES) as cached:
        found = cached.read_images(1, range(4, 8))
        assert cached.read_images(0, range(4)) is None
    assert (found.indices, found.metadata, found.file_stamps, found.errors) == (
        part.indices,
        part.metadata,
        part.file_stamps,
        part.errors,
    )
    for values in ("mean", "log_var"):
        written, back = (
            torch.cat([getattr(z, values) for z in one.gaussians]).view(torch.int32) for one in (part, found)
        )
        assert torch.equal(written, back)


def test_images_with_a_hundred_megabytes_of_metadata(cache, part):
    part.metadata[1] = part.metadata[1]._replace(extra={"words": "x" * 101_000_000})
    write(cache, NAMES[0], part)
    with cache.open(NAMES[0], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)).metadata == part.metadata


@pytest.mark.parametrize("indices", [range(4, 7), range(4, 9), range(5, 8)])
def test_images_of_other_indices_are_not_read(cache, part, indices):
    write(cache, NAMES[0], part)
    with cache.open(NAMES[0], IMAGES) as cached:
        assert cached.read_images(1, indices) is None


def test_texts_are_read_only_if_they_are_the_same(cache, draw):
    z = draw(2, 3, dtype=torch.float32)
    with cache.open(f"texts-{NAMES[0]}", TEXTS) as cached:
        cached.write_texts(1, ["a", "b\nc"], z)
        assert torch.equal(cached.read_texts(1, ["a", "b\nc"]).log_var, z.log_var)
        for other in (["a"], ["a", "b"], ["b\nc", "a"]):
            assert cached.read_texts(1, other) is None
        assert cached.read_texts(0, ["a", "b\nc"]) is None


def test_texts_with_nan_are_not_read(cache, draw):
    z = draw(2, 3, dtype=torch.float32)
    z.mean[1, 2] = torch.nan
    with cache.open(f"texts-{NAMES[0]}", TEXTS) as cached:
        cached.write_texts(0, ["a", "b"], z)
        assert cached.read_texts(0, ["a", "b"]) is None


@pytest.mark.parametrize("where", range(0, 100, 4))
def test_flipped_bit_anywhere_never_gives_other_values(cache, part, where):
    folder = write(cache, NAMES[0], part)
    path = folder / "part-000000001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) * where // 100] ^= 4
    path.write_bytes(content)
    with cache.open(NAMES[0], IMAGES) as cached:
        found = cached.read_images(1, range(4, 8))
    if found is not None:
        assert (found.metadata, found.errors) == (part.metadata, part.errors)
        assert torch.equal(found.gaussians[0].mean, torch.cat([z.mean for z in part.gaussians]))
        assert torch.equal(found.gaussians[0].log_var, torch.cat([z.log_var for z in part.gaussians]))


def test_header_of_another_name_of_the_data_is_kept(cache, part):
    write(cache, NAMES[0], part)
    with cache.open(NAMES[0], replace(IMAGES, data="./elsewhere", model="renamed")) as cached:
        assert cached.read_images(1, range(4, 8)) is not None
    with cache.open(NAMES[0], replace(IMAGES, part_size=5)) as cached:
        assert cached.read_images(1, range(4, 8)) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1}'])
def test_damaged_header_is_replaced(cache, part, content):
    folder = write(cache, NAMES[0], part)
    (folder / "prolip.json").write_bytes(content)
    with cache.open(NAMES[0], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)) is not None


def test_least_recently_used_are_removed_first(cache, part):
    for name, used in zip(NAMES, (30, 10, 50, 20, 40), strict=True):
        write(cache, name, part, used)
    assert names(cache) == [NAMES[i] for i in (1, 3, 0, 4, 2)]
    size = cache.list_entries()[0].size
    assert [entry.folder.name for entry in cache.shrink(3 * size)] == [NAMES[1], NAMES[3]]
    assert names(cache) == [NAMES[0], NAMES[4], NAMES[2]]
    assert sum(entry.size for entry in cache.list_entries()) <= 3 * size
    assert cache.shrink(3 * size) == []


def test_reading_counts_as_use(cache, part):
    for name, used in zip(NAMES, (30, 10, 50, 20, 40), strict=True):
        write(cache, name, part, used)
    with cache.open(NAMES[1], IMAGES) as cached:
        cached.read_images(1, range(4, 8))
    assert names(cache)[-1] == NAMES[1]


def test_writing_removes_others_but_never_what_is_open(tmp_path, part):
    first = EmbeddingCache(folder=tmp_path)
    for name in NAMES[:3]:
        write(first, name, part, 10)
    bounded = EmbeddingCache(folder=tmp_path, max_size=1)
    with first.open(NAMES[1], IMAGES):
        write(bounded, NAMES[3], part, 20)
        assert names(bounded) == [NAMES[3], NAMES[1]]
        assert [entry.in_use for entry in bounded.list_entries()] == [False, True]
        assert [entry.folder.name for entry in bounded.shrink(0)] == [NAMES[3]]
    with bounded.open(NAMES[1], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)) is not None
    bounded.shrink(0)
    assert names(bounded) == []
    assert not list(tmp_path.iterdir())


def hold_open(folder, connection):
    with EmbeddingCache(folder=folder).open(NAMES[0], IMAGES):
        connection.send("open")
        time.sleep(60)


def test_data_set_that_another_process_has_open_is_kept(cache, part):
    write(cache, NAMES[0], part, 10)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=hold_open, args=(cache.folder, there), daemon=True)
    process.start()
    try:
        assert here.poll(30)
        assert cache.shrink(0) == []
    finally:
        process.kill()
        process.join(30)
    assert len(cache.shrink(0)) == 1, "a killed process leaves no lock behind"


def test_killed_removal_leaves_no_half_data_set(cache, part, monkeypatch):
    folder = write(cache, NAMES[0], part)
    removed, rmtree = [], shutil.rmtree

    def killed(path, **options):
        removed.append(path)
        (path / "prolip.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache_module.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.shrink(0)
    assert not folder.exists()
    assert cache.list_entries() == []
    assert removed[0].is_dir()
    with cache.open(NAMES[0], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)) is None
        cached.write_images(1, part)
    assert not removed[0].exists(), "the next write finishes the removal"
    assert rmtree is shutil.rmtree
    assert names(cache) == [NAMES[0]]


def test_data_set_removed_while_it_is_opened_is_created_again(cache, part, monkeypatch):
    folder = write(cache, NAMES[0], part)
    flock, once = cache_module.fcntl.flock, []

    def removed_first(file, operation):
        if not once:
            once.append(folder.rename(folder.with_name(".removed.x")))
        return flock(file, operation)

    monkeypatch.setattr(cache_module.fcntl, "flock", removed_first)
    with cache.open(NAMES[0], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)) is None
        cached.write_images(1, part)
        assert names(cache) == [NAMES[0]]


def test_without_locks_recently_used_data_sets_are_kept(cache, part, monkeypatch):
    write(cache, NAMES[0], part, 10)
    write(cache, NAMES[1], part)

    def no_locks(file, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(cache_module.fcntl, "flock", no_locks)
    assert [entry.folder.name for entry in cache.shrink(0)] == [NAMES[0]]
    with cache.open(NAMES[1], IMAGES) as cached:
        assert cached.read_images(1, range(4, 8)) is not None


def test_other_files_in_the_folder_are_never_removed(cache, part):
    write(cache, NAMES[0], part)
    others = [cache.folder / "thesis" / NAMES[0], cache.folder / HEADER.identity / "notes"]
    for other in others:
        other.mkdir(parents=True)
        (other / "text").write_text("mine")
    cache.shrink(0)
    assert all((other / "text").read_text() == "mine" for other in others)


def test_temporary_files_of_killed_runs_are_removed(cache, part):
    folder = write(cache, NAMES[0], part)
    leftover = folder / ".part-000000000.parquet.999999999.1"
    leftover.write_bytes(b"half")
    with cache.open(NAMES[0], IMAGES):
        assert not leftover.exists()


@pytest.mark.parametrize(
    ("text", "size"), [("20 GB", 2 * 10**10), ("500MB", 5 * 10**8), ("1.5k", 1500), ("0", 0), ("7", 7)]
)
def test_parse_size(text, size):
    assert parse_size(text, "size") == size


@pytest.mark.parametrize("text", ["", "much", "-1 GB", "3 XB", "1e3"])
def test_parse_size_rejects_other_texts(text):
    with pytest.raises(ValueError, match="--max-size must be a size"):
        parse_size(text, "--max-size")


def test_size_of_the_environment_is_checked_before_any_work(cache, monkeypatch):
    monkeypatch.setenv("PROLIP_CACHE_SIZE", "3 MB")
    assert get_max_size() == 3_000_000
    monkeypatch.setenv("PROLIP_CACHE_SIZE", "lots")
    with pytest.raises(ValueError, match=r"PROLIP_CACHE_SIZE .* 'lots'"), cache.open(NAMES[0], IMAGES):
        pytest.fail("opened")


def test_cache_in_a_place_without_folders_is_not_locked(monkeypatch, tmp_path):
    """/proc answers mkdir with ENOENT, always."""

    def fail(*_args, **_options):
        raise FileNotFoundError

    monkeypatch.setattr(cache_module.Path, "mkdir", fail)
    assert cache_module._open_lock(tmp_path / "x") is None
