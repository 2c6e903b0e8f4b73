"""The guides and the first pages of the site run from top to bottom, shell and Python, as a new user would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prolip.extras import missing_modules

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
PATHS = {
    "start": ["start"],
    "engineer": ["guides/search", "guides/filter", "guides/adapt", "guides/serve"],
    "researcher": ["guides/objective", "guides/train", "guides/uncertainty"],
    "open_clip": ["coming-from/open_clip"],
    "transformers": ["coming-from/transformers"],
    "sentence-transformers": ["coming-from/sentence-transformers"],
    "prolip-release": ["coming-from/prolip-release"],
}
"""Pages that share a folder, in the order in which they are read."""
BLOCK = re.compile(r"^```(python|sh)( title=\"not run[^\n]*)?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_blocks(page):
    """Language and code of all blocks of a page that are to run."""
    text = (DOCS / f"{page}.md").read_text()
    return [(language, code) for language, skipped, code in BLOCK.findall(text) if not skipped]


def run_shell(code):
    """Run the lines of a block as a user's shell would, and stop at the first that fails."""
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    env["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
    done = subprocess.run(["bash", "-euc", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def test_every_page_of_the_guides_is_on_a_path():
    pages = {*DOCS.glob("guides/*.md"), *DOCS.glob("coming-from/*.md"), DOCS / "start.md"}
    assert {DOCS / f"{page}.md" for pages in PATHS.values() for page in pages} == pages
    assert all(read_blocks(page) for pages in PATHS.values() for page in pages)


def test_blocks_that_are_not_run_say_why():
    for page in (page for pages in PATHS.values() for page in pages):
        for title in re.findall(r'^```\w+ title="([^"]*)"', (DOCS / f"{page}.md").read_text(), re.MULTILINE):
            assert re.match(r"not run by the tests of this page: \w+", title), f"{page}: {title}"


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_path_runs_to_its_end(path, tmp_path, monkeypatch):
    if path == "start" and missing_modules("photos"):
        pytest.skip("needs the extra photos")
    monkeypatch.chdir(tmp_path)
    for page in PATHS[path]:
        names = {}
        for language, code in read_blocks(page):
            if language == "sh":
                run_shell(code)
            else:
                exec(compile(code, f"{page}.md", "exec"), names)
