"""`prolip report RUN`: what is passed on."""

import json
from pathlib import Path

import pytest

from prolip.cli import common
from prolip.cli.report import page
from prolip.reports.page.build import Page
from prolip.reports.page.components import Header


@pytest.fixture
def asked(monkeypatch):
    """What the page is built with."""
    found = {}

    def build(run, out, **options):
        found.update(run=run, out=out, **options)
        return Page(Path("the page"), Header(title="", line="", facts=(), tiles=(), notes=()))

    monkeypatch.setattr("prolip.reports.page.build.build", build)
    monkeypatch.setattr(common, "typed", ["report", "runs/mine"])
    return found


def test_the_page_knows_its_command(asked, tmp_path, capsys):
    page(tmp_path, quick=7)
    assert capsys.readouterr().out == "the page\n"
    assert asked["command"] == ["prolip", "report", "runs/mine"]
    assert asked["quick"] == 7
    assert asked["claims"] is None


def test_models_to_compare_with_have_names(asked, tmp_path):
    page(tmp_path, compare=("clip=runs/clip", "owner/name"))
    assert asked["compare"] == [("clip", "runs/clip"), ("owner-name", "owner/name")]


def test_claims_are_read_from_a_file(asked, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"claims": [{"claim": "a"}]}))
    page(tmp_path, claims=path)
    assert asked["claims"] == [{"claim": "a"}]
    path.write_text(json.dumps({"claims": "none"}))
    with pytest.raises(ValueError, match='must hold a list "claims"'):
        page(tmp_path, claims=path)
