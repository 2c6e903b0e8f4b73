"""Files over HTTP and of the Hugging Face hub, read from front to back.

On the standard library, because fsspec's own HTTP file system needs two more packages, runs an event loop in a thread,
which a fork of a data loader would lose, and reads at two thirds of the rate (docs/performance.md).
"""

from __future__ import annotations

import base64
import re
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from prolip.storage.addresses import redact_secrets
from prolip.storage.file_systems import CONNECT_SECONDS

HF_FILE = re.compile(r"(?:(datasets|spaces)/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")
"""A file of the hub: (kind of repository, repository, revision, path)."""
URL_CHARACTERS = "%/:?#[]@!$&'()*+,;=~"
"""Characters of a URL that are not quoted: those with a meaning, and % of what is quoted already."""


def open_http(url: str, stall_seconds: float, token: str | None = None) -> HTTPResponse:
    """Request a file over HTTP, following redirects; proxies come from the environment.

    Args:
        url: An http(s):// address; a user and password in it are sent as basic authentication.
        stall_seconds: Longest wait for data, before the response and between two pieces of it.
        token: Sent as bearer authentication, to the host of `url` only.

    Returns:
        The response; closed by the caller.

    Raises:
        OSError: There is no connection, or the server refuses. The message has no secrets.
    """
    parts = urlsplit(url)
    user, has_user, host = parts.netloc.rpartition("@")
    request = Request(
        quote(urlunsplit(parts._replace(netloc=host)), safe=URL_CHARACTERS), headers={"User-Agent": "prolip"}
    )
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    elif has_user:
        request.add_header("Authorization", f"Basic {base64.b64encode(unquote(user).encode()).decode()}")
    try:
        response: HTTPResponse = _make_opener().open(request, timeout=stall_seconds)
        return response
    except HTTPError as error:
        with error:
            raise OSError(f"the server answered {error.code} {redact_secrets(str(error.reason))}") from None
    except URLError as error:
        raise OSError(f"no connection: {redact_secrets(str(error.reason))}") from None
    except TimeoutError:
        raise OSError(f"no answer for {stall_seconds:g} s") from None
    except (HTTPException, ValueError) as error:  # not HTTP; not a URL
        raise OSError(f"{type(error).__name__}: {redact_secrets(str(error))}") from None


def resolve_hub_file(path: str) -> tuple[str, str | None]:
    """Find the URL of a file of the Hugging Face hub.

    Without a token, no request is made if the address has the usual form; with one, the hub is asked, because a
    revision may contain slashes.

    Args:
        path: What follows hf://: [datasets/]OWNER/NAME[@REVISION]/PATH

    Returns:
        The URL, and the user's token for it; None without one.
    """
    from huggingface_hub import HfFileSystem, get_token, hf_hub_url

    token = get_token()
    if token is None and (match := HF_FILE.fullmatch(path)):
        kind, repo, revision, file_path = match.groups()
        return hf_hub_url(repo, file_path, repo_type=kind and kind[:-1], revision=revision), None
    file: Any = HfFileSystem().resolve_path(f"hf://{path}")
    url = hf_hub_url(file.repo_id, file.path_in_repo, repo_type=file.repo_type, revision=file.revision)
    return url, token


class _StallTimeout:
    """Mixin of connections: a short timeout to connect, then the given one for each read."""

    timeout: Any
    sock: Any

    def connect(self) -> None:
        stall_seconds, self.timeout = self.timeout, min(self.timeout, CONNECT_SECONDS)
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(stall_seconds)


class _Connection(_StallTimeout, HTTPConnection):
    pass


class _SecureConnection(_StallTimeout, HTTPSConnection):
    pass


class _ConnectionHandler(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_Connection, req)


class _SecureConnectionHandler(HTTPSHandler):
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, req)


class _RedirectHandler(HTTPRedirectHandler):
    """Redirects as usual, but credentials go to the first host only: the hub redirects to other hosts."""

    def redirect_request(self, req: Request, *args: Any) -> Request | None:
        redirected = super().redirect_request(req, *args)
        if redirected is not None and _get_origin(redirected) != _get_origin(req):
            redirected.remove_header("Authorization")
        return redirected


def _get_origin(request: Request) -> tuple[str, str]:
    """Scheme and host with port."""
    parts = urlsplit(request.full_url)
    return parts.scheme, parts.netloc.lower()


def _make_opener() -> OpenerDirector:
    return build_opener(_ConnectionHandler, _SecureConnectionHandler, _RedirectHandler)
