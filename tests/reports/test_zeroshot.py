from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.evaluation.zeroshot import compute_zeroshot_metrics
from prolip.gaussian import Gaussian
from prolip.reports import figures, zeroshot
from tests.reports.svg import svg_text


@pytest.fixture
def result(draw):
    classes, images, ood = draw(5, 8), draw(47, 8), draw(20, 8)
    return compute_zeroshot_metrics(images, torch.arange(47) % 5, classes, logits=(10.0, -10.0), ood=ood)


def test_zeroshot_figure_shows_the_numbers(result, tmp_path):
    paths = zeroshot.save_zeroshot_figure(result, tmp_path / "zeroshot")
    assert [path.name for path in paths] == ["zeroshot.png", "zeroshot.svg"]
    with Image.open(paths[0]) as image:
        assert image.width > 1500
        assert len(image.convert("RGB").getcolors(2**20)) > 100, "not an empty page"
    text = svg_text(paths[1])
    softmax, sigmoid = result.calibration.softmax, result.calibration.sigmoid
    assert f"raw, ECE {softmax.raw.metrics.ece:.3f}" in text
    assert f"fitted, ECE {softmax.fitted.metrics.ece:.3f}" in text
    assert f"fitted to all pairs, ECE {sigmoid.fitted.predicted.ece:.3f}" in text
    assert f"fitted to predictions, ECE {sigmoid.fitted_to_predictions.predicted.ece:.3f}" in text
    for name, label in (("uncertainty", "image uncertainty"), ("match", "match probability")):
        assert f"{label}, AURC {result.selective.get(name).aurc:.3f}" in text
        assert f"AUROC {result.ood.get(name).auroc:.3f}" in text
    counts = " ".join(f"{row.index + 1} {row.accuracy.n}" for row in result.uncertainty.deciles)
    assert counts in text, "the samples of each decile"


def test_zeroshot_figure_skips_missing_results(draw, tmp_path):
    classes, images = Gaussian.point(draw(4, 8).mean), Gaussian.point(draw(30, 8).mean)
    result = compute_zeroshot_metrics(images, torch.arange(30) % 4, classes, logits=(10.0, None))
    text = svg_text(zeroshot.save_zeroshot_figure(result, tmp_path / "clip")[1])
    assert "softmax over classes" in text
    assert "similarity, AURC" in text
    assert "uncertainty" not in text
    assert "match" not in text
    assert "out of distribution" not in text


def test_zeroshot_figure_of_one_image(draw, tmp_path):
    result = compute_zeroshot_metrics(draw(1, 8), torch.tensor([0]), draw(4, 8), logits=(10.0, -10.0))
    assert "accuracy by uncertainty" in svg_text(zeroshot.save_zeroshot_figure(result, tmp_path / "one")[1])


@pytest.mark.parametrize(("count", "text"), [(50, "50"), (9999, "9999"), (50_000, "50k")])
def test_format_count_is_short(count, text):
    assert zeroshot._format_count(count) == text


@pytest.mark.parametrize("rivals", [0.0, 30.0])
def test_legend_of_the_risks_covers_no_curve(draw, rivals):
    """With and without rivals that are nearer than the true class: nearly all wrong, or nearly all right."""
    classes = draw(5, 8)
    labels = torch.arange(400) % 5
    mean = torch.nn.functional.normalize(
        draw(400, 8).mean + 30 * classes.mean[(labels + (rivals > 0)) % 5], dim=-1
    )
    images = Gaussian(mean, draw(400, 8).log_var)
    result = compute_zeroshot_metrics(images, labels, classes, logits=(10.0, -10.0))
    figure = figures.make_figure(6, 4)
    axes = figure.subplots()
    zeroshot.draw_risk(
        axes, result.selective, {"uncertainty": "image uncertainty", "match": "match probability"}
    )
    figure.canvas.draw()
    box = axes.get_legend().get_window_extent()
    for line in axes.lines:
        points = axes.transData.transform(line.get_xydata())[20:]  # the first, of few images, may be anywhere
        assert not any(box.contains(*point) for point in points), line.get_label()


def test_reliability_line_leaves_out_bins_of_few_samples(result):
    metrics = result.calibration.softmax.raw.metrics
    first = replace(metrics.bins[0], n=2)
    axes = figures.make_figure(3, 3).subplots()
    zeroshot.draw_reliability(
        axes, "", {"raw": replace(metrics, bins=(first, replace(first, n=5, confidence=0.9)))}
    )
    assert axes.lines[1].get_xdata().tolist() == [0.9]
    (dots,) = axes.collections
    assert len(dots.get_offsets()) == 2
