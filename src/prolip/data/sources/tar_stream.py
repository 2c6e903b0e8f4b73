"""Shards that come through a pipe or over a network: read in order, once, from front to back."""

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
from prolip.data.sources.sample_fields import SampleFields
from prolip.data.sources.tar import CAPTIONS, IMAGES, URL, expand, expand_braces
from prolip.data.sources.tar_format import TarDamageError, Group, StreamReader, groups

log = logging.getLogger("prolip.data")
SCHEMES = ("pipe", "http", "https", "s3", "gs", "hf")
STALL_SECONDS = 300.0
"""How long nothing may come before a shard is given up: a server that says nothing must not stop a training."""

WAITS = (1.0, 5.0, 30.0)
"""Seconds before a shard of which not one byte came is tried again."""

CURL = ("curl", "--connect-timeout", "30", "-f", "-sS", "-L")
HF_FILE = re.compile(r"hf://(?:(datasets|spaces)/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")
SECRET_NAME = r"(?:token|sig|secret|pass|auth|cred|key|session|policy|expires|jwt|x-amz-|x-goog-)"
SECRETS = [
    (re.compile(r"(?<=://)[^/@\s'\"]+@"), "***@"),  # https://user:password@host
    (re.compile(rf"([?&][^=&\s]*{SECRET_NAME}[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE), r"\1***"),
    (re.compile(r"([?&][^=&\s]+=)[^&\s'\"]{33,}"), r"\1***"),  # long: no number or name of a shard
    (re.compile(rf"(\b\w*{SECRET_NAME}\w*=)(?!\*)[^&\s'\"]+", re.IGNORECASE), r"\1***"),  # TOKEN=... command
    (re.compile(r"(\b(?:bearer|basic|token)[ :]+)[^\s'\"]+", re.IGNORECASE), r"\1***"),  # headers
    (re.compile(r"((?:^|\s)(?:-u|--user)[ =]?)\S+"), r"\1***"),  # curl -u user:password
]


class TarStream:
    """Tars that can only be read in order.

    pattern:  "pipe:command", http(s)://, s3:// (by the aws tool), gs:// (by gsutil), hf://, or paths on disk; with
              ranges in braces, of which each makes a shard; or a list of them.
    captions, images: as for `TarShards`.

    The shards are only looked at when they are read, but for paths: those must exist.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = CAPTIONS,
        images: Sequence[str] = IMAGES,
    ) -> None:
        self.picks = SampleFields(captions, images)
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        self.shards = tuple(dict.fromkeys(shard for one in patterns for shard in _shards(one)))
        if not self.shards:
            raise FileNotFoundError("no shard was named")
        self.name = redact_secrets(patterns[0]) + (f", and {len(patterns) - 1} more" if patterns[1:] else "")

    def fingerprint(self) -> str:
        """Of the addresses without their secrets: a new signature doesn't make other data."""
        return compute_fingerprint(
            *(ascii(redact_secrets(shard)) for shard in self.shards), *self.picks.facts()
        )

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | SampleError]:
        """The samples of a shard in order, each bad one in its place, without the first `skip`.

        A stream can't seek: skipped samples are read and thrown away, not decoded.
        A shard that ends early or is damaged has one last SampleError for all that is lost. One that can't be reached at all,
        though it was tried again after a while, is an OSError: a network that is away must not pass for bad data.
        """
        if skip < 0:
            raise ValueError(f"skip must be 0 or more, not {skip}")
        return self._read(self.shards[shard], skip)

    def _read(self, url: str, skip: int) -> Iterator[Sample | SampleError]:
        where = redact_secrets(url)
        for wait in (*WAITS, None):
            try:
                with opened(url) as file:
                    for group in groups(StreamReader(file), skip):
                        yield self._sample(group, f"{where}: {group.key}")
                return
            except TarDamageError as error:
                if error.whole >= skip:
                    yield SampleError("broken shard", where, str(error))
                return
            except UnreachableError as error:  # nothing has come of it yet
                if wait is None:
                    raise OSError(
                        f"{where}: {error}, tried {len(WAITS) + 1} times; mend or leave it out"
                    ) from None
                log.warning("%s: %s; trying again in %g s", where, error, wait)
                time.sleep(wait)

    def _sample(self, group: Group, where: str) -> Sample | SampleError:
        if group.twice:
            return SampleError("two files of one kind", where, f"two {group.twice}")
        try:
            return self.picks.sample(group.key, where, group.files)
        except BadSampleError as error:
            return error.record


class UnreachableError(Exception):
    """Not one byte of a shard came."""


@contextmanager
def opened(url: str) -> Iterator[io.BufferedReader]:
    """What stands at an address, from front to back. UnreachableError: not one byte comes; TarDamageError: it stops."""
    if not URL.match(url):
        with _file(url) as file:
            yield io.BufferedReader(_Watched(file.fileno(), None), 2**18)
        return
    process = _started(url)
    assert process.stdout is not None
    # Called at the end of a worker too, which doesn't let go of its streams; never in a fork of this process.
    end = Finalize(None, _end, (process,), exitpriority=0)
    try:
        yield io.BufferedReader(_Watched(process.stdout.fileno(), process), 2**18)
    finally:
        end()
        process.stdout.close()


def redact_secrets(url: str) -> str:
    """For messages: user names, passwords, tokens and signatures are replaced by ***."""
    for pattern, stars in SECRETS:
        url = pattern.sub(stars, url)
    return url


class _Watched(io.RawIOBase):
    """A descriptor, read until its end. Then the process behind it must have succeeded."""

    def __init__(self, descriptor: int, process: Popen[bytes] | None) -> None:
        self._descriptor, self._process, self._at = descriptor, process, 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._poll.poll(STALL_SECONDS * 1000):
            raise self._error(f"nothing came for {STALL_SECONDS:g} s")
        count = os.readv(self._descriptor, [buffer])
        self._at += count
        if not count and self._process is not None:
            self._check_exit(self._process)
        return count

    def _check_exit(self, process: Popen[bytes]) -> None:
        try:
            code = process.wait(STALL_SECONDS)
        except TimeoutExpired:
            what = f"the command gave its last byte but did not end in {STALL_SECONDS:g} s"
            raise self._error(what) from None
        _kill_group(process)  # at once, while its number can't be another's
        if code:
            raise self._error(f"the command that reads it failed (exit code {code})")

    def _error(self, what: str) -> Exception:
        return TarDamageError(what, self._at) if self._at else UnreachableError(what)


def _file(path: str) -> io.FileIO:
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        raise UnreachableError("there is no such file") from None


def _started(url: str) -> Popen[bytes]:
    """The command that writes what stands at an address, with a process group of its own.

    (Not by webdataset's `gopen`, whose commands can only be killed without the children that they have started.)
    """
    try:
        command, told = _command(url)
        shell = isinstance(command, str)
        process = Popen(command, stdin=PIPE, stdout=PIPE, bufsize=0, shell=shell, start_new_session=True)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # closed, so that no command waits for words from us
            process.stdin.write(told)
        return process
    except Exception as error:  # from curl's absence to what a hub answers
        why = f"{type(error).__name__}: {redact_secrets(str(error))}"
        raise UnreachableError(f"it can't be opened ({why})") from None


def _end(process: Popen[bytes]) -> None:
    """End a command and all that it has started: its reader has gone, and it may wait for a network."""
    if process.returncode is None:  # else it was waited for, and its number may be another's by now
        _kill_group(process)
        with suppress(TimeoutExpired):  # not even a kill ends one that waits for a broken disk
            process.wait(10)


def _kill_group(process: Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # none is left; macOS says the latter of zombies
        os.killpg(process.pid, SIGKILL)


def _command(url: str) -> tuple[str | list[str], bytes]:
    """A line for the shell, or a program and its arguments; and what it is told on its standard input."""
    scheme, rest = url.split(":", 1)
    if scheme == "pipe":
        return rest, b""
    if scheme == "s3":
        return ["aws", "s3", "cp", url, "-"], b""
    if scheme == "gs":
        return ["gsutil", "cat", url], b""
    if scheme != "hf":
        return [*CURL, url], b""
    address, config = _hub_file(url)
    return [*CURL, "-K", "-", address], config


def _hub_file(url: str) -> tuple[str, bytes]:
    """The address of a file of the hub, and curl's configuration: a token among the arguments is for all to see.

    Without a token, the hub isn't asked where the file is.
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


def _shards(pattern: str) -> list[str]:
    if not URL.match(pattern):
        return expand(pattern)
    scheme = pattern.split(":", 1)[0].lower()
    if scheme not in SCHEMES:
        raise ValueError(f"{redact_secrets(pattern)}: {scheme} is not one of {SCHEMES}, nor a path on disk")
    pattern = scheme + pattern[len(scheme) :]
    if scheme == "pipe" and not pattern[5:].strip():
        raise ValueError("'pipe:' must be followed by a command, such as pipe:cat shard.tar")
    try:
        return expand_braces(pattern)
    except ValueError as error:
        raise ValueError(redact_secrets(str(error))) from None
