import json

import pytest

from reproduction.__main__ import reproduce
from reproduction.cell import write_cell
from reproduction.document import BEGIN, END
from reproduction.tests.factories import cell


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.cell.COMMITTED", tmp_path / "committed")
    ratio = {"unc": {"median": 1.01, "error": 0.001}, "multihead": {"median": 1.1, "error": 0.001}}
    write_cell(tmp_path / "cells", cell("cost", ratio=ratio))
    return tmp_path


def test_show_runs_nothing_and_writes_the_table(out, capsys):
    reproduce(show=True, out=out)
    paper_values = capsys.readouterr().out
    assert "✓ shown" in paper_values
    assert str(out / "table.md") in paper_values
    content = json.loads((out / "table.json").read_text())
    assert content["verdicts"]["shown"] == 1
    assert not (out / "runs").exists()


def test_json_is_all_that_is_printed(out, capsys):
    reproduce(show=True, out=out, to_json=True)
    assert json.loads(capsys.readouterr().out) == json.loads((out / "table.json").read_text())


def test_page_without_markers_fails_before_running(out, monkeypatch):
    monkeypatch.setattr("reproduction.run.run_missing", lambda *_: pytest.fail("it began to run"))
    page = out / "page.md"
    page.write_text("# Nothing\n")
    with pytest.raises(ValueError, match="no markers"):
        reproduce(out=out, docs=page)
    with pytest.raises(FileNotFoundError):
        reproduce(out=out, docs=out / "missing.md")


def test_a_page_gets_the_table(out, capsys):
    page = out / "page.md"
    page.write_text(f"# Before\n{BEGIN}\n{END}\n")
    reproduce(show=True, out=out, docs=page)
    assert (out / "table.md").read_text().strip() in page.read_text()
