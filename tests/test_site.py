"""The site: built without a network and without warnings; its pages load nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from prolip import cli
from prolip.cli.parser import iter_flat_options

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "tools"))
LOADING = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
"""Tags that load what an attribute names. Of `link`, only some relations do."""
IDLE = {"canonical", "next", "prev", "alternate", "author", "license", "edit"}


class Loads(HTMLParser):
    """Collects what a page loads, and the styles that stand in it."""

    def __init__(self):
        super().__init__()
        self.addresses, self.styles, self._in_style = [], [], False

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self._in_style = tag == "style"
        if tag in LOADING and values.get("rel") not in IDLE and values.get(LOADING[tag]):
            self.addresses.append(values[LOADING[tag]])
        self.styles.append(values.get("style") or "")

    def handle_endtag(self, tag):
        self._in_style = False

    def handle_data(self, data):
        if self._in_style:
            self.styles.append(data)


def find_external(html):
    """Addresses of another host that a page would load."""
    loads = Loads()
    loads.feed(html)
    urls = [*loads.addresses, *re.findall(r"url\(['\"]?([^)'\"]+)", " ".join(loads.styles))]
    return [url for url in urls if re.match(r"(https?:)?//", url)]


def test_what_is_external_is_found():
    html = '<script src="https://a/b.js"></script><link rel=stylesheet href="//c/d.css"><img src="e.png">'
    html += '<a href="https://fine"></a><link rel="canonical" href="https://fine"><style>a{b:url(https://f/g.woff)}</style>'
    assert find_external(html) == ["https://a/b.js", "//c/d.css", "https://f/g.woff"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in strict mode."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=PROJECT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


@pytest.mark.slow
def test_site_has_a_page_for_each_file_and_command(site):
    pages = {
        path.relative_to(PROJECT / "docs").with_suffix(".html") for path in (PROJECT / "docs").rglob("*.md")
    }
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert {"changelog.html", "security.html", "contributing.html"} <= {
        path.name for path in site.glob("*.html")
    }
    text = (site / "reference" / "cli.html").read_text()
    for name in cli.COMMANDS:
        assert f'id="prolip-{name}' in text, name
    text = (site / "reference" / "api" / "prolip.html").read_text()
    assert "prolip.csd" in text
    assert "Closed-form sampled distance" in text


@pytest.mark.slow
def test_pages_and_styles_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert find_external(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(['\"]?|@import ['\"])(https?:)?//", sheet.read_text()), sheet


def test_reference_of_commands_lists_each_option():
    hooks = pytest.importorskip("site_hooks", reason="needs the extra docs")
    text = "\n".join(hooks._describe_command("prolip search", cli.COMMANDS["search"]))
    assert "## prolip search" in text
    assert '    prolip search database "a red circle"' in text  # the example
    options = list(iter_flat_options(cli.COMMANDS["search"]))
    assert text.count("\n| `") == len(options)
    assert "| `DB` | required |" in text
    assert "| `--k`, `-k` | `20` |" in text
    assert "| `--json` |" in text


def test_doctests_become_code():
    fences = pytest.importorskip("griffe_doctests", reason="needs the extra docs")
    text = "Summary.\n\n>>> f(1)\n[2]\n\nMore.\n"
    assert fences.DOCTEST.sub(r"<\g<0>>", text) == "Summary.\n\n<>>> f(1)\n[2]>\n\nMore.\n"


def test_notebooks_are_current():
    """They are made of the guides: python tools/make_notebooks.py."""
    import make_notebooks

    for name in make_notebooks.PAGES:
        assert (make_notebooks.FOLDER / f"{name}.ipynb").read_text() == make_notebooks.make_notebook(name)


@pytest.mark.slow
@pytest.mark.long
def test_notebook_runs(tmp_path, monkeypatch):
    """The researcher's; the engineer's has the same blocks as the pages that tests/test_guides.py runs."""
    nbclient = pytest.importorskip("nbclient", reason="needs the extra docs")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(PROJECT / "docs" / "notebooks" / "researcher.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
