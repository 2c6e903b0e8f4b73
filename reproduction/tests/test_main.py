import json

import pytest

from reproduction.__main__ import reproduce
from reproduction.cell import write_cell
from reproduction.table import BEGIN, END
from reproduction.tests.factories import cell


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.cell.COMMITTED", tmp_path / "committed")
    ratio = {"unc": {"median": 1.01, "error": 0.001}, "multihead": {"median": 1.1, "error": 0.001}}
    write_cell(tmp_path / "cells", cell("cost", ratio=ratio))
    return tmp_path


def test_show_writes_the_table_without_running(out, capsys):
    reproduce(show=True, out=out)
    printed = capsys.readouterr().out
    assert "✓ shown" in printed
    assert str(out / "table.md") in printed
    content = json.loads((out / "table.json").read_text())
    assert content["verdicts"]["shown"] == 1
    assert not (out / "runs").exists()


def test_json_output_is_the_table(out, capsys):
    reproduce(show=True, out=out, as_json=True)
    assert json.loads(capsys.readouterr().out) == json.loads((out / "table.json").read_text())


def test_page_without_markers_fails_before_running(out, monkeypatch):
    monkeypatch.setattr("reproduction.run.run_missing", lambda *_: pytest.fail("it began to run"))
    page = out / "page.md"
    page.write_text("# Nothing\n")
    with pytest.raises(ValueError, match="no markers"):
        reproduce(out=out, docs=page)
    with pytest.raises(FileNotFoundError):
        reproduce(out=out, docs=out / "missing.md")


def test_docs_option_writes_the_table_into_a_page(out, capsys):
    page = out / "page.md"
    page.write_text(f"# Before\n{BEGIN}\n{END}\n")
    reproduce(show=True, out=out, docs=page)
    assert (out / "table.md").read_text().strip() in page.read_text()
