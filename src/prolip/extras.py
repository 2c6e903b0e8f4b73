"""Optional parts: imported where they are used, and one clear sentence when they are not installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

EXTRAS: dict[str, tuple[str, ...]] = {
    "report": ("matplotlib", "jinja2"),
    "data": ("pyarrow",),
    "search": ("lancedb", "pyarrow"),
    "ray": ("ray", "pyarrow"),
    "app": ("gradio",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "logging": ("tensorboard", "wandb"),
}
"""Modules of each extra of pyproject.toml that a user may want."""


class MissingExtraError(ImportError):
    """A part that is not installed; the message says how to install it."""


def import_extra(module: str, extra: str) -> ModuleType:
    """The module, or an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise  # the module is there, but something that it needs is not: a broken install
        raise MissingExtraError(
            f"this needs {module.split('.', maxsplit=1)[0]}. {install_command(extra)}"
        ) from None


def install_command(*names: str) -> str:
    """The sentence that says how to install extras. (From a checkout: the package is not on an index.)"""
    return f"In the checkout, run: .venv/bin/pip install -c constraints.txt -e '.[{','.join(names)}]'"


def missing_modules(extra: str) -> list[str]:
    """Modules of an extra that are not installed. Imports nothing."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]
