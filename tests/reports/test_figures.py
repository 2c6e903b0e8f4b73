"""The axes of figures: shares end where shares end."""

import pytest

from prolip.reports import figures


@pytest.mark.parametrize("horizontal", [False, True])
def test_share_limits_are_exact_and_markers_at_the_ends_are_whole(horizontal):
    axes = figures.make_figure(2.0, 2.0).subplots()
    (line,) = axes.plot([0.0, 1.0], [0.0, 1.0], marker="o")
    dots = axes.scatter([0.0, 1.0], [1.0, 0.0])
    figures.set_share_limits(axes, horizontal=horizontal)
    assert (axes.get_xlim() if horizontal else axes.get_ylim()) == (0.0, 1.0)
    assert not line.get_clip_on()
    assert not dots.get_clip_on()
    figures.set_share_limits(axes, horizontal=horizontal, top=100)
    assert (axes.get_xlim() if horizontal else axes.get_ylim()) == (0.0, 100.0)
