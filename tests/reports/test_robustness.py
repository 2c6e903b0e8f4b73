"""The figure of robustness: a column per perturbation, with the paper's numbers where it has them."""

from prolip.reports import robustness
from tests.reports.svg import svg_text

CLEAN = {"accuracy": 0.5, "uncertainty": 0.02}
RESULT = {
    "clean": CLEAN,
    "occlusion": [{"fraction": part, "accuracy": 0.5 - part, "uncertainty": 0.02 + part} for part in (0.0, 0.1)],
    "corruptions": {
        "gaussian_noise": [{"severity": s, "accuracy": 0.4, "uncertainty": 0.03} for s in (1, 3)],
        "jpeg": [{"severity": s, "accuracy": 0.3, "uncertainty": 0.01} for s in (1, 3)],
    },
    "pgd": {
        "images": 7, "epsilon": 8 / 255, "step": 2 / 255, "start": "random",
        "rows": [{"steps": s, "accuracy": 0.1, "uncertainty": 0.02} for s in (0, 3, 40)],
    },
}  # fmt: skip


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
        return [{**row, "uncertainty": None} for row in rows]

    result = {
        "clean": {**CLEAN, "uncertainty": None},
        "occlusion": [],
        "corruptions": {kind: bare(rows) for kind, rows in RESULT["corruptions"].items()},
        "pgd": None,
    }
    text = svg_text(robustness.save_robustness_figure(result, tmp_path / "one")[1])
    assert "accuracy" in text
    assert "tr Σ" not in text
    assert "PGD" not in text


def test_robustness_figure_without_results(tmp_path):
    result = {**RESULT, "occlusion": [], "corruptions": {}, "pgd": None}
    assert robustness.save_robustness_figure(result, tmp_path / "none") == []
    assert not list(tmp_path.iterdir())
