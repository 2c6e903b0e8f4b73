"""Write the map of the source tree into docs/architecture.md, from the first line of each module's docstring.

python tools/architecture_map.py          writes the map
python tools/architecture_map.py --check  exits with 1 if the page is not current
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "src" / "prolip"
PAGE = PROJECT / "docs" / "architecture.md"
BEGIN = "<!-- map: written by tools/architecture_map.py (make map) -->"
END = "<!-- end of map -->"

LAYERS: list[set[str]] = [
    {"checks", "choices", "tensor_checks", "configs", "console", "extras", "files", "folder_kinds", "progress",
     "gaussian", "measures", "mixture", "distributed", "lazy", "process_memory", "proportions", "storage", "threads",
     "version"},
    {"losses", "preprocessing"},
    {"model", "data"},
    {"weights", "scenes"},
    {"training", "embeddings"},
    {"adaptation", "zeroshot", "retrieval", "filtering"},
    {"evaluation", "integrations"},
    {"reports", "app", "demo", "demo_config", "demo_photos", "doctor", "cli", "__main__"},
]  # fmt: skip
"""Modules and packages of src/prolip, from the bottom up: each imports only from lower layers."""

BESIDE = ("benchmarks", "chaos", "fuzzing", "reproduction")
"""Packages beside src: not in the wheel, and nothing in src imports them."""


def first_line(path: Path) -> str:
    """The first line of a module's docstring, without the full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(
            f"{path.relative_to(PROJECT)} has no docstring: its first line is its entry in the map"
        )
    return docstring.splitlines()[0].rstrip(".")


def write_map() -> str:
    """The map as Markdown: one block per layer, one line per module."""
    lines: list[str] = []
    for level, names in enumerate(LAYERS):
        present = sorted(name for name in names if _path(SOURCE, name) is not None and name != "__main__")
        lines += [f"### Layer {level}: {', '.join(present)}", "", "```text"]
        for name in present:
            lines += _entries(SOURCE, name, "")
        lines += ["```", ""]
    lines += ["### Beside the package (not in the wheel)", "", "```text"]
    for name in BESIDE:
        lines += _entries(PROJECT, name, "")
    return "\n".join([*lines, "```"])


def _path(folder: Path, name: str) -> Path | None:
    for path in (folder / f"{name}.py", folder / name / "__init__.py"):
        if path.is_file():
            return path
    return None


def _entries(folder: Path, name: str, indent: str) -> list[str]:
    """The line of a module; of a package also the lines of what it holds."""
    path = _path(folder, name)
    assert path is not None
    package = path.name == "__init__.py"
    lines = [f"{indent + name + ('/' if package else '.py'):<32} {first_line(path)}"]
    if package:
        inside = {p.stem for p in path.parent.glob("*.py")} | {
            p.parent.name for p in path.parent.glob("*/__init__.py")
        }
        for child in sorted(inside - {"__init__", "__main__", "tests"}):
            lines += _entries(path.parent, child, indent + "  ")
    return lines


def page_with_map(text: str) -> str:
    """The page with the part between the two markers replaced by the current map."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} must hold the markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{write_map()}\n\n{END}{tail}"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    current = page_with_map(text)
    if "--check" in sys.argv[1:]:
        sys.exit(f"{PAGE} is not current: run make map" if current != text else 0)
    PAGE.write_text(current, encoding="utf-8")


if __name__ == "__main__":
    main()
