"""What is said of pictures made worse."""

from prolip.report.page import damage


def test_a_small_change_is_no_finding():
    rows = [{"accuracy": 0.9, "uncertainty": value} for value in (1.0, 0.999)]
    assert "hardly changes (−0.1\u00a0%)" in damage.says_uncertainty(rows)


def test_accuracy_is_told_from_end_to_end():
    told = damage.says_accuracy([{"accuracy": value} for value in (0.9, 0.7, 0.5)])
    assert "from 90.0\u00a0% to 50.0\u00a0%" in told
