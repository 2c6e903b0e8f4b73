"""Addresses of files and folders: one list of schemes, one spelling of each address, and no secrets in messages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal
from urllib.parse import unquote

Use = Literal["stream", "folder", "database"]
"""What an address is used for. stream: data that is read from front to back. folder: a set of files, such as
embeddings. database: a LanceDB database."""

SCHEMES: dict[str, tuple[Use, ...]] = {
    "file": ("stream", "folder", "database"),
    "s3": ("stream", "folder", "database"),
    "gs": ("stream", "folder", "database"),
    "az": ("stream", "folder", "database"),
    "memory": ("stream", "folder"),
    "http": ("stream",),
    "https": ("stream",),
    "hf": ("stream",),
    "pipe": ("stream",),
}
"""All schemes, and what each can be used for. A path on disk has none, and means the same as file://. memory:// is
fsspec's file system in the memory of one process, for tests."""

SYNONYMS = {"gcs": "gs", "abfs": "az", "abfss": "az"}
"""Other spellings of schemes; an address is stored and shown with the scheme on the right."""

NAMES_OF_USES: dict[Use, str] = {
    "stream": "streams of data",
    "folder": "folders of files",
    "database": "databases",
}

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or az login",
}
"""Where each object store takes its credentials from, for messages."""

PREFIX = re.compile(r"(?:([a-z][a-z0-9+.-]*)://|(pipe):)", re.IGNORECASE)
AZURE_HOST = re.compile(r"([^@/]+)@([\w-]+)\.(?:dfs|blob)\.core\.windows\.net(?:/|$)", re.IGNORECASE)
"""The beginning of an Azure address with the name of the account: CONTAINER@ACCOUNT.dfs.core.windows.net"""

SECRET_NAME = r"(?:token|sig|secret|pass|auth|cred|key|session|policy|expires|jwt|x-amz-|x-goog-)"
"""Names of parameters and variables whose value may be secret."""
AZURE_CONTAINER = r"(?![^/:@\s'\"]+@[\w-]+\.(?:dfs|blob)\.core\.windows\.net)"
"""Not before az://container@account.dfs.core.windows.net, which has no password."""
PASSWORD = re.compile(rf"(?<=://){AZURE_CONTAINER}[^/@\s'\"]+@")
"""user:password@ of https://user:password@host."""
SECRETS = [
    (PASSWORD, "***@"),
    (re.compile(rf"([?&][^=&\s]*{SECRET_NAME}[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE), r"\1***"),
    (re.compile(r"([?&][^=&\s]+=)[^&\s'\"]{33,}"), r"\1***"),  # long: not a number or name of a shard
    (re.compile(rf"(\b\w*{SECRET_NAME}\w*=)(?!\*)[^&\s'\"]+", re.IGNORECASE), r"\1***"),  # TOKEN=... command
    (re.compile(r"(\b(?:bearer|basic|token)[ :]+)[^\s'\"]+", re.IGNORECASE), r"\1***"),  # headers
    (re.compile(r"((?:^|\s)(?:-u|--user)[ =]?)\S+"), r"\1***"),  # curl -u user:password
]


@dataclass(frozen=True, repr=False)
class Address:
    """A parsed address in its one spelling. str() and repr() show it without secrets.

    Attributes:
        scheme: A key of SCHEMES; "file" for a path on disk.
        path: The path on disk; bucket/key of an object store; of http, https and hf what follows "://"; the command of
            a pipe.
        account: Of az: the storage account, if the address names it; otherwise "".
    """

    scheme: str
    path: str
    account: str = ""

    @property
    def url(self) -> str:
        """The address with its secrets, for those who open it. Of a path on disk, the path."""
        if self.scheme == "file":
            return self.path
        if self.scheme == "pipe":
            return f"pipe:{self.path}"
        if self.account:
            container, slash, key = self.path.partition("/")
            return f"az://{container}@{self.account}.dfs.core.windows.net{slash}{key}"
        return f"{self.scheme}://{self.path}"

    @property
    def bucket(self) -> str:
        """The bucket or container of an object store."""
        return self.path.partition("/")[0]

    def __str__(self) -> str:
        return redact_secrets(self.url)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def parse_address(location: str | os.PathLike[str], use: Use) -> Address:
    """Parse a path or an address into its one spelling.

    Args:
        location: A path (~ is expanded), file:///path, s3://bucket/key, gs:// (or gcs://) bucket/key, az:// (or
            abfs://, abfss://) container/key or container@account.dfs.core.windows.net/key, http(s)://, hf://,
            memory://, or pipe:command.
        use: What it is for.

    Returns:
        The address.

    Raises:
        ValueError: The scheme is unknown or can't be used for this, the address has no bucket or command, or it
            contains credentials of an object store. The message has no secrets.
    """
    text = os.fspath(location)
    match = PREFIX.match(text)
    if match is None:
        return Address("file", os.path.expanduser(text))
    written = (match[1] or match[2]).lower()
    scheme, rest = SYNONYMS.get(written, written), text[match.end() :]
    _require_use(text, scheme, use)
    if scheme == "file":
        return Address(scheme, _parse_file_path(text, rest))
    if scheme == "pipe":
        if not rest.strip():
            raise ValueError("'pipe:' must be followed by a command, such as pipe:cat shard.tar")
        return Address(scheme, rest)
    if scheme in CREDENTIALS:
        return _parse_object_address(text, scheme, rest)
    if not rest.strip("/"):
        raise ValueError(f"{redact_secrets(text)}: nothing follows {scheme}://")
    return Address(scheme, rest.rstrip("/") if scheme == "memory" else rest)


def is_remote(location: str) -> bool:
    """Return whether a location is an address that is not a path on disk.

    Args:
        location: A path or an address.

    Returns:
        True for pipe:command and every scheme (known or not) but file://.
    """
    match = PREFIX.match(location)
    return match is not None and (match[1] or match[2]).lower() != "file"


def resolve_local_path(location: str) -> str:
    """Return the path of a file:// address; everything else unchanged.

    Args:
        location: A path or an address.

    Returns:
        The path.

    Raises:
        ValueError: A file:// address names another machine.
    """
    match = PREFIX.match(location)
    if match is None or is_remote(location):
        return location
    return _parse_file_path(location, location[match.end() :])


def redact_secrets(text: str) -> str:
    """Replace user names, passwords, tokens and signatures by ***, for messages.

    Args:
        text: an address or command, or a message that contains one.

    Returns:
        The text without secrets.
    """
    for pattern, replacement in SECRETS:
        text = pattern.sub(replacement, text)
    return text


def redact_passwords(text: str) -> str:
    """Replace user:password@ in the addresses of a message by ***@. Anything else, such as key=value, stays.

    Args:
        text: a message.

    Returns:
        The message without passwords of addresses.
    """
    return PASSWORD.sub("***@", text)


def require_path(text: str, name: str) -> None:
    """Raise ValueError if a path is empty: `Path` would take it for the current folder.

    Args:
        text: What the user wrote.
        name: Name of the option or argument, for the message.
    """
    if not text:
        raise ValueError(f"{name} is empty. For the current folder, write .")


def require_local_folder(text: str, name: str) -> None:
    """Raise ValueError if the name of a folder is empty or the address of an object store.

    Args:
        text: What the user wrote. `Path` joins the slashes of an address: s3:/bucket is one, too.
        name: Name of the option, for the message.
    """
    require_path(text, name)
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        # Only the scheme: the rest may hold a password, which can't be found once the slashes are joined.
        raise ValueError(f"{name} must be a folder on this machine, not an address ({scheme[0]}/...)")


def _require_use(text: str, scheme: str, use: Use) -> None:
    """Raise ValueError unless the scheme is known and can be used for this."""
    usable = [name for name, uses in SCHEMES.items() if use in uses]
    advice = f"Use a path on disk, or one of {', '.join(usable)}."
    if scheme not in SCHEMES:
        candidates = [
            name for name in (*SCHEMES, *SYNONYMS) if name[0] == scheme[0]
        ]  # ftp is no typing error
        close = get_close_matches(scheme, candidates, n=1, cutoff=0.5)
        question = f" Did you mean {close[0]}?" if close else ""
        raise ValueError(f"{redact_secrets(text)}: the scheme {scheme} is unknown.{question} {advice}")
    if scheme not in usable:
        raise ValueError(f"{redact_secrets(text)}: {scheme} can't be used for {NAMES_OF_USES[use]}. {advice}")


def _parse_file_path(text: str, rest: str) -> str:
    """The path of a file:// address; ValueError if it names a host or no absolute path."""
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise ValueError(f"{text}: write three slashes and an absolute path, as in file:///data/0.tar")
    return unquote(f"/{path}")


def _parse_object_address(text: str, scheme: str, rest: str) -> Address:
    """Parse bucket/key of an object store; keys are taken literally, not percent-decoded."""
    account = ""
    if scheme == "az" and (match := AZURE_HOST.match(rest)):
        account, rest = match[2], f"{match[1]}/{rest[match.end() :]}"
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise ValueError(
            f"{redact_secrets(text)}: an address must not contain credentials, because it is written to files. They "
            f"are read from the environment: {CREDENTIALS[scheme]}."
        )
    if not bucket:
        raise ValueError(f"{redact_secrets(text)}: the bucket is missing, as in {scheme}://bucket/folder")
    key = key.rstrip("/")
    return Address(scheme, f"{bucket}/{key}" if key else bucket, account)
