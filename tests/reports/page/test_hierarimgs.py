"""What is said of pictures that grow."""

from prolip.reports.page.hierarimgs import describe_level


def test_a_control_that_does_as_well_takes_the_finding_away():
    assert "shows nothing learned" in describe_level(0.9, [0.2, 0.95])
    assert "shows nothing" in describe_level(0.9, [0.89])
    assert "shows nothing" not in describe_level(0.9, [0.2, 0.4])
    assert "20.0\u00a0% to 40.0\u00a0%" in describe_level(0.9, [0.2, 0.4])
