import numpy as np
import pytest

from prolip.filtering.criteria import get_criterion
from prolip.filtering.duplicates import find_near_duplicates
from prolip.filtering.examples import find_examples
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.selection import Selection
from prolip.filtering.threshold import find_threshold
from tests.filtering import made_embeddings as made


def selection(tmp_path, by, *, twins=False):
    judge = get_criterion(by)
    images, texts = made.gaussians(40, 1), made.gaussians(40, 2)
    parts = [made.pairs(images[:25], texts[:25]), made.pairs(images[25:], texts[25:], first=25)]
    embeddings = made.write(tmp_path / "e", parts)
    scores = cache_scores(embeddings, tmp_path / "s")
    cut = find_threshold(lambda: (best.score for best in scores.iter_best(judge)), 0.5)
    found = (
        find_near_duplicates(
            embeddings, scores, judge, cut, kind="images", min_cosine=0.6, temp_folder=tmp_path
        )
        if twins
        else None
    )
    return Selection(scores, judge, cut, found)


@pytest.mark.parametrize("by", ["csd", "inclusion"])
def test_ends_and_both_sides_of_the_cut(tmp_path, by):
    chosen = selection(tmp_path, by)
    order = np.argsort(
        -np.concatenate([judged.score for judged in chosen.iter_parts()]), kind="stable"
    ).tolist()
    found = find_examples(chosen, 5)
    named = {
        name: [one.row["number"] for one in getattr(found, name)]
        for name in vars(found)
        if name != "duplicates"
    }
    assert named == {
        "best": order[:5],
        "just_kept": order[15:20],
        "just_dropped": order[20:25],
        "worst": order[35:],
    }
    assert all(one.part == int(one.row["number"] >= 25) for one in found.best)
    assert all(one.row["caption"] == f"caption {one.row['number']}" for one in found.worst)
    assert found.duplicates == []


def test_duplicates_stand_beside_what_they_are_alike_to(tmp_path):
    chosen = selection(tmp_path, "csd", twins=True)
    found = find_examples(chosen, 100).duplicates
    assert len(found) == chosen.duplicates.count > 0
    images = made.gaussians(40, 1).mean
    for gone, stays in found:
        assert images[gone.row["number"]] @ images[stays.row["number"]] >= 0.6
        assert gone.row["csd"] >= stays.row["csd"]
