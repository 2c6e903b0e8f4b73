"""The explorer, `prolip app`: a page in the browser that shows what a model is sure of, and the same as an HTTP API."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.app.config import AppConfig as AppConfig
    from prolip.app.server import make_app as make_app
    from prolip.app.server import serve as serve
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__, {"config": ["AppConfig"], "server": ["make_app", "serve"]}
    )
