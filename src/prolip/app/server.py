"""The server of the explorer: the page, the HTTP API and their limits, on one port."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from prolip.app.config import AppConfig
from prolip.extras import import_extra, require_extra

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

log = logging.getLogger("prolip.app")

ENVIRONMENT = {
    "GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SSR_MODE": "False", "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_MAX_EVENTS": "100", "GRADIO_ANALYTICS_CACHE_FREQUENCY": "100",
}  # fmt: skip
"""No telemetry. And of its own statistics, which it makes after every request, Gradio would keep 10,000 requests."""
FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
PLAIN_LABELS = {
    f"block_{part}_{name}{dark}": value
    for part in ("title", "label")
    for name, value in {
        "background_fill": "transparent", "text_color": "*body_text_color_subdued", "text_weight": "500",
        "border_width": "0px", "padding": "0",
    }.items()
    for dark in ("", "_dark")
    if not (dark and name in ("text_weight", "padding"))
    if not (part == "label" and name == "padding")
}  # fmt: skip
"""Labels of components as quiet text."""
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "monospace")


def make_app(config: AppConfig, folder: Path) -> ASGIApp:
    """Make the application, without a server around it.

    Args:
        config: What it shows, and who may see it.
        folder: An empty folder for uploads, exports and built-in collections; the caller removes it.

    Returns:
        The ASGI application. It opens the models of the package in the background.

    Raises:
        ValueError, OSError: The model or the database of the config can't be opened.
    """
    os.environ.update(ENVIRONMENT)
    os.environ["GRADIO_TEMP_DIR"] = str(folder / "uploads")  # before gradio is imported
    (folder / "uploads").mkdir(parents=True, exist_ok=True)
    from prolip.app.workspace import Workspaces

    workspaces = Workspaces(config, folder / "workspaces")
    if not workspaces.is_builtin:
        workspaces.get(None)  # what is wrong with the user's model or database is an error now
    workspaces.open_in_background()  # while gradio is imported
    gradio = import_extra("gradio", "app")
    from fastapi import FastAPI

    from prolip.app.api import add_routes
    from prolip.app.page import STYLE, build_page
    from prolip.app.security import Guard

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_routes(app, workspaces, config)
    theme = gradio.themes.Soft(
        primary_hue=gradio.themes.colors.blue,
        neutral_hue=gradio.themes.colors.slate,
        font=FONTS,
        font_mono=MONO_FONTS,
    ).set(block_border_width="1px", block_border_width_dark="0px", **PLAIN_LABELS)
    gradio.mount_gradio_app(
        app, build_page(workspaces, config.concurrency), path="/", show_error=False, footer_links=[],
        max_file_size=config.max_upload_mb * 1_000_000, ssr_mode=False, run_history=False, enable_monitoring=False,
        pwa=False, theme=theme, css=STYLE.read_text(encoding="utf-8"), blocked_paths=[str(folder / "workspaces")],
    )  # fmt: skip
    return Guard(app, config)


def serve(config: AppConfig) -> None:
    """Serve the explorer until Ctrl-C or SIGTERM; for the main thread of a process.

    Args:
        config: What it shows, and who may see it.

    Raises:
        MissingExtraError: Gradio, or what a database needs, is not installed.
        ValueError, OSError: The port is taken, or the model or the database can't be opened.
    """
    require_extra("app")
    folder = Path(tempfile.mkdtemp(prefix="prolip-app-"))
    _end_by_signals(folder)
    try:
        app = make_app(config, folder)
        _run(app, config)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_by_signals(folder: Path) -> None:
    """Let Ctrl-C and SIGTERM remove the folder and end the process at once, also while modules are imported.

    An exception instead could be lost in a library's callback. While uvicorn serves, it has handlers of its own; when
    it has ended, it raises the signal again.
    """

    def end(number: int, frame: FrameType | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0 if number == signal.SIGTERM else 128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _run(app: ASGIApp, config: AppConfig) -> None:
    """Listen and answer until Ctrl-C; the address is printed."""
    import socket

    import uvicorn

    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        raise ValueError(
            f"can't listen on {config.host}:{config.port} ({error.strerror}): choose another --port"
        ) from None

    class AnnouncingServer(uvicorn.Server):
        """Says where it is when it answers, and no signal can be missed."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _announce(config, listener.getsockname()[1])

    AnnouncingServer(
        uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
    ).run(sockets=[listener])


def _announce(config: AppConfig, port: int) -> None:
    """Print the address, and who can reach it if that isn't this machine alone."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    print(f"prolip app: http://{host}:{port}  (Ctrl-C ends it)", flush=True)
    if not config.is_local:
        print(_describe_openness(config), flush=True)


def _describe_openness(config: AppConfig) -> str:
    """Who can reach a page that isn't local."""
    if config.auth is None:
        return "WARNING: no password. Whoever reaches this port can use the models and see the database."
    return "It can be reached from other machines, with the password; without TLS in front, the network can read it."
