"""Figures, sheets and pages: functions of evaluation results."""
