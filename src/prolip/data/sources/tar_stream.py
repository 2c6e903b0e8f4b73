"""TarStream: WebDataset shards from a command or a network address, read once from front to back."""

from __future__ import annotations

import io
import logging
import os
import re
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from signal import SIGKILL
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.source import compute_fingerprint
from prolip.data.sources.sample_fields import SampleFields, require_unique_extensions
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES, URL, expand_braces, expand_paths
from prolip.data.sources.tar_format import StreamReader, TarDamageError, TarSample, iter_samples

log = logging.getLogger("prolip.data")
SCHEMES = ("pipe", "http", "https", "s3", "gs", "hf")
"""Beginnings of the addresses that can be read."""
STALL_SECONDS = 300.0
"""Without a byte for this long, a shard is given up: a server that hangs must not stop a training run."""

RETRY_SECONDS = (1.0, 5.0, 30.0)
"""Waits before a shard of which not one byte came is tried again."""

CURL = ("curl", "--connect-timeout", "30", "-f", "-sS", "-L")
HF_FILE = re.compile(r"hf://(?:(datasets|spaces)/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")
"""Address of a file of the hub: (kind of repository, repository, revision, path)."""
SECRET_NAME = r"(?:token|sig|secret|pass|auth|cred|key|session|policy|expires|jwt|x-amz-|x-goog-)"
"""Names of parameters and variables whose value may be secret."""
SECRETS = [
    (re.compile(r"(?<=://)[^/@\s'\"]+@"), "***@"),  # https://user:password@host
    (re.compile(rf"([?&][^=&\s]*{SECRET_NAME}[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE), r"\1***"),
    (re.compile(r"([?&][^=&\s]+=)[^&\s'\"]{33,}"), r"\1***"),  # long: not a number or name of a shard
    (re.compile(rf"(\b\w*{SECRET_NAME}\w*=)(?!\*)[^&\s'\"]+", re.IGNORECASE), r"\1***"),  # TOKEN=... command
    (re.compile(r"(\b(?:bearer|basic|token)[ :]+)[^\s'\"]+", re.IGNORECASE), r"\1***"),  # headers
    (re.compile(r"((?:^|\s)(?:-u|--user)[ =]?)\S+"), r"\1***"),  # curl -u user:password
]


class TarStream:
    """Tars that can only be read in order.

    Addresses are not checked until they are read; paths on disk must exist.

    Args:
        pattern: "pipe:command", http(s)://, s3:// (with the aws command), gs:// (with gsutil), hf://, or paths on disk;
            with ranges in braces, each of which gives shards; or a list of them.
        captions, images: see `SampleFields`.

    Raises:
        FileNotFoundError: If a path on disk does not exist, or if no shards were given.
        ValueError: If an address is of an unknown scheme.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = DEFAULT_CAPTIONS,
        images: Sequence[str] = DEFAULT_IMAGES,
    ) -> None:
        self.fields = SampleFields(captions, images)
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        shards = (shard for one_pattern in patterns for shard in _expand_addresses(one_pattern))
        self.shards = tuple(dict.fromkeys(shards))  # each once
        if not self.shards:
            raise FileNotFoundError("no shards were given: the list of patterns is empty")
        self.name = redact_secrets(patterns[0]) + (f", and {len(patterns) - 1} more" if patterns[1:] else "")

    def fingerprint(self) -> str:
        """Return a digest of the addresses without secrets: a new signature doesn't change the data."""
        return compute_fingerprint(
            *(ascii(redact_secrets(shard)) for shard in self.shards), *self.fields.describe()
        )

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | SampleError]:
        """Iterate over the samples of a shard, in order, good and bad.

        A stream can't seek: skipped samples are read and thrown away, not decoded. A shard that ends early or is
        damaged has one last SampleError for everything that is lost.

        Args:
            shard: its index in `shards`.
            skip: number of samples, good and bad, to skip at the beginning.

        Returns:
            An iterator over samples, and errors in place of bad ones.

        Raises:
            OSError: If the shard can't be reached at all, after several tries. A network that is down must not count as
                bad data.
        """
        if skip < 0:
            raise ValueError(f"skip must be 0 or more, not {skip}")
        return self._iter_shard(self.shards[shard], skip)

    def _iter_shard(self, url: str, skip: int) -> Iterator[Sample | SampleError]:
        """`read` of the shard at an address. If not one byte comes, it waits and tries again, as RETRY_SECONDS says.

        OSError after the last try.
        """
        location = redact_secrets(url)
        for wait in (*RETRY_SECONDS, None):  # None: the last try
            try:
                with open_stream(url) as file:
                    for sample in iter_samples(StreamReader(file), skip):
                        yield self._make_sample(sample, f"{location}: {sample.key}")
                return
            except TarDamageError as error:
                if error.complete_samples >= skip:
                    yield SampleError("broken shard", location, str(error))
                return
            except UnreachableError as error:  # not one byte came, so nothing was delivered twice
                if wait is None:
                    raise OSError(
                        f"{location}: {error}, tried {len(RETRY_SECONDS) + 1} times. Repair the shard, or leave it out."
                    ) from None
                log.warning("%s: %s; retrying in %g s", location, error, wait)
                time.sleep(wait)

    def _make_sample(self, sample: TarSample, location: str) -> Sample | SampleError:
        """Make a sample from its files; if it is bad, the record of why."""
        try:
            require_unique_extensions(sample.extensions, location)
            return self.fields.make_sample(sample.key, location, sample.files)
        except BadSampleError as error:
            return error.record


class UnreachableError(Exception):
    """Not one byte of a shard came."""


@contextmanager
def open_stream(url: str) -> Iterator[io.BufferedReader]:
    """Open an address for reading from front to back.

    Args:
        url: an address, a "pipe:command", or a path.

    Yields:
        A binary file that can't seek.

    Raises:
        UnreachableError: On reading, if not one byte comes.
        TarDamageError: On reading, if it breaks off.
    """
    if not URL.match(url):
        with _open_file(url) as file:
            yield io.BufferedReader(_WatchedPipe(file.fileno(), None), 2**18)
        return
    process = _start_command(url)
    assert process.stdout is not None
    # Worker shutdown: a worker process exits without collecting its generators, so `finally` would not run there and
    # the command would stay. Finalize runs at the exit of this process too, and never in a fork of it.
    end_command = Finalize(None, _end_command, (process,), exitpriority=0)
    try:
        yield io.BufferedReader(_WatchedPipe(process.stdout.fileno(), process), 2**18)
    finally:
        end_command()
        process.stdout.close()


def redact_secrets(url: str) -> str:
    """Replace user names, passwords, tokens and signatures by ***, for messages.

    Args:
        url: an address or command, or a message that contains one.

    Returns:
        The text without secrets.
    """
    for pattern, replacement in SECRETS:
        url = pattern.sub(replacement, url)
    return url


class _WatchedPipe(io.RawIOBase):
    """A raw file that reads a descriptor to its end; then the process behind it, if any, must have succeeded.

    Args:
        descriptor: descriptor of a pipe or a file; not closed here.
        process: the command that writes to the pipe; None for a file.
    """

    def __init__(self, descriptor: int, process: Popen[bytes] | None) -> None:
        self._descriptor, self._process, self._offset = descriptor, process, 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes; 0 at the end.

        UnreachableError or TarDamageError if no data comes for STALL_SECONDS, or if the process has failed.
        """
        if not self._poll.poll(STALL_SECONDS * 1000):
            raise self._make_stream_error(f"no data for {STALL_SECONDS:g} s")
        count = os.readv(self._descriptor, [buffer])
        self._offset += count
        if not count and self._process is not None:
            self._check_exit(self._process)
        return count

    def _check_exit(self, process: Popen[bytes]) -> None:
        """Wait for the process to end, and kill what it started; raise `_make_stream_error` if it has failed."""
        try:
            code = process.wait(STALL_SECONDS)
        except TimeoutExpired:
            message = f"the command closed its output but did not end within {STALL_SECONDS:g} s"
            raise self._make_stream_error(message) from None
        _kill_group(process)  # at once, while its process id can't be reused
        if code:
            raise self._make_stream_error(f"the command that reads it failed (exit code {code})")

    def _make_stream_error(self, message: str) -> Exception:
        """Make the error of this stream: TarDamageError if some bytes came, else UnreachableError, to try again."""
        return TarDamageError(message, self._offset) if self._offset else UnreachableError(message)


def _open_file(path: str) -> io.FileIO:
    """Open a file on disk, unbuffered; UnreachableError if it doesn't exist."""
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        raise UnreachableError("no such file") from None


def _start_command(url: str) -> Popen[bytes]:
    """Start the command that writes the content of an address, in a process group of its own.

    (webdataset's `gopen` has no process group, so the children of its commands can't be killed.) UnreachableError,
    with secrets redacted, if it can't be started.
    """
    try:
        command, stdin = _make_command(url)
        shell = isinstance(command, str)
        process = Popen(command, stdin=PIPE, stdout=PIPE, bufsize=0, shell=shell, start_new_session=True)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # closed, so that no command waits for input
            process.stdin.write(stdin)
        return process
    except Exception as error:  # anything from a missing curl to an error of the hub
        reason = f"{type(error).__name__}: {redact_secrets(str(error))}"
        raise UnreachableError(f"it can't be opened ({reason})") from None


def _end_command(process: Popen[bytes]) -> None:
    """Kill a command and its children: its reader is gone, and it may be waiting for the network."""
    if process.returncode is None:  # else it was waited for, and its process id may be reused
        _kill_group(process)
        with suppress(TimeoutExpired):  # not even SIGKILL ends one that waits for a broken disk
            process.wait(10)


def _kill_group(process: Popen[bytes]) -> None:
    """Send SIGKILL to a command and its children, which are in its process group."""
    with suppress(ProcessLookupError, PermissionError):  # none is left; PermissionError: zombies on macOS
        os.killpg(process.pid, SIGKILL)


def _make_command(url: str) -> tuple[str | list[str], bytes]:
    """Make the command that reads an address: (command, its standard input).

    The command is a text for the shell, or a list of a program and its arguments.
    """
    scheme, rest = url.split(":", 1)
    if scheme == "pipe":
        return rest, b""
    if scheme == "s3":
        return ["aws", "s3", "cp", url, "-"], b""
    if scheme == "gs":
        return ["gsutil", "cat", url], b""
    if scheme != "hf":  # http or https
        return [*CURL, url], b""
    address, config = _resolve_hub_file(url)
    return [*CURL, "-K", "-", address], config


def _resolve_hub_file(url: str) -> tuple[str, bytes]:
    """Find where curl gets a file of the hub: (URL, curl's configuration with the token; b"" without a token).

    The token is not among curl's arguments, because all users of the machine can see those. With a token, the hub is
    asked to resolve the address; without one, no request is made if the address has the usual form.
    """
    from huggingface_hub import HfFileSystem, get_token, hf_hub_url

    token = get_token()
    if token is None and (match := HF_FILE.fullmatch(url)):
        kind, repo, revision, path = match.groups()
        return hf_hub_url(repo, path, repo_type=kind and kind[:-1], revision=revision), b""
    file: Any = HfFileSystem().resolve_path(url)
    header = "" if token is None else f'header = "Authorization: Bearer {token}"\n'
    address = hf_hub_url(file.repo_id, file.path_in_repo, repo_type=file.repo_type, revision=file.revision)
    return address, header.encode()


def _expand_addresses(pattern: str) -> list[str]:
    """List the shards of an address with braces, or of a pattern of paths on disk; the scheme in lower case.

    ValueError, with secrets redacted, if the scheme or the braces are wrong; FileNotFoundError if a path is missing.
    """
    if not URL.match(pattern):
        return expand_paths(pattern)
    scheme = pattern.split(":", 1)[0].lower()
    if scheme not in SCHEMES:
        raise ValueError(
            f"{redact_secrets(pattern)}: {scheme} is not one of {SCHEMES}. Use one of them, or a path on disk."
        )
    pattern = scheme + pattern[len(scheme) :]
    if scheme == "pipe" and not pattern[5:].strip():
        raise ValueError("'pipe:' must be followed by a command, such as pipe:cat shard.tar")
    try:
        return expand_braces(pattern)
    except ValueError as error:
        raise ValueError(redact_secrets(str(error))) from None
