"""Figures of prompt weights: they show the numbers of the result, in its order."""

import pytest
from PIL import Image

from prolip.data.sources.folder import ImageList
from prolip.reports import prompts
from tests.reports.svg import svg_text, svg_texts

TEMPLATES = [
    "a photo of a {c}.",
    "the {c}",
    "a drawing of the {c}.",
    "many {c} in a very long sentence about a " * 3 + "{c}",
]


@pytest.fixture
def result():
    """Three classes, four templates; the last class had nothing to learn from."""
    peaked, flat = [[2, 0.7], [0, 0.2], [1, 0.1]], [[1, 0.3], [0, 0.25], [3, 0.25]]
    entry = {"name": "BPRW, 9 images", "shots": 9, "max": [0.7, 0.3, None], "entropy": [0.8, 1.37, None]}
    other = {"name": "BPRW, 0 images", "shots": 0, "max": [0.26] * 3, "entropy": [1.38] * 3}
    return {
        "class_names": ["black-footed ferret", "tench", "goldfish"],
        "templates": TEMPLATES,
        "templates_per_class": 4,
        "learned": [{**other, "top_templates": [flat] * 3}, {**entry, "top_templates": [peaked, flat, None]}],
    }


def test_prompt_weights_figure_sorts_prompts(result, tmp_path):
    paths = prompts.save_prompt_weights_figure(result, tmp_path / "weights")
    assert [path.name for path in paths] == ["weights.png", "weights.svg"]
    text = svg_texts(paths[1])
    assert "black-footed ferret" in text
    assert "tench" in text
    assert "goldfish" not in text, "it has no learned weights"
    bars = [word for word in text if "…" in word and "[" not in word]
    assert bars == ["a drawing of the …", "a photo of a …", "the …", "the …", "a photo of a …"]
    assert any(word.startswith("many … in") and word.endswith("[…]") for word in text), "long ones are cut"
    assert any("BPRW, 9 images" in word and "uniform 1/4" in word for word in text)


def test_prompt_weights_figure_shows_images(result, tmp_path):
    Image.new("RGB", (8, 8), (250, 1, 2)).save(tmp_path / "red.png")
    result["examples"] = [[0], [0] * 5, []]
    source = ImageList(tmp_path, [tmp_path / "red.png"])
    paths = prompts.save_prompt_weights_figure(result, tmp_path / "w", source=source)
    assert paths[1].read_text().count("<image") == 1 + prompts.MAX_IMAGES
    with Image.open(paths[0]) as image:
        colors = {color for _, color in image.convert("RGB").getcolors(2**20)}
    assert (250, 1, 2) in colors


def test_prompt_weights_figure_without_names(result, tmp_path):
    del result["class_names"], result["templates"]
    text = svg_texts(prompts.save_prompt_weights_figure(result, tmp_path / "w")[1])
    assert "class 0" in text
    assert "template 2" in text


def test_prompt_histograms_mark_uniform_weights(result, tmp_path):
    text = svg_text(prompts.save_prompt_histograms_figure(result, tmp_path / "h")[1])
    assert "1/4 = 0.25" in text
    assert "ln 4 = 1.39" in text
    assert "BPRW, 0 images" in text
    assert "BPRW, 9 images" in text


def test_prompt_figures_without_learned_weights_raise(result, tmp_path):
    result["learned"] = []
    for draw in (prompts.save_prompt_weights_figure, prompts.save_prompt_histograms_figure):
        with pytest.raises(ValueError, match="learned weights"):
            draw(result, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_prompt_weights_figure_chooses_classes_evenly():
    entry = {"entropy": [0.9, None, 0.1, 0.5, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6, 1.0, 0.05]}
    assert prompts._choose_classes(entry) == [11, 4, 8, 9, 5, 10]
    assert prompts._choose_classes({"entropy": [0.3]}) == [0]
