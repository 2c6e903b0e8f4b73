"""Imports go one way: a module imports only from lower layers or its own package, without cycles."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import prolip
from tools.architecture_map import BESIDE, LAYERS, PAGE, page_with_map, write_map

SOURCE = Path(prolip.__file__).parent
PROJECT = Path(__file__).parent.parent
MAX_PARAMETERS = 8
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


DEFERRED = {
    ("prolip.model.prolip", "prolip.weights.load"),
    ("prolip.model.prolip", "prolip.weights.hub"),
}
"""Imports of a higher layer, made when a method is called. `ProLIP.from_pretrained` and `push_to_hub` are methods,
since users look for them there; but foreign formats and the hub are no part of the network."""


def module_name(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("prolip", *(part for part in parts if part != "__init__")))


MODULES = {module_name(path) for path in FILES} | {"prolip"}


def imported_names(path):
    """Every module that a file imports, at its top or inside its functions."""
    return names_in(ast.walk(ast.parse(path.read_text())), path)


def names_in(nodes, path):
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found


@cache
def all_imports():
    """All imports of each module."""
    return {module_name(path): imported_names(path) for path in FILES}


@cache
def own_imports():
    """Imports of prolip's own modules, except the deferred ones."""
    return {
        name: {one for one in found if one.split(".")[0] == "prolip" and (name, one) not in DEFERRED}
        for name, found in all_imports().items()
    }


def package(module):
    return module.split(".")[1]


def test_every_package_has_a_layer():
    assert {package(module) for module in own_imports()} <= set(LEVEL), (
        "add it to LAYERS in tools/architecture_map.py"
    )


def test_modules_import_from_lower_layers_or_their_own_package():
    flat = (0, len(LAYERS) - 1)  # modules of the lowest and of the highest layer may import each other
    upward = [
        f"{module} imports {imported}"
        for module, found in own_imports().items()
        for imported in found - {"prolip"}
        if package(imported) != package(module)
        and not LEVEL[package(imported)] < LEVEL[package(module)]
        and not LEVEL[package(imported)] == LEVEL[package(module)] in flat
    ]
    assert upward == []


def test_modules_import_names_from_where_they_are_defined():
    """`from prolip import csd` inside the package would hide an import behind the lazy public names."""
    for module, found in own_imports().items():
        assert found <= MODULES - {"prolip"}, module


def test_deferred_imports_exist_and_are_made_inside_methods():
    for module, imported in DEFERRED:
        path = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        tree = ast.parse(path.read_text())
        methods = [
            node
            for part in tree.body
            if isinstance(part, ast.ClassDef)
            for node in part.body
            if isinstance(node, ast.FunctionDef)
        ]
        assert imported in names_in((node for one in methods for node in ast.walk(one)), path), imported
        assert imported not in names_in(tree.body, path), f"{module} must import {imported} inside a method"


def test_imports_have_no_cycle():
    TopologicalSorter(own_imports()).prepare()


def test_package_does_not_import_what_lies_beside_it():
    for module, found in all_imports().items():
        assert not {name.split(".")[0] for name in found} & set(BESIDE), module


def count_parameters(function):
    """All parameters: self, *args and **kwargs too."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len(named) + sum(rest is not None for rest in (arguments.vararg, arguments.kwarg))


def test_functions_have_at_most_eight_parameters():
    """More are a config: a dataclass, whose constructor isn't written out, or a value that bundles some of them."""
    unshipped = [path for folder in BESIDE for path in (PROJECT / folder).rglob("*.py")]
    long = [
        f"{path.relative_to(PROJECT)}:{node.lineno} {getattr(node, 'name', 'lambda')}"
        for path in (*FILES, *unshipped)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and count_parameters(node) > MAX_PARAMETERS
    ]
    assert long == []


def test_count_parameters_counts_every_kind():
    (function,) = ast.parse("def f(self, a, /, b, *c, d, e=1, **g): pass").body
    assert count_parameters(function) == 7


def test_architecture_map_is_current():
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_map(page), "docs/architecture.md is not current: run make map"


def test_architecture_map_lists_every_module():
    listed = set(re.findall(r"^ *(\w+)(?:\.py|/) ", write_map(), re.MULTILINE))
    names = {path.parent.name if path.name == "__init__.py" else path.stem for path in FILES}
    assert names - {"__main__"} <= listed
