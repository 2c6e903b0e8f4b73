"""The architecture is one-way: a file imports only from layers below its own, or from its own folder; no circles."""

import ast
import re
from pathlib import Path

import pytest

import prolip

SOURCE = Path(prolip.__file__).parent

LAYERS = [
    {
        "checks",
        "configs",
        "console",
        "extras",
        "files",
        "progress",
        "gaussian",
        "measures",
        "mixture",
        "distributed",
    },
    {"losses", "preprocessing"},
    {"model", "data"},
    {"weights", "scenes"},
    {"training", "embeddings"},
    {"zeroshot", "retrieval", "filtering"},
    {"evaluation"},
    {"reports", "app", "demo", "doctor", "cli", "__main__"},
]
"""From the bottom up. A room is a file or a folder of src/prolip; docs/architecture.md draws the same picture."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def module_name(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("prolip", *(part for part in parts if part != "__init__")))


MODULES = {module_name(path) for path in FILES} | {"prolip"}


def imports(path):
    """Modules of this package that a file imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return {name for name in found if name.split(".")[0] == "prolip"}


def room(module):
    return module.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_arrow_points_up(path):
    own = room(module_name(path))
    assert own in LEVEL, (
        f"{own} has no layer: give it one in {Path(__file__).name} and in docs/architecture.md"
    )
    for imported in imports(path) - {"prolip"}:
        below = LEVEL[room(imported)] < LEVEL[own]
        same_folder = room(imported) == own
        both_at_the_bottom_or_top = LEVEL[room(imported)] == LEVEL[own] in (0, len(LAYERS) - 1)
        assert below or same_folder or both_at_the_bottom_or_top, f"{module_name(path)} imports {imported}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_inside_the_package_names_come_from_their_own_file(path):
    """`from prolip import csd` inside would hide an arrow behind the lazy public face."""
    assert imports(path) - {"prolip"} <= MODULES
    assert "prolip" not in imports(path)


def test_there_are_no_circles():
    graph = {module_name(path): imports(path) & MODULES for path in FILES}

    def visit(module, trail):
        assert module not in trail, f"a circle: {' -> '.join([*trail, module])}"
        for target in graph.get(module, ()):
            visit(target, [*trail, module])

    for module in graph:
        visit(module, [])


def test_the_picture_names_every_room():
    drawn = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    rooms = {room(module_name(path)) for path in FILES} - {"__main__"}
    missing = {name for name in rooms if f"{name}.py" not in drawn and f"{name}/" not in drawn}
    assert not missing
    labels = re.findall(r"^      ([\w]+)[./]\S*\s+L(\d)", drawn, re.MULTILINE)
    assert {name for name, _ in labels} == rooms
    assert all(LEVEL[name] == int(level) for name, level in labels)
