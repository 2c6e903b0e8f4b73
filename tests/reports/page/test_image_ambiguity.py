import pytest

from prolip.data.sources.labeled import LabeledData
from prolip.evaluation.image_ambiguity_result import (
    SOFTMAX,
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
from prolip.reports.page.image_ambiguity import NUM_EXAMPLES, build_section, describe_correlation
from prolip.scenes import SIMPLE, VeiledScenes


def score(name, spearman, within=None, auroc=None):
    errors = (
        None
        if auroc is None
        else DetectionMetrics(n=9, num_positive=4, auroc=auroc, average_precision=0.5, fpr95=0.5)
    )
    return ScoreMetrics(name=name, spearman=spearman, mean_within_veil=within, errors=errors)


def step(number, value, share=None):
    rises = (
        None
        if share is None
        else RisingPairs(n=4, uncertainty=Proportion.from_mean(share, 4), perplexity=None)
    )
    uncertainty = Mean(value=value, n=4, std_error=0.0)
    return StepMetrics(step=number, n=4, log_ambiguity=-1.0, uncertainty=uncertainty, rises=rises)


ACCURACY = Proportion.from_mean(0.25, 8)


def make_result(scores, accuracy=ACCURACY):
    return ImageAmbiguityResult(
        data="veiled", n=3, num_bad=0, num_images=3, num_pool=0, num_classes=64, accuracy=accuracy, scores=scores,
        veils=(), kinds=(), visible_objects=(), above_whole=RisingPairs(n=0, uncertainty=None, perplexity=None),
        sequences=(SequenceMetrics(name="curtains", steps=(step(0, 0.1), step(1, 0.2, 0.75))),),
        points=ImagePoints(
            log_ambiguity=(-3.0, -2.0, -1.0), kind=("cells",) * 3, uncertainty=(0.1, 0.2, 0.3), perplexity=None
        ),
    )  # fmt: skip


SCORES = (
    score(UNCERTAINTY, 0.81, 0.6, 0.88),
    score(SOFTMAX, 0.7, None, 0.93),
    score("untrained, seed 0", -0.1),
    score("untrained, seed 1", 0.2),
)


def test_correlation_is_described_with_controls():
    text = describe_correlation(make_result(SCORES))
    for part in ("+0.81", "+0.60 within one veil", "−0.10 to +0.20"):
        assert part in text


def test_section_has_a_figure_per_analysis_and_examples():
    source = VeiledScenes(SIMPLE, num_scenes=NUM_EXAMPLES + 2, size=32)
    data = LabeledData(source=source, class_names=("red circle",), templates=("a {c}",))
    gallery, *figures = build_section(make_result(SCORES), data).blocks
    assert [figure.title for figure in figures] == [
        "Image uncertainty and true ambiguity",
        "Wrong answers",
        "Hidden step by step: curtains",
    ]
    assert "0.88" in figures[1].description
    assert "0.93" in figures[1].description
    assert "75.0" in figures[2].description
    assert len(gallery.items) == NUM_EXAMPLES
    assert all(item.notes[0].startswith("hidden: ") for item in gallery.items)


@pytest.mark.parametrize("scores", [SCORES[:1], (score(UNCERTAINTY, None),)])
def test_section_without_data_and_answers(scores):
    blocks = build_section(make_result(scores, accuracy=None), None).blocks
    assert [block.title for block in blocks] == [
        "Image uncertainty and true ambiguity",
        "Hidden step by step: curtains",
    ]
