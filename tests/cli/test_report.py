"""`prolip report RUN`: what is passed on."""

from pathlib import Path

import pytest

from prolip.cli import common
from prolip.cli.report import page
from prolip.reports.page.build import ReportPage
from prolip.reports.page.components import PageHeader
from prolip.reports.page.config import ReportConfig


@pytest.fixture
def asked(monkeypatch):
    """What the page is built with."""
    found = {}

    def build_report(folder, out, config, **options):
        found.update(folder=folder, out=out, config=config, **options)
        return ReportPage(
            Path("the page"), PageHeader(title="", subtitle="", metadata=(), tiles=(), notes=())
        )

    monkeypatch.setattr("prolip.reports.page.build.build_report", build_report)
    monkeypatch.setattr(common, "command_line", ["report", "runs/mine"])
    return found


def test_page_records_the_command_line(asked, tmp_path, capsys):
    page(tmp_path, ReportConfig(limit=7))
    assert capsys.readouterr().out == "the page\n"
    assert asked["command"] == ["prolip", "report", "runs/mine"]
    assert asked["config"] == ReportConfig(limit=7)


def test_compare_names_models(asked, tmp_path):
    page(tmp_path, ReportConfig(), compare=("clip=runs/clip", "owner/name"))
    assert asked["compare"] == [("clip", "runs/clip"), ("owner-name", "owner/name")]
