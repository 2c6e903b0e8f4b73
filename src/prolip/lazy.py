"""Lazy exports of a package (PEP 562): the module of a name is imported when the name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def export_lazily(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package whose modules take long to import.

    So `import prolip` and `prolip --help` don't import torch. Type checkers read the imports under TYPE_CHECKING
    instead; `tests/test_public_names.py` tests that both have the same names.

    Args:
        package: Name of the package, `__name__`.
        modules: Module, relative to the package -> the names that are exported from it.

    Returns:
        `__getattr__`, `__dir__` and `__all__`.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get_attribute(name: str) -> object:
        """Import an exported name and store it in the package, so that this runs once per name."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        """All names of the package, also those that were not imported yet: for `dir` and completion."""
        return sorted({*vars(sys.modules[package]), *homes})

    return get_attribute, list_names, sorted(homes)
