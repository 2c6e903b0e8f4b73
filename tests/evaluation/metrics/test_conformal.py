import math

import numpy as np
import pytest
import torch

from prolip.evaluation.metrics.conformal import (
    class_scores,
    conformal_quantile,
    evaluate_class_sets,
    prediction_sets,
)


def draw_task(count, classes, seed=0):
    """Probabilities of images that differ in difficulty, labels drawn from them, and their entropies."""
    generator = torch.Generator().manual_seed(seed)
    sharpness = 6 * torch.rand(count, 1, generator=generator).double()
    p = torch.softmax(sharpness * torch.randn(count, classes, generator=generator).double(), 1)
    return p, torch.multinomial(p, 1, generator=generator)[:, 0], -(p * p.log()).sum(1)


@pytest.mark.parametrize("coverage", [0.07, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [1, 9, 99, 250])
def test_quantile_is_the_smallest_with_enough_scores_below(n, coverage):
    scores = torch.rand(n, generator=torch.Generator().manual_seed(n)).double()
    enough = [s for s in scores.tolist() if (scores <= s).sum() >= (n + 1) * coverage - 1e-9]
    assert conformal_quantile(scores, coverage) == min(enough, default=math.inf)


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (19, 0.93), (50, 0.8), (10, 0.5)])
def test_marginal_coverage_is_between_its_finite_sample_bounds(n, coverage):
    """Over calibration sets and new cases: at least the coverage, at most 1/(n+1) more, and exactly k/(n+1)."""
    scores = torch.rand(20_000, n + 1, generator=torch.Generator().manual_seed(1)).double()
    covered = [new <= conformal_quantile(fit, coverage) for *_, fit, new in ((s[:n], s[n]) for s in scores)]
    mean, error = float(np.mean(covered)), 4 * math.sqrt(0.25 / len(covered))
    assert coverage - error < mean < coverage + 1 / (n + 1) + error
    assert mean == pytest.approx(math.ceil((n + 1) * coverage) / (n + 1), abs=error)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_sets_of_classes_have_the_coverage_by_simulation(score):
    """Mean over 400 calibration sets of 39 images: (39 + 1) 0.9 = 36 exactly, so that the coverage is 0.9."""
    p, labels, _ = draw_task(400 * 139, 7)
    generator, covered = torch.Generator().manual_seed(2), []
    for probabilities, truth in zip(p.split(139), labels.split(139), strict=True):
        scores = class_scores(probabilities, score, generator)
        threshold = conformal_quantile(scores[:39].gather(1, truth[:39, None])[:, 0], 0.9)
        sets = prediction_sets(scores[39:], threshold)
        covered.append(sets.gather(1, truth[39:, None]).double().mean().item())
    assert np.mean(covered) == pytest.approx(0.9, abs=4 * np.std(covered) / 20)


# torchcp 1.2.1, SplitPredictor(SCORE(score_type="identity")) with LAC and APS(randomized=False), fitted to the first 40
# rows and applied to the last 20. MAPIE 1.6.0's SplitConformalClassifier(conformity_score="lac") gives the same.
# Both were installed into a virtual environment of their own: python -m venv V && V/bin/pip install mapie torchcp
REFERENCE = {
    ("lac", 0.7): (0.6287168522291452, [1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 2, 1, 1, 1, 1, 2, 1, 2, 1, 2]),
    ("lac", 0.9): (0.9069833079587561, [3, 4, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]),
    ("aps", 0.7): (0.8404663972547204, [2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
    ("aps", 0.9): (0.9834310745313859, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 3, 2, 3, 3]),
}


@pytest.mark.parametrize(("score", "coverage"), REFERENCE)
def test_thresholds_and_sets_are_those_of_torchcp_and_mapie(score, coverage):
    i, j = np.meshgrid(np.arange(60), np.arange(4), indexing="ij")
    p = torch.from_numpy(2 * np.sin(3 * i + 1.7 * j**2)).softmax(1)
    labels = (p.cumsum(1) < torch.from_numpy((np.arange(60) * 0.37) % 1)[:, None]).sum(1)
    scores = class_scores(p, score)
    threshold = conformal_quantile(scores[:40].gather(1, labels[:40, None])[:, 0], coverage)
    expected_threshold, sizes = REFERENCE[score, coverage]
    assert threshold == pytest.approx(expected_threshold, rel=1e-12)
    assert prediction_sets(scores[40:], threshold).sum(1).tolist() == sizes


def test_random_part_of_aps_is_between_the_sums_without_and_with_the_class():
    p, _, _ = draw_task(30, 5)
    upper, drawn = class_scores(p, "aps"), class_scores(p, "aps", torch.Generator().manual_seed(0))
    for row, probabilities in enumerate(p.tolist()):
        for column, own in enumerate(probabilities):
            likelier = sum(other for other in probabilities if other > own)
            assert upper[row, column].item() == pytest.approx(likelier + own)
            assert likelier <= drawn[row, column].item() <= likelier + own


def test_harder_images_get_larger_sets():
    p, labels, entropy = draw_task(4000, 10)
    result = evaluate_class_sets(p, labels, entropy, 0.9, 0)
    assert (result.n_fit, result.n_test) == (2000, 2000)
    for sets in result.by_score().values():
        assert sets.coverage.low <= 0.9 <= sets.coverage.high or abs(sets.coverage.value - 0.9) < 0.02
        sizes = [decile.mean_size for decile in sets.deciles]
        assert sizes[-1] > 2 * sizes[0]
        assert np.mean(sizes) == pytest.approx(sets.mean_size, rel=1e-6)
    assert result.lac.mean_size <= result.aps.mean_size
    assert evaluate_class_sets(p, labels, None, 0.9, 0).lac.deciles is None


def test_bad_input_is_refused():
    p, labels, entropy = draw_task(10, 3)
    with pytest.raises(ValueError, match=r"at least 9 images .* has 5"):
        evaluate_class_sets(p, labels, entropy, 0.9, 0)
    with pytest.raises(ValueError, match="NaN"):
        conformal_quantile(torch.tensor([0.1, math.nan]), 0.5)
    with pytest.raises(ValueError, match="coverage"):
        conformal_quantile(torch.rand(5), 1.5)
    with pytest.raises(ValueError, match="sum to 1"):
        class_scores(2 * p, "lac")
    with pytest.raises(ValueError, match="'raps'"):
        class_scores(p, "raps")
