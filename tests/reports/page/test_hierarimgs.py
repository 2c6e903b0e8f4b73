"""Descriptions on HierarImgs."""

from prolip.reports.page.hierarimgs import describe_level


def test_describe_level_compares_with_untrained():
    assert "anything was learned" in describe_level(0.9, [0.2, 0.95])
    assert "anything was learned" in describe_level(0.9, [0.89])
    assert "anything was learned" not in describe_level(0.9, [0.2, 0.4])
    assert "20.0\u00a0% to 40.0\u00a0%" in describe_level(0.9, [0.2, 0.4])
