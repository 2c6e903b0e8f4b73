"""Streams against shards on disk; commands and servers that fail; secrets."""

import multiprocessing
import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from prolip.data.sample import Sample, SampleError
from prolip.data.sources import tar_stream
from prolip.data.sources.tar import TarShards
from prolip.data.sources.tar_stream import TarStream
from prolip.storage import open_storage, streams
from tests.data.tar_files import PNG, pairs, tar_bytes, write_tar
from tests.storage.servers import HttpHandler, run_server


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(tar_stream, "RETRY_SECONDS", ())


FILES = [
    *pairs(2),
    ("2.jpg", PNG),
    ("3.jpg", PNG),
    ("3.txt", b"a"),
    ("3.txt", b"b"),
    ("4.txt", b"c"),
    ("5.jpg", PNG),
    ("5.txt", b"d"),
    ("5.cls", b"7"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def tar(tmp_path):
    return write_tar(tmp_path / "with space.tar", FILES)


def command(path, name="cat", rest=""):
    return f"pipe:{name} {shlex.quote(path)}{rest}"


def outcomes(items):
    """Keys of the good, reasons of the bad."""
    return [item.key if isinstance(item, Sample) else item.reason for item in items]


@pytest.mark.parametrize("address", [str, command], ids=["path", "pipe"])
@pytest.mark.parametrize("skip", range(8))
def test_a_stream_has_the_samples_of_the_shard(address, skip, tar):
    stream, source = TarStream(address(tar)), TarShards(tar)
    items = list(stream.read(0, skip))
    assert (
        outcomes(items) == ["00000", "00001", "no caption", "two files of one kind", "no image", "5"][skip:]
    )
    for number, item in enumerate(items, skip):
        if isinstance(item, Sample):
            wanted = source.read(number)
            assert (item.key, item.image, item.captions, item.extra) == (
                wanted.key,
                wanted.image,
                wanted.captions,
                wanted.extra,
            )
            assert item.location == f"{address(tar)}: {item.key}"


def test_skipped_samples_are_not_looked_at(tar, monkeypatch):
    stream, seen = TarStream(tar), []
    picked = stream.fields.make_sample
    monkeypatch.setattr(
        stream.fields, "make_sample", lambda key, *rest: seen.append(key) or picked(key, *rest)
    )
    list(stream.read(0, 4))
    assert seen == ["4", "5"]


@pytest.mark.parametrize("skip", range(4))
def test_a_stream_that_ends_early(skip, tar):
    stream = TarStream(command(tar, "head -c 2700"))
    detail = "the tar ends within '00001.jpg' at byte 2700; good samples before it: 1"
    wanted = ["00000", SampleError("broken shard", stream.shards[0], detail)][skip:]
    items = list(stream.read(0, skip))
    assert [item.key if isinstance(item, Sample) else item for item in items] == wanted


@pytest.mark.parametrize("code", [1, 23, 141])
def test_a_command_that_fails(code):
    """Not one byte came: that is no damage to the data, and no sample is counted as bad."""
    stream = TarStream(f"pipe:exit {code}")
    with pytest.raises(
        OSError, match=rf"pipe:exit {code}: the command .* failed \(exit code {code}\), tried 1 times"
    ):
        list(stream.read(0))


def test_a_shard_that_cannot_be_reached_is_tried_again(tar, tmp_path, monkeypatch):
    monkeypatch.setattr(tar_stream, "RETRY_SECONDS", (0.0, 0.01))
    tried = f"mv {tmp_path}/tried1 {tmp_path}/tried2 2>/dev/null || touch {tmp_path}/tried1"
    once = f"pipe:if [ -e {tmp_path}/tried2 ]; then cat {shlex.quote(tar)}; else {tried}; exit 6; fi"
    assert outcomes(TarStream(once).read(0)) == outcomes(TarStream(tar).read(0))
    (tmp_path / "tried2").unlink()
    monkeypatch.setattr(tar_stream, "RETRY_SECONDS", (0.0,))
    with pytest.raises(OSError, match="tried 2 times"):
        list(TarStream(once).read(0))


def test_a_command_that_does_not_exist(capfd):
    with pytest.raises(OSError, match="exit code 127"):
        list(TarStream("pipe:no-such-command-here x").read(0))
    assert "no-such-command-here" in capfd.readouterr().err


def test_what_a_failing_command_gave_before_is_read_to_its_end(tar):
    """The exit code is known long before the last byte is read."""
    items = list(TarStream(command(tar, rest="; exit 3")).read(0))
    assert outcomes(items[:-1]) == outcomes(TarStream(tar).read(0))
    assert items[-1].detail.startswith("the command that reads it failed (exit code 3)")
    assert items[-1].detail.endswith("good samples before it: 6")


def test_a_failure_between_two_files_does_not_make_a_sample_of_half(tar):
    """After 00000.txt, 00001.jpg: the bytes alone look like a tar that only lacks its end."""
    good = TarStream(command(tar, "head -c 3072"))
    assert outcomes(good.read(0)) == ["00000", "no caption"]
    failing = TarStream(command(tar, "head -c 3072", "; exit 1"))
    assert outcomes(failing.read(0)) == ["00000", "broken shard"]


def test_a_process_behind_a_stream_that_is_left_is_gone(tmp_path):
    big = write_tar(
        tmp_path / "big.tar", [("1.jpg", PNG), ("1.txt", b"a"), ("2.jpg", bytes(10**6)), ("3.jpg", b"")]
    )
    mark = tmp_path / "pid"
    items = TarStream(f"pipe:echo $$ > {shlex.quote(str(mark))}; exec cat {shlex.quote(str(big))}").read(0)
    assert next(items).key == "1"
    pid = int(mark.read_text())
    os.kill(pid, 0)
    items.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# What a command has started


def child(mark, output=""):
    """A part of a command: a child that would sleep on, and leaves its number in a file."""
    return f"sh -c 'echo $$ > {mark}; exec sleep 77' {output}"


def ended(mark):
    """Whether the child has ended, or does so soon. (A zombie has: it waits for an init that some containers lack.)"""
    state = Path(f"/proc/{int(mark.read_text())}/stat")
    for _ in range(100):
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def until_written(mark):
    while not mark.exists() or not mark.read_text().endswith("\n"):
        time.sleep(0.01)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="children are looked for in /proc"
)


@needs_proc
def test_no_child_is_left_of_a_stream_that_is_left(tar, tmp_path):
    mark = tmp_path / "child"
    items = TarStream(command(tar, rest=f"; {child(mark)}; true")).read(0)
    assert next(items).key == "00000"
    until_written(mark)
    items.close()
    assert ended(mark)


@needs_proc
def test_no_child_is_left_after_silence(tar, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.5)
    mark = tmp_path / "child"
    items = list(TarStream(command(tar, "head -c 2700", f"; {child(mark)}; true")).read(0))
    assert items[1].detail.startswith("no data for 0.5 s at byte 2700")
    assert ended(mark)


@needs_proc
def test_no_child_is_left_after_the_end(tar, tmp_path):
    mark = tmp_path / "child"
    address = f"pipe:{child(mark, '> /dev/null')} & while [ ! -s {mark} ]; do :; done; cat {shlex.quote(tar)}"
    assert outcomes(TarStream(address).read(0)) == outcomes(TarStream(tar).read(0))
    assert ended(mark)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_child_is_left_of_a_worker_that_ends(method, tar, tmp_path):
    mark = tmp_path / "child"
    stream = TarStream(command(tar, rest=f"; {child(mark)}; true"))
    worker = multiprocessing.get_context(method).Process(target=read_one, args=(stream, mark, {}))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert ended(mark)


def read_one(stream, mark, held):
    held["items"] = stream.read(0)  # as a lane holds it: a worker ends without letting go
    next(held["items"])
    until_written(mark)


@needs_proc
def test_a_fork_leaves_the_command_of_its_parent_alone(tar):
    items = TarStream(command(tar, rest="; sleep 0.5")).read(0)
    first = next(items)
    worker = multiprocessing.get_context("fork").Process(target=items.close)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert outcomes([first, *items]) == outcomes(TarStream(tar).read(0))


@needs_proc
def test_an_interrupt_ends_the_command_too(tar, tmp_path):
    """In a terminal, Ctrl-C no longer reaches the command itself."""
    mark = tmp_path / "child"
    address = command(tar, "head -c 2700", f"; {child(mark)}; true")
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
        f"from prolip.data.sources.tar_stream import TarStream\nfor _ in TarStream({address!r}).read(0): pass"
    )
    reader = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    until_written(mark)
    reader.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in reader.communicate(timeout=60)[1]
    assert ended(mark)


def test_stalled_stream_is_a_broken_shard(tar, monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.3)
    start = time.monotonic()
    items = list(TarStream(command(tar, "head -c 2700", "; exec sleep 30")).read(0))
    assert time.monotonic() - start < 10
    assert outcomes(items) == ["00000", "broken shard"]
    assert items[1].detail == "no data for 0.3 s at byte 2700; good samples before it: 1"


def test_a_command_that_does_not_end(tar, monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.3)
    items = list(TarStream(command(tar, rest="; exec 1>&-; exec sleep 30")).read(0))
    assert outcomes(items)[-2:] == ["5", "broken shard"]
    assert "did not end within 0.3 s" in items[-1].detail


def test_a_file_that_vanished_is_an_error(tar):
    stream = TarStream(tar)
    os.unlink(tar)
    with pytest.raises(OSError, match="no such file"):
        list(stream.read(0))


def test_a_path_must_exist_when_it_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.tar: no such file"):
        TarStream(str(tmp_path / "x.tar"))


def test_braces_make_shards(tmp_path):
    for n in range(3):
        write_tar(tmp_path / f"{n}.tar", pairs(2, 10 * n))
    folder = shlex.quote(str(tmp_path))
    rest = f"awk '{{print $1}}' >/dev/null; cat {folder}/0.tar"
    stream = TarStream(f"pipe:cat {folder}/{{0..2}}.tar | {rest}")
    assert stream.shards[1] == f"pipe:cat {folder}/1.tar | {rest}"
    several = TarStream([str(tmp_path / "{0..1}.tar"), f"pipe:cat {folder}/2.tar", str(tmp_path / "0.tar")])
    assert len(several.shards) == 3
    assert outcomes(several.read(2)) == ["00020", "00021"]
    assert TarStream("s3://b/{0..1}.tar").shards == ("s3://b/0.tar", "s3://b/1.tar")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("ftp://host/1.tar", "ftp is unknown"),
        ("pipe: ", "'pipe:' must be followed by a command"),
        ("PIPE: ", "'pipe:' must be followed by a command"),
        ("https://a:hidden@host/{1.tar", "braces are not balanced"),
    ],
)
def test_tar_stream_refuses_invalid_addresses(pattern, said):
    with pytest.raises(ValueError, match=said) as caught:
        TarStream(pattern)
    assert "hidden" not in str(caught.value)


def test_schemes_may_be_uppercase(tar):
    large = TarStream(command(tar).replace("pipe:", "PIPE:"))
    assert outcomes(large.read(0)) == outcomes(TarStream(tar).read(0))
    assert large.fingerprint() == TarStream(command(tar)).fingerprint()
    assert TarStream("S3://Bucket/{0..1}.tar").shards == ("s3://Bucket/0.tar", "s3://Bucket/1.tar")


def test_no_shard_and_no_sample(tar):
    with pytest.raises(FileNotFoundError, match="no shards"):
        TarStream([])
    with pytest.raises(ValueError, match="skip must be 0 or more, not -1"):
        TarStream(tar).read(0, -1)


def test_the_fingerprint_is_of_addresses_and_keys():
    one = TarStream("https://host/{0..3}.tar?Signature=abc&n=1")
    assert one.fingerprint() == pickle.loads(pickle.dumps(one)).fingerprint()
    assert one.fingerprint() == TarStream("https://host/{0..3}.tar?Signature=xyz&n=1").fingerprint()
    others = [
        TarStream("https://host/{0..2}.tar?Signature=abc&n=1"),
        TarStream("https://host/{3..0}.tar?Signature=abc&n=1"),
        TarStream("https://host/{0..3}.tar?Signature=abc&n=2"),
        TarStream("https://host/{0..3}.tar?Signature=abc&n=1", captions=()),
        TarStream("https://host/{0..3}.tar?Signature=abc&n=1", images=("jpg",)),
    ]
    assert len({stream.fingerprint() for stream in [one, *others]}) == 6


# Over a network


class Handler(HttpHandler):
    content = tar_bytes(FILES)

    def answer_cut(self):
        self.answer_whole(3072)


@pytest.fixture
def host(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with run_server(Handler) as (host, _):
        yield host


def test_http(host, tar):
    items = list(TarStream(f"http://me:hidden@{host}/1.tar?token=hidden").read(0))
    assert outcomes(items) == outcomes(TarStream(tar).read(0))
    assert items[0].location == f"http://***@{host}/1.tar?token=***: 00000"
    assert items[2].location == f"http://***@{host}/1.tar?token=***: 2"


def test_http_that_breaks_off(host):
    items = list(TarStream(f"http://{host}/cut").read(0))
    assert outcomes(items) == ["00000", "broken shard"]
    assert items[1].detail.startswith("the connection ended before")
    assert items[1].detail.endswith("at byte 3072; good samples before it: 1")


def test_http_that_stalls(host, monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.3)
    items = list(TarStream(f"http://{host}/stall").read(0))
    assert outcomes(items) == ["00000", "broken shard"]
    assert items[1].detail == "no data for 0.3 s at byte 3000; good samples before it: 1"


def test_http_without_a_file(host):
    with pytest.raises(OSError, match="404 Not Found, tried 1 times") as error:
        list(TarStream(f"http://me:hidden@{host}/missing?token=hidden").read(0))
    assert "hidden" not in str(error.value)


def test_spellings_of_an_address_are_one_shard():
    one = TarStream(["abfs://box/{0..1}.tar", "az://box/1.tar", "gcs://bucket/0.tar", "gs://bucket/0.tar"])
    assert one.shards == ("az://box/0.tar", "az://box/1.tar", "gs://bucket/0.tar")


def test_file_addresses_are_paths(tar):
    address = Path(tar).as_uri()
    assert TarStream(address).shards == TarShards(address).paths == (tar,)
    assert outcomes(TarStream(address).read(0)) == outcomes(TarStream(tar).read(0))


def test_shards_in_memory_are_streams(tar):
    folder = f"memory://{uuid4()}"
    open_storage(folder).write("0.tar", lambda file: file.write(Path(tar).read_bytes()))
    assert outcomes(TarStream(f"{folder}/{{0..0}}.tar").read(0)) == outcomes(TarStream(tar).read(0))


def test_a_command_has_nothing_to_read_from_us(tar):
    assert outcomes(TarStream(f"pipe:cat - {shlex.quote(tar)}").read(0)) == outcomes(TarStream(tar).read(0))
