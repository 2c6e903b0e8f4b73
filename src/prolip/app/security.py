"""Limits of the server: who may ask, how much, and for what. Every request passes through here first."""

from __future__ import annotations

import base64
import binascii
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prolip.app.config import AppConfig

FILES_PER_REQUEST = 8
"""A request may be as large as so many of the largest images together."""
MAX_CALL_BYTES = 2_000_000
"""A request that is neither an upload nor of the API holds only texts."""
FORM_PATHS = ("/api/", "/gradio_api/upload")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ALLOWED_PATHS = (
    "/assets/", "/static/", "/svelte/", "/theme.css", "/favicon.ico", "/manifest.json", "/config", "/api/",
    "/gradio_api/queue/", "/gradio_api/upload", "/gradio_api/file=", "/gradio_api/heartbeat/",
    "/gradio_api/startup-events", "/gradio_api/reset", "/gradio_api/cancel", "/gradio_api/app_id",
)  # fmt: skip
"""Beginnings of the paths that the page needs. Others of Gradio (proxies, monitoring) are not served."""
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
"""The browser loads nothing from elsewhere, whatever the page says."""
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Guard:
    """ASGI middleware: host and origin, password, paths, size of requests, and headers of answers.

    Args:
        app: The application.
        config: Address, password and limits.
    """

    def __init__(self, app: ASGIApp, config: AppConfig) -> None:
        self._app = app
        self._config = config
        self._max_form_bytes = config.max_upload_mb * 1_000_000 * FILES_PER_REQUEST

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # the page needs no WebSocket
        headers = Headers(scope=scope)
        refusal = self._check(scope["path"], headers)
        if refusal is not None:
            await refusal(scope, receive, _add_headers(send))
            return
        await self._app(scope, _limit_body(receive, self._get_max_bytes(scope["path"])), _add_headers(send))

    def _get_max_bytes(self, path: str) -> int:
        """How large the body of a request to a path may be."""
        return self._max_form_bytes if path.startswith(FORM_PATHS) else MAX_CALL_BYTES

    def _check(self, path: str, headers: Headers) -> PlainTextResponse | None:
        """The refusal of a request; None: it may pass."""
        host = headers.get("host", "")
        if self._config.is_local and _get_host_name(f"//{host}") not in LOCAL_HOSTS:
            return PlainTextResponse("This host name is not served.", 403)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return PlainTextResponse("Requests of other sites are not answered.", 403)
        if self._config.auth is not None and not self._knows_password(headers.get("authorization", "")):
            challenge = {"www-authenticate": 'Basic realm="prolip", charset="UTF-8"'}
            return PlainTextResponse("A user name and a password are needed.", 401, challenge)
        if path != "/" and not path.startswith(ALLOWED_PATHS):
            return PlainTextResponse("There is nothing here.", 404)
        length, max_bytes = headers.get("content-length", "0"), self._get_max_bytes(path)
        if not length.isdecimal() or int(length) > max_bytes:
            return PlainTextResponse(f"A request may have at most {max_bytes:,} bytes.", 413)
        return None

    def _knows_password(self, authorization: str) -> bool:
        """Whether a header names the user and the password; in a time that tells nothing of how nearly."""
        kind, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            given = b""
        is_right = hmac.compare_digest(given, (self._config.auth or "").encode())
        return kind.lower() == "basic" and is_right


def _get_host_name(url: str) -> str | None:
    """The name of the host of a URL, without its port; None if there is none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _limit_body(receive: Receive, max_bytes: int) -> Receive:
    """Count the bytes of a body, whose length need not have been announced; beyond the limit, end the connection."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > max_bytes:
            return {"type": "http.disconnect"}
        return message

    return receive_limited


def _add_headers(send: Send) -> Send:
    """Add `HEADERS` to an answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return send_with_headers
