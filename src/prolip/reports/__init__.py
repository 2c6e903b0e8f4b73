"""Figures, sheets and pages: functions of evaluation results."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.reports.page.build import ReportPage as ReportPage
    from prolip.reports.page.build import build_report as build_report
    from prolip.reports.page.config import ReportConfig as ReportConfig
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__, {"page.build": ["ReportPage", "build_report"], "page.config": ["ReportConfig"]}
    )
