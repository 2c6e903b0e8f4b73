"""Lazy imports: exports of a package whose module is imported on first use (PEP 562), and packages of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec, module_from_spec


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


def defer_package(name: str) -> None:
    """Run the `__init__` of another distribution's package when one of its names is first used, not on import.

    For a package whose `__init__` imports far more than the submodules that are used. Submodules are imported as ever,
    and the package has all its names: only the moment differs.

    Args:
        name: A top-level package. Nothing is done if it is imported already, or not installed.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def get_attribute(attribute: str) -> object:
        """Run `__init__` once, and get the attribute."""
        is_probe = attribute.startswith("__") and attribute not in ("__all__", "__version__")
        if is_probe or "__getattr__" not in vars(
            package
        ):  # code that walks sys.modules asks for dunder names
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        del vars(package)["__getattr__"]
        loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = get_attribute
    sys.modules[name] = package
