"""Streams from disk, memory, HTTP and S3 on this machine: what was written is read; every failure is one clear error.

Commands are tested with the tars that they print, in tests/data/sources/test_tar_stream.py.
"""

import multiprocessing
import signal
import socket
import sys
import time
from types import SimpleNamespace
from uuid import uuid4

import pytest
from torch.utils.data import DataLoader, IterableDataset

from prolip.extras import MissingExtraError
from prolip.storage import BrokenStreamError, UnreachableError, open_storage, open_stream, streams
from prolip.storage.http import resolve_hub_file
from tests.storage.servers import CONTENT, USER, HttpHandler, run_server


def read(location):
    with open_stream(location) as file:
        return file.read()


def read_until_it_breaks(location):
    """The bytes before the error, and the error."""
    content = b""
    try:
        with open_stream(location) as file:
            while piece := file.read1(1000):
                content += piece
    except (BrokenStreamError, UnreachableError) as error:
        return content, error
    pytest.fail("the stream did not break off")


# All kinds of addresses


@pytest.fixture(params=["path", "file", "memory", "s3", "http", "pipe"])
def location(request, tmp_path):
    path = tmp_path / "a b"
    path.write_bytes(CONTENT)
    if request.param == "memory":
        folder = f"memory://{uuid4()}"
        open_storage(folder).write("a b", lambda file: file.write(CONTENT))
        return f"{folder}/a b"
    if request.param == "s3":
        request.getfixturevalue("s3_server").objects["bucket/a b"] = CONTENT
        return "s3://bucket/a b"
    if request.param == "http":
        return f"http://{request.getfixturevalue('http_server')[0]}/a b"
    return {"path": str(path), "file": path.as_uri(), "pipe": f"pipe:cat '{path}'"}[request.param]


@pytest.mark.parametrize("block", [1000, 2**23])
def test_stream_gives_what_was_written(location, block, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", block)  # several requests to an object store, or one
    assert read(location) == CONTENT
    with open_stream(location) as file:
        assert file.read(10) == CONTENT[:10]
        assert file.read(300) == CONTENT[10:310]


@pytest.mark.parametrize("kind", ["path", "file", "memory", "s3", "http", "refused"])
def test_stream_of_a_missing_file_is_unreachable(kind, tmp_path, request):
    if kind == "s3":
        request.getfixturevalue("s3_server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
    addresses = {
        "path": str(tmp_path / "x"),
        "file": f"file://{tmp_path}/x",
        "memory": f"memory://{uuid4()}/x",
        "s3": "s3://bucket/x",
        "refused": f"http://me:hidden@127.0.0.1:{closed}/x?token=hidden",
    }
    if kind == "http":
        addresses["http"] = (
            f"http://me:hidden@{request.getfixturevalue('http_server')[0]}/missing?token=hidden"
        )
    with pytest.raises(UnreachableError) as caught:
        read(addresses[kind])
    assert "hidden" not in str(caught.value)


def read_in_worker(location, queue):
    queue.put(read(location) == CONTENT)


@pytest.mark.parametrize("location", ["http", "s3", "memory"], indirect=True)
def test_stream_is_read_in_a_fork_of_a_process_that_has_read_it(location):
    """File systems, connections and threads of the parent must not hang its forks."""
    with open_stream(location) as file:
        file.read(10)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        worker = context.Process(target=read_in_worker, args=(location, queue), daemon=True)
        worker.start()
        worker.join(30)
        assert worker.exitcode == 0
        assert queue.get()
        assert file.read() == CONTENT[10:]


class Streams(IterableDataset):
    def __init__(self, location):
        self.location = location

    def __iter__(self):
        yield read(self.location)


@pytest.mark.parametrize("location", ["http", "s3"], indirect=True)
def test_stream_is_read_by_workers_of_a_data_loader(location):
    assert read(location) == CONTENT
    assert list(DataLoader(Streams(location), batch_size=None, num_workers=2, timeout=30)) == [CONTENT] * 2


# Commands


def test_an_interrupt_while_a_command_starts_ends_it(monkeypatch):
    """Ctrl-C during the start must not leave a command without its reader."""
    started = []

    def start(command):
        started.append(start_command(command))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    start_command = streams._start_command
    monkeypatch.setattr(streams, "_start_command", start)
    # a shell's background job ignores SIGINT, and so would the tests that it runs
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            read("pipe:sleep 60")
        assert started[0].returncode == -signal.SIGKILL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handler)


# HTTP


@pytest.mark.parametrize("path", ["whole", "chunked", "unknown length", "slow"])
def test_http_responses(http_server, path, monkeypatch):
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.5)  # slow: longer in all, but never silent for long
    monkeypatch.setattr(HttpHandler, "content", CONTENT)
    assert read(f"http://{http_server[0]}/{path}") == CONTENT


@pytest.mark.parametrize(
    ("path", "count", "message"),
    [
        ("cut", 3000, f"ended before the {len(CONTENT):,} bytes"),
        ("stall", 3000, "no data for 0.3 s"),
        ("chunkedcut", len(CONTENT), "broke off"),
    ],
)
def test_http_that_breaks_off_gives_what_came(http_server, short_stall, path, count, message):
    start = time.monotonic()
    content, error = read_until_it_breaks(f"http://me:hidden@{http_server[0]}/{path}?token=hidden")
    assert time.monotonic() - start < 3
    assert content == CONTENT[:count]
    assert isinstance(error, BrokenStreamError)
    assert error.offset == count
    assert message in str(error)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "404 Not Found"),
        ("forbidden", "403 Forbidden"),
        ("private", "401 Unauthorized"),
        ("hang", "for 0.3 s"),
        ("empty", "ended before"),
        ("loop", "redirect"),
        ("nonsense", "BadStatusLine"),
    ],
)
def test_http_without_a_byte_is_unreachable(http_server, short_stall, path, message):
    start = time.monotonic()
    content, error = read_until_it_breaks(f"http://you:hidden@{http_server[0]}/{path}?token=hidden")
    assert time.monotonic() - start < 3
    assert content == b""
    assert isinstance(error, UnreachableError)
    assert message in str(error)
    assert "hidden" not in str(error)


def test_http_sends_the_password_of_the_address(http_server):
    host, handler = http_server
    assert read(f"http://me:pass%20word@{host}/private") == CONTENT
    assert read(f"http://me:pass%20word@{host}/near") == CONTENT  # redirected on the same host
    assert handler.requests == [("/private", USER), ("/near", USER), ("/private", USER)]


def test_http_does_not_send_the_password_to_another_host():
    with run_server(HttpHandler) as (other, other_handler):
        with run_server(HttpHandler, elsewhere=other) as (host, handler):
            assert read(f"http://me:pass%20word@{host}/far") == CONTENT
        assert handler.requests == [("/far", USER)]
        assert other_handler.requests == [("/whole", None)]


def test_http_goes_through_the_proxy_of_the_environment(http_server, monkeypatch):
    host, handler = http_server
    monkeypatch.setenv("http_proxy", f"http://{host}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert read("http://no-such-host.invalid/x") == CONTENT
    assert handler.requests == [("http://no-such-host.invalid/x", None)]


# The hub


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("datasets/me/data/a/1.tar", "https://huggingface.co/datasets/me/data/resolve/main/a/1.tar"),
        ("datasets/me/data@v1/1.tar", "https://huggingface.co/datasets/me/data/resolve/v1/1.tar"),
        ("me/model/1.tar", "https://huggingface.co/me/model/resolve/main/1.tar"),
    ],
)
def test_public_files_of_the_hub_need_no_token(path, url, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "https://huggingface.co")
    assert resolve_hub_file(path) == (url, None)


@pytest.fixture
def hub(http_server, monkeypatch):
    """The HTTP server as a hub of a user with the token "hidden"."""

    class FileSystem:
        def resolve_path(self, url):
            assert url.startswith("hf://datasets/me/data@v1/")
            name = url.rpartition("/")[2]
            if name == "gone":
                raise FileNotFoundError("token=hidden")
            return SimpleNamespace(repo_id="me/data", path_in_repo=name, repo_type="dataset", revision="v1")

    def make_url(repo_id, name, *, repo_type, revision):
        assert (repo_id, repo_type, revision) == ("me/data", "dataset", "v1")
        return f"http://{http_server[0]}/{name}"

    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hidden")
    monkeypatch.setattr("huggingface_hub.HfFileSystem", FileSystem)
    monkeypatch.setattr("huggingface_hub.hf_hub_url", make_url)
    return http_server[1]


def test_hub_gets_the_token_and_the_host_of_the_file_does_not(hub):
    with run_server(HttpHandler) as (other, other_handler):
        hub.elsewhere = other
        assert read("hf://datasets/me/data@v1/far") == CONTENT
        assert hub.requests == [("/far", "Bearer hidden")]
        assert other_handler.requests == [("/whole", None)]


@pytest.mark.parametrize("name", ["gone", "forbidden"])
def test_errors_of_the_hub_do_not_show_the_token(hub, name):
    with pytest.raises(UnreachableError, match=r"can't find it|403") as caught:
        read(f"hf://datasets/me/data@v1/{name}")
    assert "hidden" not in str(caught.value)


# Object stores


def test_missing_packages_and_settings_are_not_tried_again(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        read("az://box/x")
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    with pytest.raises(MissingExtraError, match=r"\[data\]"):
        read(f"s3://{uuid4()}/x")


def test_object_that_hangs_is_unreachable(s3_server, short_stall, monkeypatch):
    monkeypatch.setattr(streams, "CLOSE_SECONDS", 0.1)
    s3_server.objects["bucket/hang"] = CONTENT
    start = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no data for 0.3 s"):
        read("s3://bucket/hang")
    assert time.monotonic() - start < 3


def test_object_that_is_refused_while_it_is_read_is_broken(s3_server, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(streams, "BLOCKS_AHEAD", 1)
    s3_server.objects["bucket/x"] = CONTENT
    with open_stream("s3://bucket/x") as file:
        assert file.read1(500) == CONTENT[:500]
        s3_server.refused = "bucket/x"
        with pytest.raises(BrokenStreamError) as caught:
            file.read()
    assert 1000 <= caught.value.offset < len(CONTENT)
    assert "hidden" not in str(caught.value)


def test_stream_that_is_left_early_waits_for_its_requests(s3_server, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    s3_server.objects["bucket/x"] = CONTENT
    with open_stream("s3://bucket/x") as file:
        file.read(1)
    requested = len(s3_server.requests)
    time.sleep(0.1)
    assert len(s3_server.requests) == requested
