"""Shards that come through a pipe or over a network: read in order, once, from front to back."""

from __future__ import annotations

import io
import os
import re
import select
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from subprocess import Popen, TimeoutExpired
from typing import Any

from prolip.data.picks import Picks
from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.data.shards import CAPTIONS, IMAGES, URL, expand, expand_braces
from prolip.data.source import fingerprint_of
from prolip.data.tars import DamageError, Group, StreamTape, groups

SCHEMES = ("pipe", "http", "https", "s3", "gs", "hf")
STALL_SECONDS = 300.0
"""How long nothing may come before a shard is given up: a server that says nothing must not stop a training."""

WAITS = (1.0, 5.0)
"""Seconds before a shard of which not one byte came is tried again."""

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


class Stream:
    """Tars that can only be read in order.

    pattern:  "pipe:command", http(s)://, s3:// (by the aws tool), gs:// (by gsutil), hf://, or paths on disk; with
              ranges in braces, of which each makes a shard; or a list of them.
    captions, images: as for `Shards`.

    The shards are only looked at when they are read, but for paths: those must exist.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = CAPTIONS,
        images: Sequence[str] = IMAGES,
    ) -> None:
        self.picks = Picks(captions, images)
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        self.shards = tuple(dict.fromkeys(shard for one in patterns for shard in _shards(one)))
        if not self.shards:
            raise FileNotFoundError("no shard was named")
        self.name = without_secrets(patterns[0]) + (f", and {len(patterns) - 1} more" if patterns[1:] else "")

    def fingerprint(self) -> str:
        """Of the addresses without their secrets: a new signature doesn't make other data."""
        return fingerprint_of(*(ascii(without_secrets(shard)) for shard in self.shards), *self.picks.facts())

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | Bad]:
        """The samples of a shard in order, each bad one in its place, without the first `skip`.

        A shard that ends early or is damaged has one last Bad for all that is lost. One that can't be reached at all,
        though it was tried again after a while, is an OSError: a network that is away must not pass for bad data.
        """
        if skip < 0:
            raise ValueError(f"skip must be 0 or more, not {skip}")
        return self._read(self.shards[shard], skip)

    def _read(self, url: str, skip: int) -> Iterator[Sample | Bad]:
        where = without_secrets(url)
        for wait in (*WAITS, None):
            try:
                with opened(url) as file:
                    for group in groups(StreamTape(file), skip):
                        yield self._sample(group, f"{where}: {group.key}")
                return
            except DamageError as error:
                if error.whole >= skip:
                    yield Bad("broken shard", where, str(error))
                return
            except UnreachableError as error:  # nothing has come of it yet
                if wait is None:
                    raise OSError(
                        f"{where}: {error}, tried {len(WAITS) + 1} times; mend or leave it out"
                    ) from None
                time.sleep(wait)

    def _sample(self, group: Group, where: str) -> Sample | Bad:
        if group.twice:
            return Bad("two files of one kind", where, f"two {group.twice}")
        try:
            return self.picks.sample(group.key, where, group.files)
        except BadSampleError as error:
            return error.bad


class UnreachableError(Exception):
    """Not one byte of a shard came."""


@contextmanager
def opened(url: str) -> Iterator[io.BufferedReader]:
    """What stands at an address, from front to back. UnreachableError: not one byte comes; DamageError: it stops."""
    file = _open(url)
    process = getattr(file, "proc", None)  # of a webdataset Pipe; a file on disk has none
    source = getattr(file, "stream", file)
    try:
        yield io.BufferedReader(_Watched(source.fileno(), process), 2**18)
    finally:
        if process is not None and process.poll() is None:
            process.kill()  # its reader has gone, and it may wait for a network
        with suppress(OSError):  # a Pipe that was killed, or whose exit code was told already
            file.close()


def without_secrets(url: str) -> str:
    """For messages: user names, passwords, tokens and signatures are replaced by ***."""
    for pattern, stars in SECRETS:
        url = pattern.sub(stars, url)
    return url


class _Watched(io.RawIOBase):
    """A descriptor, read until its end. Then the process behind it must have succeeded.

    Not webdataset's own `Pipe.read`, which may see a process fail before what it has written is read."""

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
        if code:
            raise self._error(f"the command that reads it failed (exit code {code})")

    def _error(self, what: str) -> Exception:
        return DamageError(what, self._at) if self._at else UnreachableError(what)


def _open(url: str) -> Any:
    if not URL.match(url):
        try:
            return open(url, "rb", buffering=0)
        except FileNotFoundError:
            raise UnreachableError("there is no such file") from None
    # Imported here, as it takes seconds; and by name, as `webdataset.gopen` is a function that hides the module.
    gopen = import_module("webdataset.gopen")
    try:
        return gopen.gopen(_for_gopen(url, gopen.gopen_schemes))
    except Exception as error:  # from curl's absence to what a hub answers
        why = f"{type(error).__name__}: {without_secrets(str(error))}"
        raise UnreachableError(f"it can't be opened ({why})") from None


def _for_gopen(url: str, schemes: dict[str, Any]) -> str:
    """The address in a form that webdataset can open."""
    if url.startswith("s3://") and "s3" not in schemes:
        return f"pipe:aws s3 cp {shlex.quote(url)} -"
    if match := HF_FILE.fullmatch(url):
        from huggingface_hub import get_token, hf_hub_url

        if (
            get_token() is None
        ):  # webdataset would send "Bearer None", which the hub refuses for public files too
            kind, repo, revision, path = match.groups()
            return hf_hub_url(repo, path, repo_type=kind and kind[:-1], revision=revision)
    return url


def _shards(pattern: str) -> list[str]:
    if not URL.match(pattern):
        return expand(pattern)
    scheme = pattern.split(":", 1)[0].lower()
    if scheme not in SCHEMES:
        raise ValueError(f"{without_secrets(pattern)}: {scheme} is not one of {SCHEMES}, nor a path on disk")
    if scheme == "pipe" and not pattern[5:].strip():
        raise ValueError("'pipe:' must be followed by a command, such as pipe:cat shard.tar")
    try:
        return expand_braces(pattern)
    except ValueError as error:
        raise ValueError(without_secrets(str(error))) from None
