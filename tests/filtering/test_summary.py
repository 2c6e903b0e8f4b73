import numpy as np
import pyarrow as pa
import pytest

from prolip.filtering import summary
from prolip.filtering.criteria import get_criterion
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import SampleOutcome, Selection
from prolip.filtering.summary import QUANTILES, summarize_selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made

COUNT = 60


def selection(tmp_path, by, keep, columns, **values):
    images, texts = made.gaussians(COUNT, 1), made.gaussians(COUNT, 2)
    half = COUNT // 2
    parts = [
        made.pairs(images[:half], texts[:half], **{k: v[:half] for k, v in values.items()}),
        made.pairs(images[half:], texts[half:], half, **{k: v[half:] for k, v in values.items()}),
    ]
    scores = cache_scores(made.write(tmp_path / "e", parts, columns), tmp_path / "s")
    criterion = get_criterion(by)
    return Selection(
        scores, criterion, find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), keep)
    )


def column(chosen, name):
    return np.concatenate([part.rows[name].to_numpy() for part in chosen.iter_parts([name])])


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_quantiles_are_exact_to_one_bin(tmp_path, by):
    chosen = selection(tmp_path, by, 0.4, {})
    found = summarize_selection(chosen)
    values = column(chosen, by)
    kept = np.concatenate([part.outcome for part in chosen.iter_parts()]) == SampleOutcome.KEPT
    bin_width = float(values.max() - values.min()) / summary.BINS
    for name, some in (("kept", values[kept]), ("dropped", values[~kept])):
        for quantile in QUANTILES:
            exact = np.quantile(some, quantile, method="inverted_cdf")
            quantile_found = found.compute_quantiles()[name][f"{quantile:g}"]
            assert quantile_found == pytest.approx(exact, abs=1.01 * bin_width), (name, quantile)
    assert found.histogram.kept.sum() == found.kept == 24
    assert found.histogram.dropped.sum() == 36
    assert found.total == COUNT


def test_ground_truth_agreement_matches_definition(tmp_path):
    truths = [None if i % 10 == 0 else i % 3 > 0 for i in range(COUNT)]
    chosen = selection(tmp_path, "csd", 0.4, {"correct": "bool"}, correct=truths)
    found = summarize_selection(chosen, "correct").ground_truth
    kept = set(
        np.flatnonzero(
            np.concatenate([part.outcome for part in chosen.iter_parts()]) == SampleOutcome.KEPT
        ).tolist()
    )
    known = [i for i in range(COUNT) if truths[i] is not None]
    right = [i for i in known if truths[i]]
    assert found.precision == pytest.approx(len(kept & set(right)) / len(kept & set(known)))
    assert found.recall == pytest.approx(len(kept & set(right)) / len(right))
    assert found.chance_precision == pytest.approx(len(right) / len(known))
    assert found.chance_recall == pytest.approx(len(kept & set(known)) / len(known))
    assert found.unknown == 6


def test_numbers_count_as_ground_truth_and_texts_do_not(tmp_path):
    values = [i % 2 for i in range(COUNT)]
    chosen = selection(
        tmp_path, "csd", 1.0, {"correct": "int64", "name": "string"}, correct=values, name=["x"] * COUNT
    )
    assert summarize_selection(chosen, "correct").ground_truth.precision == 0.5
    with pytest.raises(ValueError, match="'name'"):
        summarize_selection(chosen, "name")


def test_summarize_selection_with_one_score(tmp_path):
    z = made.gaussians(2)
    scores = cache_scores(made.write(tmp_path / "e", [made.pairs(z[:1], z[1:])]), tmp_path / "s")
    criterion = get_criterion("csd")
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), 1.0)
    found = summarize_selection(Selection(scores, criterion, threshold))
    assert found.compute_quantiles()["dropped"] is None
    assert found.compute_quantiles()["kept"]["0.5"] == pytest.approx(-threshold.score, rel=1e-5)


def test_null_and_nan_ground_truth_are_unknown():
    right, known = summary._read_ground_truth(pa.chunked_array([[1.0, 0.0, float("nan"), None]]), "correct")
    assert right.tolist() == [True, False, False, False]
    assert known.tolist() == [True, True, False, False]


def test_filter_summary_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"filter.json has version 0.*`prolip filter`"):
        summary.FilterSummary.from_json('{"version": 0}', "filter.json")
    with pytest.raises(ValueError, match="version None"):
        summary.FilterSummary.from_json("[]", "filter.json")
