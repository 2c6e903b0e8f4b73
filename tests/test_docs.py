"""Every Python snippet of the README and the docs runs, from top to bottom of its page."""

import ast
import re
from pathlib import Path

import pytest

from prolip.extras import missing_modules

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", PROJECT / "SECURITY.md", *sorted((PROJECT / "docs").glob("*.md"))]


def snippets(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


SLOW = ("weights.md", "reproduction.md", "report.md")
"""Pages whose snippets export graphs, or train and evaluate."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
        if snippets(page)
    ],
)
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for snippet in snippets(page):
        if '"photos-small"' in snippet and missing_modules("photos"):
            continue  # the rest of the page is independent of it; tests/weights has its own tests
        exec(compile(snippet, page.name, "exec"), names)


def deep_imports(code):
    """Modules below `prolip.room` that Python code imports."""
    modules = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    return {name for name in modules if name.split(".")[0] == "prolip" and name.count(".") > 1}


def test_deep_imports_are_found():
    code = (
        "import os.path.x, prolip.a.b\nfrom prolip.c.d import e\ndef f():\n    from prolip.g.h.i import j\n"
    )
    code += "import prolip.a\nfrom prolip.losses import Objective\nfrom prolip import scenes\n"
    assert deep_imports(code) == {"prolip.a.b", "prolip.c.d", "prolip.g.h.i"}


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=lambda page: page.name)
def test_snippets_import_from_rooms_only(page):
    """`from prolip.losses import Objective`, not `from prolip.losses.objective import Objective`."""
    deep = set().union(*map(deep_imports, snippets(page)))
    assert deep == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_exist(page):
    for target in re.findall(r"\]\((?!http|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tests_that_security_names_exist():
    for path in re.findall(r"`(tests/[^`]*)`", (PROJECT / "SECURITY.md").read_text()):
        assert (PROJECT / path).exists(), path


CAPABILITIES = [
    "measures",
    "objective",
    "mixture",
    "models",
    "adapt",
    "weights",
    "integrations",
    "preprocessing",
    "data",
    "training",
    "own-data",
    "evaluation",
    "judgements",
    "traversal",
    "embed",
    "search",
    "calibration",
    "perplexity",
    "filter",
    "scale",
    "uncertainty",
    "miniature",
    "report",
    "app",
    "reproduction",
]


@pytest.mark.parametrize("name", CAPABILITIES)
def test_capabilities_have_a_page_with_a_snippet(name):
    assert snippets(PROJECT / "docs" / f"{name}.md")
