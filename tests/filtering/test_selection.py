import numpy as np

from prolip.filtering.criteria import get_criterion
from prolip.filtering.duplicates import NearDuplicates
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import SampleOutcome, Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made

CSD = get_criterion("csd")


def selection(tmp_path, keep, duplicates=None):
    images, texts = made.gaussians(7, 1), made.gaussians(7, 2)
    alone = made.row(7, "image", made.gaussians(1)[0], None)
    second = made.pairs(images[4:], texts[4:], first=4)
    parts = [made.pairs(images[:4], texts[:4]), [*second[:3], alone, *second[3:]]]
    scores = cache_scores(made.write(tmp_path / "e", parts), tmp_path / "s")
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(CSD)), keep)
    return Selection(scores, CSD, threshold, duplicates)


def list_outcomes(chosen):
    return np.concatenate([part.outcome for part in chosen.iter_parts()]).tolist()


def test_selection_outcomes(tmp_path):
    chosen = selection(tmp_path, 0.5)
    scores = np.concatenate([part.score for part in chosen.iter_parts()])
    best = set(np.argsort(-scores[:7])[:4].tolist())
    assert list_outcomes(chosen) == [
        *(SampleOutcome.KEPT if i in best else SampleOutcome.BELOW_THRESHOLD for i in range(7)),
        SampleOutcome.NO_SCORE,
    ]
    kept = [index for part in chosen.iter_parts(["caption"]) for index in part.kept_rows["index"].to_pylist()]
    assert set(kept) == best


def test_selection_drops_near_duplicates(tmp_path):
    parts, indices = np.array([1, 0, 1]), np.array([5, 2, 6])
    duplicates = NearDuplicates(parts, indices, np.array([-1, 0, 0]), {})
    before, after = (
        list_outcomes(selection(tmp_path / "a", 1.0)),
        list_outcomes(selection(tmp_path / "b", 1.0, duplicates)),
    )
    assert [i for i in range(8) if before[i] != after[i]] == [2, 6]
    assert after[2] == after[6] == SampleOutcome.DUPLICATE


def test_selection_of_all_keeps_every_scored_sample(tmp_path):
    assert list_outcomes(selection(tmp_path, 1.0)) == [SampleOutcome.KEPT] * 7 + [SampleOutcome.NO_SCORE]
