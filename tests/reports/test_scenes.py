import textwrap

import pytest
from PIL import Image

from prolip.reports import scenes
from prolip.scenes import (
    HARD,
    SIMPLE,
    RandomDraws,
    image_log_ambiguity,
    make_caption_chain,
    observe,
    probability,
)
from tests.reports.svg import svg_text


def test_scene_sheet_shows_exact_probabilities(tmp_path):
    paths = scenes.save_scene_sheet(tmp_path / "sheet", "hard", seed=4)
    assert [path.name for path in paths] == ["sheet.png", "sheet.svg"]
    with Image.open(paths[0]) as image:
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(2**20)) > 100, "not an empty page"
    text = svg_text(paths[1])
    steps = make_caption_chain(HARD.draw_scene(4, 0), RandomDraws(4, 0, 1), HARD)
    for step in steps:
        assert step.text.split()[0] in text
        assert scenes.format_probability(probability(step.meaning, HARD)) in text


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "100 %"), (0.0263, "2.63 %"), (1 / 8192, "1 in 8,200"), (1 / 2e6, "1 in 2,000,000")]
)
def test_format_probability(p, text):
    assert scenes.format_probability(p) == text


def test_scene_sheet_shows_every_line(tmp_path):
    paths = scenes.save_scene_sheet(tmp_path / "sheet", "simple", seed=4)
    text = svg_text(paths[1])
    for index in range(scenes.ROWS * scenes.COLUMNS):
        for step in make_caption_chain(SIMPLE.draw_scene(4, index), RandomDraws(4, index, 1), SIMPLE):
            assert scenes.format_probability(probability(step.meaning, SIMPLE)) in text
            for line in textwrap.wrap(step.text, scenes.CAPTION_WIDTH):
                assert line in text
    assert scenes.format_probability(0.001) == "0.1 %"


def test_veil_sheet_shows_exact_ambiguity_of_each_image(tmp_path):
    paths = scenes.save_veil_sheet(tmp_path / "veils", "simple", seed=3)
    assert [path.name for path in paths] == ["veils.png", "veils.svg"]
    written = svg_text(paths[1])
    for index in range(scenes.VEILED_ROWS):
        scene = SIMPLE.draw_scene(3, index)
        for veil in scenes.make_sheet_veils(SIMPLE, 3, index):
            assert all(line in written for line in textwrap.wrap(veil.name, scenes.VEIL_WIDTH))
            truth = image_log_ambiguity(observe(scene, veil), SIMPLE)
            assert scenes.format_nats(truth) in written


def test_veils_of_the_sheet_hide_the_first_object():
    for index in range(5):
        *_, last = scenes.make_sheet_veils(HARD, 1, index)
        scene = HARD.draw_scene(1, index)
        assert len(observe(scene, last).objects) == len(scene.objects) - 1
        assert last.facts == ("color",)


@pytest.mark.parametrize(("value", "text"), [(-7.25, "\N{MINUS SIGN}7.2 nats"), (-0.0, "0.0 nats")])
def test_format_nats(value, text):
    assert scenes.format_nats(value) == text
