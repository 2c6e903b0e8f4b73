"""Figures of prompt weights: they show the numbers of the result, in its order."""

from dataclasses import replace

import pytest
from PIL import Image

from prolip.data.sources.folder import ImageList
from prolip.evaluation.prompts import PromptsResult
from prolip.evaluation.strategies import ClassWeights, LearnedWeights, TemplateWeight
from prolip.reports import prompts
from tests.reports.svg import svg_text, svg_texts

TEMPLATES = (
    "a photo of a {c}.",
    "the {c}",
    "a drawing of the {c}.",
    "many {c} in a very long sentence about a " * 3 + "{c}",
)


def make_weights(largest, entropy, *pairs):
    """Learned weights of a class; pairs of template and weight."""
    top = tuple(TemplateWeight(template=template, weight=weight) for template, weight in pairs)
    return ClassWeights(max=largest, entropy=entropy, top_templates=top)


def make_learned(*entropies):
    """Learned weights of classes with these entropies; None: without weights."""
    classes = tuple(None if entropy is None else make_weights(0.5, entropy) for entropy in entropies)
    return LearnedWeights(name="BPRW", shots=5, classes=classes)


@pytest.fixture
def result():
    """Three classes, four templates; the last class had nothing to learn from."""
    peaked = make_weights(0.7, 0.8, (2, 0.7), (0, 0.2), (1, 0.1))
    flat = make_weights(0.3, 1.37, (1, 0.3), (0, 0.25), (3, 0.25))
    uniform = make_weights(0.26, 1.38, (1, 0.26), (0, 0.25), (3, 0.25))
    learned = (
        LearnedWeights(name="BPRW, 0 images", shots=0, classes=(uniform,) * 3),
        LearnedWeights(name="BPRW, 9 images", shots=9, classes=(peaked, flat, None)),
    )
    return PromptsResult(
        data="data", n=100, num_classes=3, num_templates=4, num_train_images=27, training_source="split",
        rank_by="csd", variance="average", seed=0, runs=1, single_template=0, rows=(), learned=learned,
        class_names=("black-footed ferret", "tench", "goldfish"), templates=TEMPLATES,
    )  # fmt: skip


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
    result = replace(result, examples=((0,), (0,) * 5, ()))
    source = ImageList(tmp_path, [tmp_path / "red.png"])
    paths = prompts.save_prompt_weights_figure(result, tmp_path / "w", source=source)
    assert paths[1].read_text().count("<image") == 1 + prompts.MAX_IMAGES
    with Image.open(paths[0]) as image:
        colors = {color for _, color in image.convert("RGB").getcolors(2**20)}
    assert (250, 1, 2) in colors


def test_prompt_weights_figure_without_names(result, tmp_path):
    result = replace(result, class_names=(), templates=())
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
    result = replace(result, learned=())
    for draw in (prompts.save_prompt_weights_figure, prompts.save_prompt_histograms_figure):
        with pytest.raises(ValueError, match="learned weights"):
            draw(result, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_prompt_weights_figure_chooses_classes_evenly():
    learned = make_learned(0.9, None, 0.1, 0.5, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6, 1.0, 0.05)
    assert [index for index, _ in prompts._choose_classes(learned)] == [11, 4, 8, 9, 5, 10]
    assert [index for index, _ in prompts._choose_classes(make_learned(0.3))] == [0]
