"""The figure of robustness: a column per perturbation, with the paper's numbers where it has them."""

from dataclasses import replace

from prolip.evaluation.result import Mean, Proportion
from prolip.evaluation.robustness_result import (
    AccuracyUncertainty,
    CorruptionRow,
    OcclusionRow,
    PGDMetrics,
    PGDRow,
    RobustnessResult,
)
from prolip.reports import robustness
from tests.reports.svg import svg_text


def measured(accuracy, uncertainty):
    return {
        "accuracy": Proportion.from_mean(accuracy, 20),
        "uncertainty": None if uncertainty is None else Mean(value=uncertainty, n=20, std_error=0.001),
    }


RESULT = RobustnessResult(
    data="photos",
    n=20,
    rank_by="csd",
    num_classes=4,
    clean=AccuracyUncertainty(**measured(0.5, 0.02)),
    occlusion=tuple(OcclusionRow(fraction=part, **measured(0.5 - part, 0.02 + part)) for part in (0.0, 0.1)),
    corruptions={
        "gaussian_noise": tuple(CorruptionRow(severity=s, **measured(0.4, 0.03)) for s in (1, 3)),
        "jpeg": tuple(CorruptionRow(severity=s, **measured(0.3, 0.01)) for s in (1, 3)),
    },
    pgd=PGDMetrics(
        n=7, epsilon=8 / 255, step_size=2 / 255, start="random",
        rows=tuple(PGDRow(steps=s, **measured(0.1, 0.02)) for s in (0, 3, 40)),
    ),
)  # fmt: skip


def test_robustness_figure_has_a_column_per_perturbation(tmp_path):
    paths = robustness.save_robustness_figure(RESULT, tmp_path / "robustness")
    assert [path.name for path in paths] == ["robustness.png", "robustness.svg"]
    text = svg_text(paths[1])
    for part in (
        "center occluded",
        "PGD, ε = 8/255, 7 images",
        "corruptions",
        "gaussian noise",
        "jpeg",
        "tr Σ",
    ):
        assert part in text
    assert text.count("paper, ImageNet") == 2, "for occlusion and PGD"


def test_robustness_figure_of_deterministic_model(tmp_path):
    def bare(rows):
        return tuple(replace(row, uncertainty=None) for row in rows)

    result = replace(
        RESULT,
        clean=replace(RESULT.clean, uncertainty=None),
        occlusion=(),
        corruptions={kind: bare(rows) for kind, rows in RESULT.corruptions.items()},
        pgd=None,
    )
    text = svg_text(robustness.save_robustness_figure(result, tmp_path / "one")[1])
    assert "accuracy" in text
    assert "tr Σ" not in text
    assert "PGD" not in text


def test_robustness_figure_without_results(tmp_path):
    result = replace(RESULT, occlusion=(), corruptions={}, pgd=None)
    assert robustness.save_robustness_figure(result, tmp_path / "none") == []
    assert not list(tmp_path.iterdir())
