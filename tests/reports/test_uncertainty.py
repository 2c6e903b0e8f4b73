import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from prolip import scenes
from prolip.data.sources.foreground import ForegroundImages
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import background, uncertainty
from prolip.evaluation.configs import BackgroundConfig, UncertaintyConfig
from prolip.model.create import create
from prolip.reports import figures
from prolip.reports import uncertainty as report
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from tests.evaluation.pairs import one_pair
from tests.reports.svg import svg_text


@pytest.fixture(scope="module")
def model():
    return create("nano", scenes.make_tokenizer(32), seed=0).eval()


@pytest.fixture(scope="module")
def source():
    return scenes.Scenes("simple", length=25, size=32)


@pytest.fixture(scope="module")
def result(model, source):
    return uncertainty.evaluate_uncertainty(Embedder(model=model), source, UncertaintyConfig(num_examples=6))


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_uncertainty_figure_has_a_panel_per_result(result, tmp_path):
    png, svg = report.save_uncertainty_figure(result, tmp_path / "all")
    text = svg_text(svg)
    titles = [
        "Images and texts",
        "Pairs",
        "By caption length",
        "By level",
        "Against the truth",
        "What uncertainty adds",
    ]
    assert all(title in text for title in titles)
    assert f"mean {result.text.mean:.4g}" in text
    assert f"ρ {result.ambiguity.spearman:.2f}" in text
    with Image.open(png) as image:
        assert image.width >= 1280
    less = replace(
        result, by_level=None, ambiguity=None, regression=replace(result.regression, ambiguity=None)
    )
    _, svg = report.save_uncertainty_figure(less, tmp_path / "less")
    assert "By level" not in svg_text(svg)
    assert "Against the truth" not in svg_text(svg)


def test_uncertainty_figure_of_one_pair(draw, tmp_path):
    pairs = one_pair(draw)
    _, svg = report.save_uncertainty_figure(uncertainty.analyze_uncertainty(pairs), tmp_path / "one")
    assert "too few captions" in svg_text(svg)


def test_uncertainty_sheets_show_numbers(result, source, tmp_path):
    paths = report.save_uncertainty_sheets(result, source, tmp_path)
    svg = {path.stem: path for path in paths if path.suffix == ".svg"}
    assert sorted(svg) == ["corners", "long_uncertain_captions", "most_and_least_certain"]
    assert svg["most_and_least_certain"].read_text().count("<image") == 24
    text = svg_text(svg["most_and_least_certain"])
    assert f"image {result.examples.uncertain_images[0].image_uncertainty:.4f}" in text
    assert f"text {result.examples.certain_captions[-1].text_uncertainty:.4f}" in text
    text = svg_text(svg["corners"])
    for title, samples in result.examples.corners.items():
        assert title[1:] in text
        assert f"CSD {samples[0].csd:.3f}" in text
    first = result.examples.long_uncertain_captions[0]
    assert f"{first.text_uncertainty:.4f}" in svg_text(svg["long_uncertain_captions"])
    assert f"{first.length} tokens" in svg_text(svg["long_uncertain_captions"])


def test_uncertainty_sheets_show_the_right_images(result, source, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(report.sheets, "save_image_sheet", lambda out, groups: shown.extend(groups) or [])
    report.save_uncertainty_sheets(result, source, tmp_path)
    for group, name in zip(shown, ("uncertain_images", "certain_images"), strict=False):
        for item, entry in zip(group.items, getattr(result.examples, name), strict=True):
            assert np.array_equal(item.image, source.read(entry.index).image)
            assert item.caption == entry.caption


def test_rank_is_rounded_down(result):
    example = result.examples.uncertain_captions[0]
    assert "above 99.9 %" in report._describe_length_and_rank(replace(example, text_rank=0.9999))
    assert "above 100.0 %" in report._describe_length_and_rank(replace(example, text_rank=1.0))


def test_background_figures(model, tmp_path):
    write_dataset(tmp_path / "data", SceneDatasetSpec(image_size=32, num_test=8, num_train=1), progress=False)
    folder = tmp_path / "data" / "hierarimgs"
    data = ForegroundImages(folder / "instances.json", folder / "images", limit=7)
    result = background.evaluate_background(Embedder(model=model), data, BackgroundConfig(controls=2))
    _, svg = report.save_background_figure(result, tmp_path / "background")
    text = svg_text(svg)
    assert f"{result.model.before:.4f}" in text
    assert "untrained 1" in text
    assert f"{100 * result.model.fraction_increased.value:.0f} %" in text
    _, svg = report.save_background_sheet(result, data, tmp_path / "sheet")
    text = svg_text(svg)
    for row in (*result.largest_increases[:3], *result.largest_decreases[:3]):
        assert f"{result.before[row]:.4f}" in text
        assert f"{result.after[row]:.4f}" in text
    assert svg.read_text().count("<image") == 12


@given(st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0]), min_size=1, max_size=40))
def test_binned_medians_group_equal_x(x):
    x, y = np.array(x), np.arange(len(x), dtype=float)
    middles, medians = report._compute_binned_medians(x, y)
    assert len(middles) == len(medians) >= 1
    assert middles == sorted(middles)
    assert set(middles) <= {*x, *((a + b) / 2 for a in x for b in x)}
    if len(set(x)) == 1:
        assert medians == [np.median(y)]


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6))
def test_log_ticks_lie_inside_the_axis(low, ratio):
    axes = figures.make_figure(3, 2).subplots()
    axes.set_xscale("log")
    report._set_log_ticks(axes, low, low * ratio)
    ticks = axes.get_xticks()
    assert all(low <= tick <= low * ratio for tick in ticks)
    assert len(ticks) >= 2
    assert len({tick.get_text() for tick in axes.get_xticklabels()}) == len(ticks)
    assert len(ticks) < 60
