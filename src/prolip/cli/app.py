"""`prolip app`: the explorer in the browser."""

from __future__ import annotations

from prolip.app.config import AppConfig


def app(config: AppConfig) -> None:
    """Open a page in the browser that shows what a model is sure of: compare, search, traverse, filter, classify.

    Example: prolip app --database database

    It needs no network. Without arguments it shows the models of the package with small collections. Only this machine
    can reach it, unless --host says otherwise; then --auth is needed.
    """
    from prolip.app.server import serve

    serve(config)
