import numpy as np

from prolip.filtering.criteria import get_criterion
from prolip.filtering.duplicates import NearDuplicates
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import SampleOutcome, Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made

CSD = get_criterion("csd")


def selection(tmp_path, keep, twins=None):
    images, texts = made.gaussians(7, 1), made.gaussians(7, 2)
    alone = made.row(7, "image", made.gaussians(1)[0], None)
    second = made.pairs(images[4:], texts[4:], first=4)
    parts = [made.pairs(images[:4], texts[:4]), [*second[:3], alone, *second[3:]]]
    scores = cache_scores(made.write(tmp_path / "e", parts), tmp_path / "s")
    cut = find_threshold(lambda: (best.score for best in scores.iter_best(CSD)), keep)
    return Selection(scores, CSD, cut, twins)


def fates(chosen):
    return np.concatenate([judged.outcome for judged in chosen.iter_parts()]).tolist()


def test_the_best_are_kept_the_rest_is_below_and_what_has_no_score_is_told(tmp_path):
    chosen = selection(tmp_path, 0.5)
    scores = np.concatenate([judged.score for judged in chosen.iter_parts()])
    best = set(np.argsort(-scores[:7])[:4].tolist())
    assert fates(chosen) == [
        *(SampleOutcome.KEPT if i in best else SampleOutcome.BELOW_THRESHOLD for i in range(7)),
        SampleOutcome.NO_SCORE,
    ]
    kept = [
        number for judged in chosen.iter_parts(["caption"]) for number in judged.kept["number"].to_pylist()
    ]
    assert set(kept) == best


def test_a_twin_is_no_longer_kept(tmp_path):
    parts, numbers = np.array([1, 0, 1]), np.array([5, 2, 6])
    gone = NearDuplicates(parts, numbers, np.array([-1, 0, 0]), {})
    before, after = fates(selection(tmp_path / "a", 1.0)), fates(selection(tmp_path / "b", 1.0, gone))
    assert [i for i in range(8) if before[i] != after[i]] == [2, 6]
    assert after[2] == after[6] == SampleOutcome.DUPLICATE


def test_all_that_has_a_score_is_kept_if_all_is_asked_for(tmp_path):
    assert fates(selection(tmp_path, 1.0)) == [SampleOutcome.KEPT] * 7 + [SampleOutcome.NO_SCORE]
