"""Descriptions and points of the training curves."""

from scipy.stats import binomtest

from prolip.reports.page import curves


def test_describe_contrastive_reports_losses_that_do_not_fall():
    assert "PPCL fell from 4 to 2" in curves.describe_contrastive({"ppcl": [(0, 4.0), (1, 2.0)]})
    assert "did not fall" in curves.describe_contrastive({"ppcl": [(0, 2.0), (1, 4.0)]})


def test_describe_recall_reports_best_value():
    assert "rose from 2.0\u00a0% to 4.0\u00a0%" in curves.describe_recall([(0, 0.02), (1, 0.04)])
    assert "did not rise" in curves.describe_recall([(0, 0.04), (1, 0.02)])
    assert "best value, 9.0\u00a0%, was at 5 " in curves.describe_recall([(0, 0.01), (5, 0.09), (9, 0.02)])


def test_describe_reference_says_whether_ability_was_lost():
    lost = curves.describe_reference([(0, 0.8), (9, 0.3)], "R@1", 0.05)
    assert "Ability was lost: it went from 80.0\u00a0% to 30.0\u00a0%" in lost
    assert "Nothing was lost" in curves.describe_reference([(0, 0.8), (9, 0.76)], "R@1", 0.05)


def test_get_points_skips_lines_without_a_finite_number():
    lines = [{"samples": 1, "a": 2.0}, {"samples": 2}, {"samples": 3, "a": None}, {"a": 1.0}]
    lines += [{"samples": 4, "a": float("nan")}, {"samples": 5, "a": float("inf")}]
    assert curves.get_points(lines, "a") == [(1, 2.0)]


def test_describe_last_recalls_has_wilson_intervals_and_n():
    line = {"samples": 8, "held_out/image_to_text_r1": 1.0, "held_out/text_to_image_r1": 0.5}
    text = curves.describe_last_recalls([line, {**line, "held_out/n": 104.0}])
    for successes, direction in ((104, "image to text"), (52, "text to image")):
        interval = binomtest(successes, 104).proportion_ci(method="wilson")
        percents = [f"{100 * end:.1f}\u00a0%" for end in (interval.low, interval.high)]
        assert f"{direction} (95 % interval {percents[0]} to {percents[1]})" in text
    assert "n = 104 samples" in text
    assert curves.describe_last_recalls([line]) == ""


def test_describe_contrastive_lists_all_terms():
    falling = [(0.0, 4.0), (1.0, 2.0)]
    text = curves.describe_contrastive(dict.fromkeys(("likelihood", "one_sided_texts", "siglip"), falling))
    assert (
        "likelihood fell from 4 to 2, one-sided likelihood of texts fell from 4 to 2 and SigLIP fell" in text
    )
