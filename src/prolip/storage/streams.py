"""Streams: files at any address, and the output of commands, read once from front to back; a stall is an error."""

from __future__ import annotations

import io
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from multiprocessing.util import Finalize
from subprocess import PIPE, Popen, TimeoutExpired
from types import FrameType
from typing import Any

from prolip.extras import MissingExtraError
from prolip.storage.addresses import Address, parse_address, redact_secrets
from prolip.storage.file_systems import open_file_system
from prolip.storage.http import open_http, resolve_hub_file

STALL_SECONDS = 300.0
"""Without a byte for this long, a stream is given up: a server that hangs must not stop a training run."""

BUFFER_BYTES = 2**18
"""Bytes that are read from a pipe, a disk or a socket at once."""
BLOCK_BYTES = 2**23
"""Bytes of a request to an object store, whose cost is mostly its latency."""
BLOCKS_AHEAD = 4
"""Requests to an object store that run at the same time, for one stream."""
CLOSE_SECONDS = 2.0
"""Longest wait for running requests when a stream is closed: a thread must not outlive the interpreter."""


class UnreachableError(Exception):
    """Not one byte of a stream came; it may be tried again."""


class BrokenStreamError(Exception):
    """A stream broke off.

    Attributes:
        offset: Number of bytes that came.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.message, self.offset = message, offset

    def __str__(self) -> str:
        return f"{self.message} at byte {self.offset}"


@contextmanager
def open_stream(location: str) -> Iterator[io.BufferedReader]:
    """Open an address for reading from front to back.

    Args:
        location: An address, "pipe:command", or a path, see `parse_address`.

    Yields:
        A binary file that can't seek.

    Raises:
        UnreachableError: If not one byte comes. Neither message has secrets.
        BrokenStreamError: On reading, if it breaks off.
        MissingExtraError: Object stores need pyarrow, which is not installed.
        ValueError: The address is not valid, or a setting of its object store is missing.
    """
    address = parse_address(location, "stream")
    openers: dict[str, Callable[[Address], Any]] = {
        "file": _open_file, "pipe": _open_command, "memory": _open_memory, "http": _open_url, "https": _open_url,
        "hf": _open_hub_file,
    }  # fmt: skip
    with openers.get(address.scheme, _open_object)(address) as stream:
        yield io.BufferedReader(stream, BUFFER_BYTES)


class _Stream(io.RawIOBase):
    """A raw file that counts its bytes. Subclasses read, and translate their errors with `_make_error`."""

    def __init__(self) -> None:
        self._offset = 0

    def readable(self) -> bool:
        return True

    def _make_error(self, message: str) -> Exception:
        """The error of this stream: BrokenStreamError if some bytes came, else UnreachableError, to try again."""
        message = redact_secrets(message)
        return BrokenStreamError(message, self._offset) if self._offset else UnreachableError(message)


class _DescriptorStream(_Stream):
    """A stream that reads a descriptor to its end; then the process behind it, if any, must have succeeded.

    Args:
        descriptor: descriptor of a pipe or a file; not closed here.
        process: the command that writes to the pipe; None for a file.
    """

    def __init__(self, descriptor: int, process: Popen[bytes] | None) -> None:
        super().__init__()
        self._descriptor, self._process = descriptor, process
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes; 0 at the end.

        UnreachableError or BrokenStreamError if no data comes for STALL_SECONDS, or if the process has failed.
        """
        if not self._poll.poll(STALL_SECONDS * 1000):
            raise self._make_error(f"no data for {STALL_SECONDS:g} s")
        count = os.readv(self._descriptor, [buffer])
        self._offset += count
        if not count and self._process is not None:
            self._check_exit(self._process)
        return count

    def _check_exit(self, process: Popen[bytes]) -> None:
        """Wait for the process to end, and kill what it started; raise `_make_error` if it has failed."""
        try:
            code = process.wait(STALL_SECONDS)
        except TimeoutExpired:
            message = f"the command closed its output but did not end within {STALL_SECONDS:g} s"
            raise self._make_error(message) from None
        _kill_group(process)  # at once, while its process id can't be reused
        if code:
            raise self._make_error(f"the command that reads it failed (exit code {code})")


class _HttpStream(_Stream):
    """The body of an HTTP response, which must be as long as its header says.

    Args:
        response: The response; closed with the stream.
    """

    def __init__(self, response: HTTPResponse) -> None:
        super().__init__()
        self._response, self._length = response, response.length

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes; 0 at the end.

        UnreachableError or BrokenStreamError if no data comes for STALL_SECONDS, or if the connection ends early.
        """
        count = len(buffer) if self._length is None else min(len(buffer), self._length - self._offset)
        if not count:
            return 0
        try:
            # read1: what has come before a stall is delivered; `readinto` would wait for a full buffer and lose it.
            piece = self._response.read1(count)
        except TimeoutError:
            raise self._make_error(f"no data for {STALL_SECONDS:g} s") from None
        except (OSError, HTTPException) as error:
            raise self._make_error(f"the connection broke off ({type(error).__name__}: {error})") from None
        if not piece and self._length is not None:
            raise self._make_error(
                f"the connection ended before the {self._length:,} bytes that were announced"
            )
        buffer[: len(piece)] = piece
        self._offset += len(piece)
        return len(piece)

    def close(self) -> None:
        self._response.close()
        super().close()


class _ObjectStream(_Stream):
    """An object of a store, read by several requests at once, in threads of this process.

    The threads are daemons: a request that hangs must not keep the process from ending.

    Args:
        address: Address of the object.
    """

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._requests: deque[Future[Any]] = deque()
        self._block = memoryview(b"")
        self._file, self._size = self._wait(_run_in_thread(lambda: _open_object_file(address)))
        self._next = 0

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes; 0 at the end.

        UnreachableError or BrokenStreamError if a request fails or takes more than STALL_SECONDS.
        """
        if not self._block:
            self._request_blocks()
            if not self._requests:
                return 0
            self._block = memoryview(self._wait(self._requests.popleft()))
            if not self._block:
                raise self._make_error(f"the object ended before its {self._size:,} bytes")
        count = min(len(buffer), len(self._block))
        buffer[:count], self._block = self._block[:count], self._block[count:]
        self._offset += count
        return count

    def _request_blocks(self) -> None:
        """Start requests until BLOCKS_AHEAD run, or the end is requested."""
        while self._next < self._size and len(self._requests) < BLOCKS_AHEAD:
            count = min(BLOCK_BYTES, self._size - self._next)
            self._requests.append(_run_in_thread(self._file.read_at, count, self._next))
            self._next += count

    def _wait(self, request: Future[Any]) -> Any:
        """Wait for the result of a request; errors become those of this stream, unless a setting is wrong."""
        try:
            return request.result(STALL_SECONDS)
        except TimeoutError as error:
            message = str(error) if request.done() else f"no data for {STALL_SECONDS:g} s"
            raise self._make_error(message) from None
        except (MissingExtraError, ValueError):  # a second try would not help
            raise
        except Exception as error:
            raise self._make_error(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        if not self.closed:
            wait(self._requests, CLOSE_SECONDS)
        super().close()


@contextmanager
def _open_file(address: Address) -> Iterator[_Stream]:
    """Open a file on disk, unbuffered; UnreachableError if it doesn't exist."""
    try:
        file = open(address.path, "rb", buffering=0)  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        raise UnreachableError("no such file") from None
    with file:
        yield _DescriptorStream(file.fileno(), None)


@contextmanager
def _open_memory(address: Address) -> Iterator[io.BytesIO]:
    try:
        content = open_file_system(address).cat_file(address.path)
    except FileNotFoundError:
        raise UnreachableError("no such file") from None
    yield io.BytesIO(content)


@contextmanager
def _open_url(address: Address, token: str | None = None) -> Iterator[_Stream]:
    try:
        response = open_http(address.url, STALL_SECONDS, token)
    except OSError as error:
        raise UnreachableError(str(error)) from None
    with _HttpStream(response) as stream:
        yield stream


@contextmanager
def _open_hub_file(address: Address) -> Iterator[_Stream]:
    try:
        url, token = resolve_hub_file(address.path)
    except Exception as error:  # anything from a missing network to an error of the hub
        reason = f"{type(error).__name__}: {redact_secrets(str(error))}"
        raise UnreachableError(f"the hub can't find it ({reason})") from None
    with _open_url(parse_address(url, "stream"), token) as stream:
        yield stream


@contextmanager
def _open_object(address: Address) -> Iterator[_Stream]:
    stream = _ObjectStream(address)
    # At the exit of this process too, for a reader that was never closed.
    close = Finalize(None, stream.close, exitpriority=0)
    try:
        yield stream
    finally:
        close()


def _open_object_file(address: Address) -> tuple[Any, int]:
    """pyarrow's file of an object, whose `read_at` several threads may call, and its size in bytes."""
    file = open_file_system(address).fs.open_input_file(address.path)
    return file, file.size()


def _run_in_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Call a function in a new daemon thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # handed to who waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def _open_command(address: Address) -> Iterator[_Stream]:
    """Start a command, and end it with its children when the stream is closed."""
    with ExitStack() as stack:
        with (
            _delay_interrupt()
        ):  # else Ctrl-C between the start and the next line would leave the command running
            process = _start_command(address.path)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            # Worker shutdown: a worker process exits without collecting its generators, so nothing of the stack would
            # run there and the command would stay. Finalize runs at the exit of this process too, and never in a fork.
            stack.callback(Finalize(None, _end_command, (process,), exitpriority=0))
        yield _DescriptorStream(process.stdout.fileno(), process)


@contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended. (Only the main thread is ever interrupted.)"""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            handler(*interrupts[0])


def _start_command(command: str) -> Popen[bytes]:
    """Start a command of the shell, in a process group of its own.

    (webdataset's `gopen` has no process group, so the children of its commands can't be killed.) UnreachableError,
    with secrets redacted, if it can't be started.
    """
    try:
        process = Popen(command, stdin=PIPE, stdout=PIPE, bufsize=0, shell=True, start_new_session=True)
        assert process.stdin is not None
        process.stdin.close()  # so that no command waits for input
        return process
    except OSError as error:
        reason = f"{type(error).__name__}: {redact_secrets(str(error))}"
        raise UnreachableError(f"the command can't be started ({reason})") from None


def _end_command(process: Popen[bytes]) -> None:
    """Kill a command and its children: its reader is gone, and it may be waiting for the network."""
    if process.returncode is None:  # else it was waited for, and its process id may be reused
        _kill_group(process)
        with suppress(TimeoutExpired):  # not even SIGKILL ends one that waits for a broken disk
            process.wait(10)


def _kill_group(process: Popen[bytes]) -> None:
    """Send SIGKILL to a command and its children, which are in its process group."""
    with suppress(ProcessLookupError, PermissionError):  # none is left; PermissionError: zombies on macOS
        os.killpg(process.pid, signal.SIGKILL)
