import json

import pytest

from prolip.console import print_tables
from reproduction import table
from reproduction.cell import COMMITTED, read_cells
from reproduction.claim import Claim
from reproduction.observations import observe_fraction
from reproduction.table import BEGIN, END, ClaimsTable, read_generated, write_generated
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
def claims_table(monkeypatch):
    monkeypatch.setattr(table, "CLAIMS", (SHOWN, MISSING))
    monkeypatch.setattr("reproduction.targets.TARGETS", ())
    return ClaimsTable.from_cells([cell(seed=seed, x=0.9, n=1000) for seed in range(3)])


def test_to_json_has_every_part(claims_table):
    content = json.loads(json.dumps(claims_table.to_json()))
    assert content["verdicts"] == {"shown": 1, "not run": 1}
    assert content["cells"] == {"minutes": {"prolip": 3}}
    assert content["claims"] == claims_table.to_dicts()


def test_to_dicts_has_the_columns_of_the_report(claims_table):
    wanted = {"claim", "definition", "ours", "paper", "controls", "verdict", "scope"}
    assert all(wanted <= set(row) for row in claims_table.to_dicts())


def test_to_markdown_has_a_row_per_claim(claims_table):
    lines = [line for line in claims_table.to_markdown().splitlines() if line.startswith("| ")][:3]
    assert "Wide \\| wider [UNC]" in lines[1]
    assert {line.replace("\\|", "").count("|") for line in lines} == {7}
    assert "✓ **shown**" in lines[1]
    assert "· **not run**: no cell of clip" in lines[2]


def test_markdown_round_trip_through_a_page(claims_table, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    write_generated(page, claims_table.to_markdown())
    assert read_generated(page) == claims_table.to_markdown()


def test_make_tables_shows_verdicts_and_brackets(claims_table, capsys):
    print_tables(claims_table.make_tables(), width=200)
    printed = capsys.readouterr().out
    assert "✓ shown" in printed
    assert "[UNC]" in printed
    assert "2 claims: 1 shown, 1 not run." in printed


def test_generated_text_round_trip(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nthe end\n")
    for content in ("| a |\n|---|\n| ± 1 |\n", "shorter\n"):
        write_generated(page, content)
        assert read_generated(page) == content
        assert page.read_text() == f"# Title\n\n{BEGIN}\n\n{content}\n{END}\n\nthe end\n"


@pytest.mark.parametrize("text", ["nothing", BEGIN, END, f"{END} {BEGIN}"])
def test_write_generated_rejects_page_without_markers(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page.md has no markers"):
        write_generated(page, "x")
    assert page.read_text() == text


def test_committed_table_equals_that_of_the_committed_cells():
    """`make demo` shows reproduction/table.json; `python -m reproduction --show` writes it."""
    committed = json.loads((COMMITTED.parent / "table.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(ClaimsTable.from_cells(read_cells([COMMITTED])).to_json()))
