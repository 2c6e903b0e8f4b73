"""Benchmark of storage: shards streamed from disk, HTTP and S3, against the commands and libraries they replace."""

from __future__ import annotations

import http.server
import io
import multiprocessing
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import numpy as np

from benchmarks.timing import time_interleaved
from prolip.console import make_table, print_tables
from prolip.data.sources.tar_format import StreamReader, iter_samples, write_tar
from prolip.progress import progress_bar
from prolip.storage import open_storage, open_stream, parse_address
from prolip.storage.streams import BLOCK_BYTES, BUFFER_BYTES

SAMPLE_BYTES = 100_000
"""Size of an image in the shard."""


@dataclass(frozen=True, kw_only=True)
class ReadingRate:
    """The speed of reading one shard in one way."""

    place: str
    """Where the shard is: disk, HTTP or S3."""
    method: str
    """How it is read. The first method of a place is ours."""
    megabytes_per_second: float
    """Median over the repeats; a megabyte has 10^6 bytes."""
    relative: float
    """Speed as a multiple of the first method's."""


@dataclass(frozen=True, kw_only=True)
class StorageRates:
    """Result of the benchmark."""

    megabytes: float
    """Size of the shard."""
    repeats: int
    """Interleaved runs of each method."""
    rates: tuple[ReadingRate, ...]


def run(*, mebibytes: int = 64, repeats: int = 5, s3: str | None = None) -> StorageRates:
    """Read a shard of random samples in several ways, and split it into samples.

    Args:
        mebibytes: Size of the shard.
        repeats: Interleaved runs of each method.
        s3: Address of a folder on an S3 server (AWS_ENDPOINT_URL), where the shard is written for a moment; None: S3
            is not measured.

    Returns:
        The rates.
    """
    if mebibytes < 1 or repeats < 1:
        raise ValueError(f"mebibytes {mebibytes} and repeats {repeats} must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "shard.tar"
        rng = np.random.default_rng(0)
        num_samples = max(1, mebibytes * 2**20 // SAMPLE_BYTES)
        write_tar(
            shard, ((f"{i:06d}", {"jpg": rng.bytes(SAMPLE_BYTES), "txt": b"a"}) for i in range(num_samples))
        )
        with _serve(shard) as url, _upload(shard, s3) as s3_address:
            places = {"disk": _make_disk_methods(shard), "HTTP": _make_http_methods(url)}
            if s3_address is not None:
                places["S3"] = _make_s3_methods(s3_address)
            seconds = _time_methods(places, num_samples, repeats)
        megabytes = shard.stat().st_size / 1e6
    rates = [
        ReadingRate(
            place=place, method=method, megabytes_per_second=megabytes / seconds[place, method],
            relative=seconds[place, next(iter(methods))] / seconds[place, method],
        )
        for place, methods in places.items()
        for method in methods
    ]  # fmt: skip
    return StorageRates(megabytes=megabytes, repeats=repeats, rates=tuple(rates))


def print_result(result: StorageRates) -> None:
    """Print the result of `run` as a table."""
    title = f"a shard of {result.megabytes:.0f} MB, medians of {result.repeats}"
    rows = [
        (rate.place, rate.method, f"{rate.megabytes_per_second:,.0f}", f"{rate.relative:.2f}")
        for rate in result.rates
    ]
    print_tables([make_table(title, ("place", "read by"), ("MB/s", "relative to ours"), rows)])


Methods = dict[str, Callable[[], Any]]
"""By name: a function that returns a context manager of an open file."""


def _make_disk_methods(shard: Path) -> Methods:
    return {
        "open_stream": lambda: open_stream(str(shard)),
        "fsspec's local file system": lambda: _open_with_fsspec(shard.as_uri()),
        "cat through a pipe": lambda: open_stream(f"pipe:cat {shard}"),
    }


def _make_http_methods(url: str) -> Methods:
    methods: Methods = {"open_stream": lambda: open_stream(url)}
    if shutil.which("curl"):
        methods["curl through a pipe"] = lambda: open_stream(f"pipe:curl -f -sS -L {url}")
    if find_spec("aiohttp"):
        methods["fsspec's HTTP file system"] = lambda: _open_with_fsspec(url, block_size=0)
    return methods


def _make_s3_methods(address: str) -> Methods:
    methods: Methods = {"open_stream": lambda: open_stream(address)}
    if shutil.which("aws"):
        methods["aws s3 cp through a pipe"] = lambda: open_stream(f"pipe:aws s3 cp {address} -")
    if find_spec("s3fs"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        methods["s3fs"] = lambda: _open_with_fsspec(
            address, default_block_size=BLOCK_BYTES, endpoint_url=endpoint
        )
    return methods


@contextmanager
def _open_with_fsspec(address: str, **options: Any) -> Iterator[io.BufferedReader]:
    """fsspec's own file, with the buffer of `open_stream`: the parser of tars makes many small reads."""
    with fsspec.open(address, **options) as file:
        yield io.BufferedReader(file, BUFFER_BYTES)


def _time_methods(places: dict[str, Methods], num_samples: int, repeats: int) -> dict[tuple[str, str], float]:
    """Median seconds of each (place, method)."""
    works = {
        f"{place}/{method}": lambda open_file=open_file: _read(open_file, num_samples)
        for place, methods in places.items()
        for method, open_file in reversed(methods.items())  # records are relative to the first: not to ours
    }
    for work in works.values():
        work()
    with progress_bar("measuring", len(works) * repeats, "runs") as advance:
        seconds = time_interleaved(works, repeats, advance)
    return {
        (place, method): statistics.median(seconds[f"{place}/{method}"])
        for place, methods in places.items()
        for method in methods
    }


def _read(open_file: Callable[[], Any], num_samples: int) -> None:
    """Read a shard to its end; RuntimeError if samples are missing."""
    file: BinaryIO
    with open_file() as file:
        count = sum(1 for _ in iter_samples(StreamReader(file)))
    if count != num_samples:
        raise RuntimeError(f"{count} samples were read, not {num_samples}")


@contextmanager
def _upload(shard: Path, folder: str | None) -> Iterator[str | None]:
    """The address of a copy of the shard in an S3 folder, removed at the end; None without a folder."""
    if folder is None:
        yield None
        return
    address, storage = parse_address(folder, "folder"), open_storage(folder)
    content = shard.read_bytes()
    storage.write(shard.name, lambda file: file.write(content))
    try:
        yield f"{address.url}/{shard.name}"
    finally:
        storage.remove(shard.name)


@contextmanager
def _serve(shard: Path) -> Iterator[str]:
    """The URL of a file, served on 127.0.0.1 by a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(
        target=_run_server, args=(str(shard), sender), daemon=True
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{receiver.recv()}/shard.tar"
    finally:
        server.kill()
        server.join()


def _run_server(shard: str, sender: Connection) -> None:
    """Serve one file, without copying it through Python, until the process is killed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(200)
            size = os.path.getsize(shard)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            with suppress(ConnectionError), open(shard, "rb") as file:  # a client may have seen enough
                if self.command == "GET":
                    self.connection.sendfile(file)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sender.send(server.server_port)
    server.serve_forever()
