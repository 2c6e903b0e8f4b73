"""Every Python snippet of the README and the docs runs, from top to bottom of its page."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import prolip
from prolip import cli
from prolip.cli.parser import HELP_WORDS, iter_flat_options
from prolip.extras import missing_modules

PROJECT = Path(__file__).parent.parent
GUIDES = [page for page in sorted((PROJECT / "docs").glob("*/*.md")) if page.parent.name != "notebooks"]
"""Pages that tests/test_guides.py runs, shell and Python."""
RUN_BY_GUIDES = {*GUIDES, PROJECT / "docs" / "start.md"}
PAGES = [PROJECT / "README.md", PROJECT / "SECURITY.md", *sorted((PROJECT / "docs").glob("*.md")), *GUIDES]


def snippets(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


SLOW = ("weights.md", "reproduction.md", "report.md")
"""Pages whose snippets export graphs, or train and evaluate."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
        if snippets(page) and page not in RUN_BY_GUIDES
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
        generated = target.endswith(("reference/cli.md", "reference/api/prolip.md"))  # tools/site_hooks.py
        assert generated or (page.parent / target).exists(), f"{page.name}: {target}"


def commands(text):
    """Words of the `prolip` commands in the shell blocks and indented lines of a page."""
    blocks = re.findall(r"^```sh[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^    (prolip [^\n]*(?:(?<=\\)\n[^\n]*)*)$", text, re.MULTILINE)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["prolip"]:
            yield words[1:]


def find_unknown_flags(words):
    """Flags that a command doesn't have; those of `prolip train` depend on the recipe."""
    group = cli.GROUPS.get(words[0])
    command = group.get(words[1], group.get("page")) if group else cli.COMMANDS.get(words[0])
    if words[0] == "train" or any(word in HELP_WORDS for word in words):
        return []
    known = {flag for option in iter_flat_options(command) for flag in option.flags}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


def test_commands_and_unknown_flags_are_found():
    text = "```sh\nprolip search db 'a - b' --top 3  # --comment\n```\n\n"
    text += "    prolip report run --compare a \\\n        --bad\n"
    assert [find_unknown_flags(words) for words in commands(text)] == [["--top"], ["--bad"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_flags_that_exist(page):
    for words in commands(page.read_text()):
        assert find_unknown_flags(words) == [], " ".join(words)


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


def test_version_is_stated_once_and_repeated_rightly():
    citation = re.search(r"^version: (.*)$", (PROJECT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(
        r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert citation[1] == newest[1] == prolip.__version__
    assert f'date-released: "{newest[2]}"' in (PROJECT / "CITATION.cff").read_text()


def test_readme_opens_with_its_two_commands():
    first = re.search(r"^```\w*\n(.*?)^```", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
