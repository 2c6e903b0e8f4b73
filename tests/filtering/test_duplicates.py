import numpy as np
import pyarrow as pa
import pytest
import torch

from prolip.filtering import duplicates
from prolip.filtering.criteria import get_criterion
from prolip.filtering.duplicates import find_near_duplicates, group_equal_texts
from prolip.filtering.score_cache import cache_scores
from prolip.filtering.threshold import find_threshold
from prolip.gaussian import Gaussian
from tests.filtering import made_embeddings as made

CSD = get_criterion("csd")


def found(tmp_path, images, texts, kind, keep_fraction=1.0, duplicate_cosine=0.97, cut_at=3, **columns):
    """{number: number of its twin}, and all that is known."""
    parts = [
        made.pairs(images[:cut_at], texts[:cut_at], **{k: v[:cut_at] for k, v in columns.items()}),
        made.pairs(images[cut_at:], texts[cut_at:], cut_at, **{k: v[cut_at:] for k, v in columns.items()}),
    ]
    embeddings = made.write(tmp_path / "e", parts)
    scores = cache_scores(embeddings, tmp_path / "s")
    cut = find_threshold(lambda: (best.score for best in scores.iter_best(CSD)), keep_fraction)
    twins = find_near_duplicates(
        embeddings, scores, CSD, cut, kind=kind, min_cosine=duplicate_cosine, temp_folder=tmp_path
    )
    pairs = twins.list_pairs(100)
    assert sorted(number for part in (0, 1) for number in twins.dropped_in_part(part)) == sorted(
        g for (_, g), _ in pairs
    )
    assert len(pairs) == twins.count
    assert all(part == int(number >= cut_at) for pair in pairs for part, number in pair)
    return {gone: stays for (_, gone), (_, stays) in pairs}, twins


def near(z, angle=0.01):
    """The same Gaussians, a little turned."""
    turned = z.mean + angle * torch.randn(z.mean.shape, generator=torch.Generator().manual_seed(5))
    return Gaussian(torch.nn.functional.normalize(turned, dim=-1), z.log_var)


@pytest.fixture
def images():
    """Of six the fourth is nearly the first, the last the second."""
    z = made.gaussians(4, 1)
    return Gaussian.cat([z[:3], near(z[:1]), z[3:], near(z[1:2])])


def better(images, texts, i, j):
    score = (images.mean - texts.mean).square().sum(-1) + images.uncertainty + texts.uncertainty
    return (j, i) if score[i] <= score[j] else (i, j)


def test_of_two_images_that_are_alike_the_better_pair_stays(tmp_path, images):
    texts = made.gaussians(6, 2)
    gone, twins = found(tmp_path, images, texts, "images")
    assert gone == dict([better(images, texts, 0, 3), better(images, texts, 1, 5)])
    assert twins.recall == {}, "all pairs were compared"


def test_captions_and_both(tmp_path, images):
    texts = made.gaussians(6, 2)
    texts = Gaussian.cat([texts[:2], near(texts[4:5]), texts[3:]])
    by_caption = dict([better(images, texts, 2, 4)])
    assert found(tmp_path / "c", images, texts, "captions")[0] == by_caption
    by_image = dict([better(images, texts, 0, 3), better(images, texts, 1, 5)])
    assert found(tmp_path / "b", images, texts, "both")[0] == by_image | by_caption


def test_only_what_is_kept_is_compared(tmp_path, images):
    texts = Gaussian.cat([images[:5], Gaussian(-images[5:].mean, images[5:].log_var)])
    assert 5 in found(tmp_path / "all", images, texts, "images")[0]
    assert 5 not in found(tmp_path / "best", images, texts, "images", keep_fraction=5 / 6)[0]


def test_exact_copies_are_found_however_far_their_embeddings_are(tmp_path):
    images, texts = made.gaussians(6, 3), made.gaussians(6, 4)
    gone, _ = found(tmp_path, images, texts, "images", pixels=["aa", "bb", "cc", "dd", "bb", None])
    assert gone == dict([better(images, texts, 1, 4)])


def test_texts_are_the_same_without_case_and_outer_space():
    names = pa.chunked_array([["A Cat ", None, "a dog"], ["\ta cat", "a  cat", None]])
    groups = group_equal_texts(names).tolist()
    assert groups[0] == groups[3]
    assert groups[1] == groups[5] == -1
    assert len({groups[0], groups[2], groups[4]}) == 3


def test_in_cells_what_shares_one_is_found_and_recall_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "MAX_EXACT", 10)
    z = made.gaussians(60, 6)
    images = Gaussian.cat([z, near(z, 1e-4)])
    gone, twins = found(tmp_path, images, made.gaussians(120, 7), "images", cut_at=50)
    assert twins.recall == {"images": 1.0}
    assert {frozenset(pair) for pair in gone.items()} == {frozenset((i, i + 60)) for i in range(60)}


def test_what_has_no_caption_is_alike_to_none(tmp_path):
    z = made.gaussians(2)
    embeddings = made.write(tmp_path / "e", [[made.row(n, "image", z[0], None) for n in range(3)]])
    scores = cache_scores(embeddings, tmp_path / "s")
    judge = get_criterion("image-uncertainty")
    cut = find_threshold(lambda: (best.score for best in scores.iter_best(judge)), 1.0)
    assert (
        find_near_duplicates(
            embeddings, scores, judge, cut, kind="captions", min_cosine=0.5, temp_folder=tmp_path
        ).count
        == 0
    )
    images = find_near_duplicates(
        embeddings, scores, judge, cut, kind="images", min_cosine=0.5, temp_folder=tmp_path
    )
    assert images.better.tolist() == [-1, 0, 0]
    assert np.array_equal(images.number, [0, 1, 2]), "of equal scores the first is the better"
