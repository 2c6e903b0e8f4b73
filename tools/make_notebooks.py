"""Makes the notebooks of docs/notebooks from the pages of the guides: one source, tested once as a page.

python tools/make_notebooks.py          writes them
python tools/make_notebooks.py --check  exits with 1 if one is not current

Text becomes text cells, Python becomes cells, shell becomes cells of %%bash. Outputs are not kept.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDER = DOCS / "notebooks"
PAGES = {
    "engineer": ("search", "filter", "adapt", "serve"),
    "researcher": ("objective", "train", "uncertainty"),
}
"""Pages of docs/guides by notebook."""
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!http)([^)]*)\)")


def make_notebook(name: str) -> str:
    """A notebook as JSON, with the cells of its pages."""
    cells = [
        cell for page in PAGES[name] for cell in _make_cells((DOCS / "guides" / f"{page}.md").read_text())
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _make_cells(page: str) -> list[dict[str, object]]:
    """The cells of a page, in its order."""
    cells: list[dict[str, object]] = []
    end = 0
    for match in BLOCK.finditer(page):
        cells += [_text_cell(page[end : match.start()])]
        language, code = match.groups()
        cells += [_code_cell(code if language == "python" else f"%%bash -e\n{code}")]
        end = match.end()
    return [cell for cell in [*cells, _text_cell(page[end:])] if cell["source"]]


def _text_cell(text: str) -> dict[str, object]:
    """A cell of Markdown, whose links and pictures are those of docs/guides as seen from docs/notebooks."""
    text = LINK.sub(lambda m: f"{m[1]}[{m[2]}]({_move(m[3])})", text).strip()
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _move(target: str) -> str:
    """A relative link of docs/guides, as one of docs/notebooks."""
    return target if target.startswith(("../", "#")) else f"../guides/{target}"


def _code_cell(code: str) -> dict[str, object]:
    lines = code.rstrip("\n").splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines}


def main() -> None:
    for name in PAGES:
        path, text = FOLDER / f"{name}.ipynb", make_notebook(name)
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                sys.exit(f"{path} is not current: run python tools/make_notebooks.py")
        else:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
