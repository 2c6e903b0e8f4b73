import warnings
from dataclasses import replace

import pytest
from PIL import Image

from prolip.evaluation.image_ambiguity_result import (
    PERPLEXITY,
    UNCERTAINTY,
    ImageAmbiguityResult,
    ImagePoints,
    RisingPairs,
    ScoreMetrics,
    SequenceMetrics,
    StepMetrics,
)
from prolip.evaluation.metrics.detection import DetectionMetrics
from prolip.evaluation.result import Mean, Proportion
from prolip.reports.image_ambiguity import save_image_ambiguity_figure
from tests.reports.svg import svg_text


def make_step(step, rising):
    share = Proportion.from_mean(rising, 40)
    return StepMetrics(
        step=step,
        n=40,
        log_ambiguity=-9.0 + 2 * step,
        uncertainty=Mean(value=0.1 + 0.02 * step, n=40, std_error=0.01),
        rises=RisingPairs(n=40, uncertainty=share, perplexity=share) if step else None,
    )


ERRORS = DetectionMetrics(n=30, num_positive=10, auroc=0.8125, average_precision=0.5, fpr95=0.5)
RESULT = ImageAmbiguityResult(
    data="scenes",
    n=3,
    num_images=9,
    num_pool=5,
    num_classes=4,
    accuracy=Proportion.from_mean(0.25, 40),
    scores=(
        ScoreMetrics(name=UNCERTAINTY, spearman=-0.62, mean_within_veil=-0.2, errors=ERRORS),
        ScoreMetrics(name=PERPLEXITY, spearman=0.5, mean_within_veil=None, errors=ERRORS),
        ScoreMetrics(
            name="untrained, seed 0",
            spearman=None,
            mean_within_veil=None,
            errors=replace(ERRORS, auroc=None),
        ),
    ),
    veils=(),
    kinds=(),
    visible_objects=(),
    above_whole=RisingPairs(n=0, uncertainty=None, perplexity=None),
    sequences=(SequenceMetrics(name="curtains", steps=tuple(make_step(step, 0.95) for step in range(3))),),
    points=ImagePoints(
        log_ambiguity=(-9.0, -4.0, -1.0),
        kind=("nothing", "facts", "facts"),
        uncertainty=(0.1, 0.2, 0.3),
        perplexity=(1.0, 2.0, 3.0),
    ),
)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_figure_has_a_panel_per_analysis(tmp_path):
    png, svg = save_image_ambiguity_figure(RESULT, tmp_path / "all")
    text = svg_text(svg)
    for part in (
        "Image uncertainty (ρ \N{MINUS SIGN}0.62)",
        "Image pool perplexity (ρ 0.50)",
        "With the true ambiguity",
        "Wrong answers (accuracy 25 %)",
        "0.81",
        "Hidden step by step: curtains",
        "95.0 %",
        "\N{MINUS SIGN}9.0",
        "nothing",
        "facts",
    ):
        assert part in text
    with Image.open(png) as image:
        assert len(image.convert("RGB").getcolors(2**24)) > 50


def test_deterministic_model_and_data_without_classes_have_fewer_panels(tmp_path):
    result = replace(
        RESULT,
        scores=(replace(RESULT.scores[1], errors=None),),
        accuracy=None,
        points=replace(RESULT.points, uncertainty=None),
    )
    text = svg_text(save_image_ambiguity_figure(result, tmp_path / "few")[1])
    assert "Image pool perplexity" in text
    for absent in ("Image uncertainty", "Wrong answers", "Hidden step by step"):
        assert absent not in text


def test_many_kinds_have_no_legend(tmp_path):
    kinds = tuple(f"kind {number}" for number in range(9))
    points = ImagePoints(
        log_ambiguity=tuple(range(9)), kind=kinds, uncertainty=tuple(range(9)), perplexity=None
    )
    text = svg_text(save_image_ambiguity_figure(replace(RESULT, points=points), tmp_path / "many")[1])
    assert "kind 3" not in text
