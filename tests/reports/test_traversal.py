"""The sheet of paths: it shows every caption and number it is given, in order, inside its edges."""

import re
import warnings

import numpy as np
import pytest
from PIL import Image

from prolip.reports import figures, traversal
from prolip.retrieval.traversal.api import CaptionPath, CaptionStep, traverse_images
from tests.reports.svg import svg_text, svg_texts

BLUE, ORANGE = (tuple(bytes.fromhex(color[1:])) for color in (figures.BLUE, figures.ORANGE))


def areas(path, box=None):
    """Pixels of each color."""
    with Image.open(path) as image:
        return {color: count for count, color in image.crop(box).convert("RGB").getcolors(2**24)}


def make_path(*captions, uncertain=True, root=None):
    """Uncertainties 0.125, 0.25, 0.375, ... in order, the root's 1."""
    steps = [CaptionStep(text, (n + 1) / 8 if uncertain else None, 0.5) for n, text in enumerate(captions)]
    end = None if root is None else CaptionStep(root, 1.0 if uncertain else None, 0.1)
    return CaptionPath(tuple(steps), end, "inclusion+null", 0.0625 if uncertain else None)


def squares(count):
    return [Image.new("RGB", (8, 8), (0, 128, 20 * n)) for n in range(count)]


def test_traversal_figure_shows_captions_uncertainties_and_root(tmp_path):
    given = {
        "folder/cat.jpg": make_path("a cat for $5 & $6", "a pet", root="an animal"),
        "dog.png": make_path("a small dog", "a dog", "a thing"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = traversal.save_traversal_figure(given, squares(2), tmp_path / "out" / "paths")
    assert [path.name for path in paths] == ["paths.png", "paths.svg"]
    text = svg_text(paths[1])
    assert "folder" not in text
    assert "first" not in text, "nothing is left out"
    order = [
        "cat.jpg: uncertainty 0.0625", "1", "a cat for $5 & $6", "0.125", "2", "a pet", "0.250", "anchor: an animal",
        "1.00", "dog.png: uncertainty 0.0625", "1", "a small dog", "0.125", "2", "a dog", "0.250", "3", "a thing",
        "0.375", "root: the empty caption",
    ]  # fmt: skip
    assert " ".join(order) in text
    assert paths[1].read_text().count("<image") == 2
    assert "from the nearest caption (top) towards the root" in text.lower()


def test_traversal_figure_keeps_the_order_of_images(tmp_path):
    given = {"a.png": make_path("first"), "b.png": make_path("second")}
    png, _ = traversal.save_traversal_figure(given, squares(2), tmp_path / "paths")
    with Image.open(png) as image:
        wide, high = image.size
    upper, lower = areas(png, (0, 0, wide, high // 2)), areas(png, (0, high // 2, wide, high))
    assert upper[(0, 128, 0)] > 50_000 < lower[(0, 128, 20)]
    assert (0, 128, 20) not in upper


def bar_lengths(path, color):
    """Inches of each bar of this color, from the top."""
    left, right = (round(144 * inch) for inch in (traversal.BARS, traversal.BARS + traversal.BAR_WIDTH))
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))[image.height // 10 :, left:right]
    rows = (pixels == color).all(-1).sum(-1)
    return [rows[n] / 144 for n in range(len(rows)) if rows[n] and not rows[n - 1]]


def test_traversal_bars_share_one_scale(tmp_path):
    given = {"a": make_path("one", root="root"), "b": make_path(*"abcdefg")}
    png, svg = traversal.save_traversal_figure(given, squares(2), tmp_path / "paths")
    wanted = [n / 8 for n in (1, 1, 2, 3, 4, 5, 6, 7)]
    assert [long / traversal.BAR_WIDTH for long in bar_lengths(png, BLUE)] == pytest.approx(wanted, abs=0.02)
    assert [long / traversal.BAR_WIDTH for long in bar_lengths(png, ORANGE)] == pytest.approx([1.0], abs=0.02)
    assert "bars: uncertainty of a caption" in svg_text(svg)


def test_traversal_figure_without_uncertainty(tmp_path):
    given = {"a.png": make_path("a cat", "a thing", uncertain=False)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png, svg = traversal.save_traversal_figure(given, squares(1), tmp_path / "paths")
    text = svg_text(svg)
    assert "a thing" in text
    assert "uncertainty" not in text
    assert not {BLUE, ORANGE} & areas(png).keys()


def test_traversal_figure_with_zero_uncertainty(tmp_path):
    zero = CaptionPath((CaptionStep("a cat", 0.0, 0.5),), None, "null", 0.0)
    _, svg = traversal.save_traversal_figure({"a.png": zero}, squares(1), tmp_path / "paths")
    assert "a.png: uncertainty 0.00" in svg_text(svg)


@pytest.mark.parametrize("uncertain", [True, False])
def test_traversal_figure_wraps_long_texts(tmp_path, uncertain):
    words = " ".join(f"word{n}" for n in range(90))
    given = {"somewhere/" + "name" * 60 + ".png": make_path(words, "short", uncertain=uncertain, root=words)}
    png, svg = traversal.save_traversal_figure(given, [Image.new("L", (900, 20))], tmp_path / "paths")
    with Image.open(png) as image:
        wide, high = image.size
    edge = areas(png, (wide - int(0.2 * 144), 0, wide, high))
    assert edge.keys() == {(255, 255, 255)}, "nothing is written over the margin"
    text = svg_text(svg)
    assert text.count("…") == 3, "two captions and the name are cut, and say so"
    assert "name.png" in text
    assert "word89" not in text
    assert sum("word" in line for line in svg_texts(svg)) == 4, "two lines each"


def test_traversal_figure_shows_both_ends_of_long_paths(tmp_path):
    count = traversal.MAX_STEPS + 5
    _, svg = traversal.save_traversal_figure(
        {"a.png": make_path(*(f"step<{n}>" for n in range(count)))}, squares(1), tmp_path / "w"
    )
    shown = [int(number) for number in re.findall(r"step<(\d+)>", svg_text(svg))]
    half = traversal.MAX_STEPS // 2
    assert shown == [*range(half), *range(count - half, count)]
    assert "… 5 more …" in svg_text(svg)


def test_traversal_figure_limits_images(tmp_path):
    given = {f"{n}.png": make_path("a thing") for n in range(traversal.MAX_IMAGES + 3)}
    _, svg = traversal.save_traversal_figure(given, squares(len(given)), tmp_path / "paths")
    text = svg_text(svg)
    assert "first 12 of 15 images" in text
    assert "11.png" in text
    assert "12.png" not in text


def test_traversal_figure_rejects_bad_input(tmp_path):
    with pytest.raises(ValueError, match=r"1 paths .* not 2 images"):
        traversal.save_traversal_figure({"a.png": make_path("a")}, squares(2), tmp_path / "paths")
    with pytest.raises(ValueError, match="no paths"):
        traversal.save_traversal_figure({}, [], tmp_path / "paths")
    assert not list(tmp_path.iterdir())


def test_traversal_figure_of_a_model(tmp_path, nano):
    images = squares(2)
    found = traverse_images(nano, images, ["a red circle", "a thing", "two yellow stars"], steps=20)
    _, svg = traversal.save_traversal_figure(dict(zip("ab", found, strict=True)), images, tmp_path / "paths")
    text = svg_text(svg)
    for one in found:
        assert f"anchor: {one.root.caption}" in text, "the nano model is not of likelihood"
        assert all(step.caption in text and f"{step.uncertainty:#.3g}" in text for step in one.steps)
