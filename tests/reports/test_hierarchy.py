"""Figures of hierarchies: that they show the numbers they are given."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.data.sources.hierarimgs import HierarImgs
from prolip.evaluation import hierarcaps, hierarimgs
from prolip.evaluation.order_controls import OrderControls, measure_order
from prolip.evaluation.result import Proportion
from prolip.gaussian import Gaussian
from prolip.reports import figures, hierarchy
from tests.evaluation.test_hierarcaps import make_text_result
from tests.reports.svg import svg_text, svg_texts


def colors(path):
    with Image.open(path) as image:
        return len(image.convert("RGB").getcolors(2**22))


def test_hierarcaps_figure_shows_levels_and_pairs(tmp_path, generator):
    uncertainty = torch.rand(60, 5, generator=generator) + torch.arange(5, 0, -1) / 4
    metrics = hierarcaps.evaluate_chain_uncertainty(uncertainty)
    paths = hierarchy.save_hierarcaps_figure(make_text_result(metrics), tmp_path / "captions")
    assert [path.name for path in paths] == ["captions.png", "captions.svg"]
    assert colors(paths[0]) > 50
    text = svg_text(paths[1])
    for level in range(5):
        assert f"level {level}, mean {metrics.levels[level].mean:.3g}" in text
        for other in set(range(5)) - {level}:
            assert f"{metrics.level_pairs[level][other].value:.3f}" in text
    assert f"{100 * metrics.adjacent_order.value:.1f} % of adjacent levels in order" in text


def test_hierarcaps_figure_of_one_level_has_no_order(tmp_path):
    metrics = hierarcaps.evaluate_chain_uncertainty(torch.tensor([[0.5], [0.25]]))
    _, svg = hierarchy.save_hierarcaps_figure(make_text_result(metrics), tmp_path / "captions")
    assert "level 0, mean 0.375" in svg_text(svg)
    assert "adjacent levels" not in svg_text(svg)


def test_hierarcaps_figure_shows_controls(tmp_path, generator):
    chains, pieces = torch.arange(240).reshape(60, 4), torch.randint(1, 3, (60, 4), generator=generator)
    values = torch.rand(2, 60, 4, generator=generator)
    names = ("words", "perplexity")
    orders = [measure_order(name, v, chains, pieces) for name, v in zip(names, values, strict=True)]
    controls = OrderControls(
        scores=tuple(orders), unigram_captions="x", perplexity_scale=None, num_untrained=0
    )
    bare = replace(make_text_result(None), order_controls=controls)
    _, svg = hierarchy.save_hierarcaps_figure(bare, tmp_path / "controls")
    text = svg_texts(svg)
    assert {"words", "pool perplexity", "0 > 1", "1 > 2", "2 > 3", "all", "all, equal pieces"} <= set(text)
    axes = figures.make_figure(3, 3).subplots()
    hierarchy.draw_order_controls(axes, controls)
    for level in range(3):
        drawn = axes.collections[level].get_offsets().tolist()
        wanted = [[100 * order.level_pairs[level][level + 1].value, row] for row, order in enumerate(orders)]
        assert drawn == [pytest.approx(point) for point in wanted]


def with_untrained(result, fractions):
    """The result with the same fractions of untrained models in each level."""
    levels = tuple(
        replace(level, inclusion=replace(level.inclusion, untrained_included=fractions))
        for level in result.levels
    )
    return replace(result, levels=levels)


@pytest.fixture
def evaluated(draw, tmp_path):
    """Ten images on disk, and a result in which some of them fail."""
    files = []
    for row in range(3):
        files.append(tuple(tmp_path / f"{row}-{number}.png" for number in range(10)))
        for number, path in enumerate(files[-1]):
            Image.new("RGB", (6, 4), (80 * row, 20 * number, 200)).save(path)
    data = HierarImgs(path=tmp_path, originals=files[0], levels=tuple(files[1:]))
    original = draw(10, 4)
    levels = [draw(10, 4), Gaussian(original.mean, original.log_var + 1)]
    untrained = tuple(Proportion.from_mean(value, 8) for value in (0.125, 0.875))
    result = hierarimgs.compute_inclusion_metrics(original, levels)
    return data, with_untrained(result, untrained)


@pytest.mark.slow
def test_hierarimgs_figure_shows_levels(tmp_path, evaluated):
    data, result = evaluated
    text = svg_text(hierarchy.save_hierarimgs_figures(result, data, tmp_path / "out")[1])
    for level, row in enumerate(level.inclusion for level in result.levels):
        assert f"level {level}: {100 * row.included.value:.1f} % included" in text
        assert f"more uncertain: {100 * row.more_uncertain.value:.1f} %" in text
    assert "untrained: 12.5 to 87.5 %" in text
    bare = hierarchy.save_hierarimgs_figures(with_untrained(result, ()), data, tmp_path / "bare")
    assert "untrained" not in svg_text(bare[1])


def test_hierarimgs_failures_are_sorted(tmp_path, evaluated):
    data, result = evaluated
    paths = hierarchy.save_hierarimgs_figures(result, data, tmp_path / "out")
    names = ["hierarimgs.png", "hierarimgs.svg", "hierarimgs-failures.png", "hierarimgs-failures.svg"]
    assert paths == [tmp_path / "out" / name for name in names]
    text = svg_texts(paths[3])
    assert result.failures
    worst = [str(number) for number in result.failures[: hierarchy.MAX_FAILURES]]
    assert [line for line in text if line.isdigit()] == worst
    assert any(line.startswith(f"{len(result.failures)} of 10 originals") for line in text)
    assert {"original", "level 0", "level 1"} <= set(text)


def test_no_failures_sheet_without_failures(tmp_path, evaluated):
    data, result = evaluated
    paths = hierarchy.save_hierarimgs_figures(replace(result, failures=()), data, tmp_path / "none")
    assert [path.name for path in paths] == ["hierarimgs.png", "hierarimgs.svg"]
    assert sorted((tmp_path / "none").iterdir()) == paths


def test_deterministic_model_has_no_hierarchy_figures(tmp_path, draw):
    points = Gaussian.point(draw(4, 5).mean)
    bare = hierarimgs.compute_inclusion_metrics(points, [points])
    assert hierarchy.save_hierarcaps_figure(make_text_result(None), tmp_path / "figure") == []
    assert hierarchy.save_hierarimgs_figures(bare, None, tmp_path) == []
    assert not list(tmp_path.iterdir())
