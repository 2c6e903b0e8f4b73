import io
import json

import pytest
from rich.console import Console

from reproduction import table
from reproduction.cell import PACKAGED, read_cells
from reproduction.claim import Claim
from reproduction.document import BEGIN, END, between, put_between
from reproduction.readings import share
from reproduction.table import ClaimsTable
from reproduction.tests.made import cell

SHOWN = Claim(
    id="a", sentence="Wide | wider [UNC]", definition="Effect: x.", where="here", paper="1", read=share("x", "n")
)  # fmt: skip
MISSING = Claim(
    id="b", sentence="Other", definition="Effect: y.", where="there", paper="2", read=share("x", "n"), variant="clip"
)  # fmt: skip


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(table, "CLAIMS", (SHOWN, MISSING))
    monkeypatch.setattr("reproduction.targets.TARGETS", ())
    return ClaimsTable.of([cell(seed=seed, x=0.9, n=1000) for seed in range(3)])


def test_json_has_all_of_it(made):
    content = json.loads(json.dumps(made.as_json()))
    assert content["verdicts"] == {"shown": 1, "not run": 1}
    assert content["cells"] == {"minutes": {"prolip": 3}}
    assert content["claims"] == made.as_dicts()


def test_the_report_finds_its_columns(made):
    wanted = {"claim", "definition", "ours", "paper", "controls", "verdict", "scope"}
    assert all(wanted <= set(row) for row in made.as_dicts())


def test_markdown_has_a_line_for_each_claim_with_equally_many_cells(made):
    lines = [line for line in made.as_markdown().splitlines() if line.startswith("| ")][:3]
    assert "Wide \\| wider [UNC]" in lines[1]
    assert {line.replace("\\|", "").count("|") for line in lines} == {7}
    assert "✓ **shown**" in lines[1]
    assert "· **not run**: no cell of clip" in lines[2]


def test_markdown_comes_back_from_a_page(made, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    put_between(page, made.as_markdown())
    assert between(page) == made.as_markdown()


def test_people_see_verdicts_in_words_and_brackets_as_they_are(made):
    seen = io.StringIO()
    for one in made.for_people():
        Console(file=seen, width=200).print(one)
    assert "✓ shown" in seen.getvalue()
    assert "[UNC]" in seen.getvalue()
    assert "2 claims: 1 shown, 1 not run." in seen.getvalue()


def test_committed_table_is_that_of_the_committed_cells():
    """`make demo` shows reproduction/table.json; `python -m reproduction --show` writes it."""
    committed = json.loads((PACKAGED.parent / "table.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(ClaimsTable.of(read_cells([PACKAGED])).as_json()))
