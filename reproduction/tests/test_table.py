import io
import json

import pytest
from rich.console import Console

from reproduction import table
from reproduction.cell import COMMITTED, read_cells
from reproduction.claim import Claim
from reproduction.document import BEGIN, END, read_generated, write_generated
from reproduction.observations import observe_fraction
from reproduction.table import ClaimsTable
from reproduction.tests.factories import cell

SHOWN = Claim(
    id="a", statement="Wide | wider [UNC]", definition="Effect: x.", where="here", paper="1",
    observe=observe_fraction("x", "n")
)  # fmt: skip
MISSING = Claim(
    id="b", statement="Other", definition="Effect: y.", where="there", paper="2", observe=observe_fraction("x", "n"),
    variant="clip"
)  # fmt: skip


@pytest.fixture
def factories(monkeypatch):
    monkeypatch.setattr(table, "CLAIMS", (SHOWN, MISSING))
    monkeypatch.setattr("reproduction.targets.TARGETS", ())
    return ClaimsTable.from_cells([cell(seed=seed, x=0.9, n=1000) for seed in range(3)])


def test_json_has_all_of_it(factories):
    content = json.loads(json.dumps(factories.to_json()))
    assert content["verdicts"] == {"shown": 1, "not run": 1}
    assert content["cells"] == {"minutes": {"prolip": 3}}
    assert content["claims"] == factories.to_dicts()


def test_the_report_finds_its_columns(factories):
    wanted = {"claim", "definition", "ours", "paper", "controls", "verdict", "scope"}
    assert all(wanted <= set(row) for row in factories.to_dicts())


def test_markdown_has_a_line_for_each_claim_with_equally_many_cells(factories):
    lines = [line for line in factories.to_markdown().splitlines() if line.startswith("| ")][:3]
    assert "Wide \\| wider [UNC]" in lines[1]
    assert {line.replace("\\|", "").count("|") for line in lines} == {7}
    assert "✓ **shown**" in lines[1]
    assert "· **not run**: no cell of clip" in lines[2]


def test_markdown_comes_back_from_a_page(factories, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    write_generated(page, factories.to_markdown())
    assert read_generated(page) == factories.to_markdown()


def test_people_see_verdicts_in_words_and_brackets_as_they_are(factories):
    seen = io.StringIO()
    for one in factories.make_tables():
        Console(file=seen, width=200).print(one)
    assert "✓ shown" in seen.getvalue()
    assert "[UNC]" in seen.getvalue()
    assert "2 claims: 1 shown, 1 not run." in seen.getvalue()


def test_committed_table_is_that_of_the_committed_cells():
    """`make demo` shows reproduction/table.json; `python -m reproduction --show` writes it."""
    committed = json.loads((COMMITTED.parent / "table.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(ClaimsTable.from_cells(read_cells([COMMITTED])).to_json()))
