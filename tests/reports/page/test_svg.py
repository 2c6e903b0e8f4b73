"""Plots follow the colors of the page."""

import re

import pytest

from prolip.reports import figures
from prolip.reports.page.svg import CSS_COLORS, inline_svg, render_panel


def draw(axes):
    axes.plot([0, 1], [0.12345, 1], color=figures.BLUE, label="a < b & c")
    axes.axvline(0.5, color="black")
    axes.scatter([0, 1], [1, 0], color=figures.GREEN)
    axes.set(title="left out", xlabel="0.123456")
    axes.legend()


@pytest.fixture(scope="module")
def drawn():
    return render_panel(draw, 'holds "5 < 6"')


def test_inline_svg_uses_css_colors(drawn):
    for color, variable in CSS_COLORS.items():
        assert f": {color}" not in drawn
        if color in (figures.BLUE, figures.GREEN, figures.GRAY, "#000000", "#444444"):
            assert f"var({variable})" in drawn


def test_inline_svg_is_transparent(drawn):
    opaque = re.findall(r"fill: #ffffff(?![^\"]*opacity: 0)", drawn)
    assert opaque == []


def test_inline_svg_keeps_text_and_escapes_it(drawn):
    assert "a &lt; b &amp; c" in drawn
    assert ">0.123456<" in drawn  # numbers of paths are cut, labels are not
    assert "left out" not in drawn
    assert 'aria-label="holds &quot;5 &lt; 6&quot;"' in drawn


def test_inline_svg_is_an_element(drawn):
    assert drawn.startswith("<svg viewBox=")
    assert drawn.endswith("</svg>")
    assert "xmlns" not in drawn
    assert "http" not in drawn
    assert "<style" not in drawn  # it would apply to the page
    assert not re.match(r"<svg[^>]*\s(width|height)=", drawn)


def test_inline_svg_ids_are_unique(drawn):
    def ids(text):
        return set(re.findall(r'\bid="([^"]+)"', text))

    other = render_panel(lambda axes: axes.plot([0, 1], [1, 0]), "another")
    assert ids(drawn)
    assert not ids(drawn) & ids(other)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', drawn))
    assert used
    assert used <= ids(drawn)


def test_render_panel_is_deterministic(drawn):
    assert render_panel(draw, 'holds "5 < 6"') == drawn


def test_inline_svg_keeps_backslashes_in_alt():
    text = '<?xml?><svg width="1pt" viewBox="0 0 1 1"><g/></svg>'
    assert r'aria-label="a \1 b"' in inline_svg(text, r"a \1 b")
