import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from prolip.reports import sheets
from prolip.reports.sheets import SheetGroup, SheetItem
from tests.reports.svg import svg_text


def test_image_sheet_shows_images_notes_and_captions(tmp_path):
    items = [
        SheetItem(
            image=Image.new("RGB", size, color),
            caption=f"caption {n} costs $5 & $6",
            notes=(f"text 0.{n}",),
        )
        for n, (size, color) in enumerate([((8, 8), "red"), ((900, 100), "green"), ((50, 700), "blue")])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png, svg = sheets.save_image_sheet(
            tmp_path / "sheet", [SheetGroup(title="A heading", items=items)], columns=2
        )
    text = svg_text(svg)
    assert "A heading" in text
    for n in range(3):
        assert f"text 0.{n}" in text
        assert f"caption {n} costs $5 & $6" in text, "dollars are no formula"
    assert svg.read_text().count("<image") == 3
    with Image.open(png) as image:
        assert image.width >= 1280
        colors = image.convert("RGB").getcolors(2**24)
    areas = {color: count for count, color in colors}
    assert areas[(255, 0, 0)] > 500_000 / 4, "small images are drawn large"
    assert areas[(0, 128, 0)] * 0.9 < areas[(255, 0, 0)] / 9 * 1.1, "an aspect of nine is kept"


def test_image_sheet_without_images_raises(tmp_path):
    with pytest.raises(ValueError, match="sheet: no group has an image"):
        sheets.save_image_sheet(tmp_path / "sheet", [SheetGroup(title="Nothing", items=[])])


def test_caption_sheet(tmp_path):
    long = " ".join(f"word{i}" for i in range(60))
    _, svg = sheets.save_caption_sheet(tmp_path / "list", "Long ones", [("0.1234", long), ("0.1", "short")])
    text = svg_text(svg)
    assert "Long ones" in text
    assert "0.1234" in text
    assert all(f"word{i}" in text for i in range(60))


@given(st.text(max_size=400), st.integers(5, 60), st.integers(1, 6))
def test_wrap_text_respects_limits(text, width, max_lines):
    lines = sheets.wrap_text(text, width, max_lines)
    assert 1 <= len(lines) <= max_lines
    assert all(len(line) <= width for line in lines)
    assert all(letter.isprintable() for line in lines for letter in line)
    wanted = "".join(letter for letter in text if letter.isprintable() and not letter.isspace())
    shown = "".join("".join(lines).split())
    assert shown == wanted or (shown.endswith("…") and wanted.startswith(shown[:-1]))
