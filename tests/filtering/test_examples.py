import numpy as np
import pytest

from prolip.filtering.criteria import get_criterion
from prolip.filtering.duplicates import find_near_duplicates
from prolip.filtering.examples import find_examples
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made


def selection(tmp_path, by, *, with_duplicates=False):
    criterion = get_criterion(by)
    images, texts = made.gaussians(40, 1), made.gaussians(40, 2)
    parts = [made.pairs(images[:25], texts[:25]), made.pairs(images[25:], texts[25:], first=25)]
    embeddings = made.write(tmp_path / "e", parts)
    scores = cache_scores(embeddings, tmp_path / "s")
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), 0.5)
    found = (
        find_near_duplicates(
            embeddings, scores, criterion, threshold, kind="images", min_cosine=0.6, temp_folder=tmp_path
        )
        if with_duplicates
        else None
    )
    return Selection(scores, criterion, threshold, found)


@pytest.mark.parametrize("by", ["csd", "inclusion"])
def test_find_examples_of_both_ends_and_around_the_threshold(tmp_path, by):
    chosen = selection(tmp_path, by)
    order = np.argsort(-np.concatenate([part.score for part in chosen.iter_parts()]), kind="stable").tolist()
    found = find_examples(chosen, 5)
    named = {
        name: [one.row["index"] for one in getattr(found, name)]
        for name in vars(found)
        if name != "duplicates"
    }
    assert named == {
        "best": order[:5],
        "just_kept": order[15:20],
        "just_dropped": order[20:25],
        "worst": order[35:],
    }
    assert all(one.part == int(one.row["index"] >= 25) for one in found.best)
    assert all(one.row["caption"] == f"caption {one.row['index']}" for one in found.worst)
    assert found.duplicates == []


def test_find_examples_pairs_duplicates_with_kept_samples(tmp_path):
    chosen = selection(tmp_path, "csd", with_duplicates=True)
    found = find_examples(chosen, 100).duplicates
    assert len(found) == chosen.duplicates.count > 0
    images = made.gaussians(40, 1).mean
    for dropped, kept in found:
        assert images[dropped.row["index"]] @ images[kept.row["index"]] >= 0.6
        assert dropped.row["csd"] >= kept.row["csd"]
