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


def find_dropped(
    tmp_path, images, texts, kind, keep_fraction=1.0, duplicate_cosine=0.97, first_size=3, **columns
):
    """{index: index of the better pair} of dropped pairs, and the result."""
    parts = [
        made.pairs(
            images[:first_size], texts[:first_size], **{k: v[:first_size] for k, v in columns.items()}
        ),
        made.pairs(
            images[first_size:],
            texts[first_size:],
            first_size,
            **{k: v[first_size:] for k, v in columns.items()},
        ),
    ]
    embeddings = made.write(tmp_path / "e", parts)
    scores = cache_scores(embeddings, tmp_path / "s")
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(CSD)), keep_fraction)
    result = find_near_duplicates(
        embeddings, scores, CSD, threshold, kind=kind, min_cosine=duplicate_cosine, temp_folder=tmp_path
    )
    pairs = result.list_pairs(100)
    assert sorted(index for part in (0, 1) for index in result.dropped_in_part(part)) == sorted(
        index for (_, index), _ in pairs
    )
    assert len(pairs) == result.count
    assert all(part == int(index >= first_size) for pair in pairs for part, index in pair)
    return {index: better for (_, index), (_, better) in pairs}, result


def perturb(z, angle=0.01):
    """The same Gaussians with slightly rotated means."""
    turned = z.mean + angle * torch.randn(z.mean.shape, generator=torch.Generator().manual_seed(5))
    return Gaussian(torch.nn.functional.normalize(turned, dim=-1), z.log_var)


@pytest.fixture
def images():
    """Six images: the fourth is similar to the first, the last to the second."""
    z = made.gaussians(4, 1)
    return Gaussian.cat([z[:3], perturb(z[:1]), z[3:], perturb(z[1:2])])


def better(images, texts, i, j):
    score = (images.mean - texts.mean).square().sum(-1) + images.uncertainty + texts.uncertainty
    return (j, i) if score[i] <= score[j] else (i, j)


def test_near_duplicate_images_keep_the_better_pair(tmp_path, images):
    texts = made.gaussians(6, 2)
    dropped, result = find_dropped(tmp_path, images, texts, "images")
    assert dropped == dict([better(images, texts, 0, 3), better(images, texts, 1, 5)])
    assert result.recall == {}, "all pairs were compared"


def test_near_duplicates_by_caption_and_by_both(tmp_path, images):
    texts = made.gaussians(6, 2)
    texts = Gaussian.cat([texts[:2], perturb(texts[4:5]), texts[3:]])
    by_caption = dict([better(images, texts, 2, 4)])
    assert find_dropped(tmp_path / "c", images, texts, "captions")[0] == by_caption
    by_image = dict([better(images, texts, 0, 3), better(images, texts, 1, 5)])
    assert find_dropped(tmp_path / "b", images, texts, "both")[0] == by_image | by_caption


def test_only_pairs_above_the_threshold_are_compared(tmp_path, images):
    texts = Gaussian.cat([images[:5], Gaussian(-images[5:].mean, images[5:].log_var)])
    assert 5 in find_dropped(tmp_path / "all", images, texts, "images")[0]
    assert 5 not in find_dropped(tmp_path / "best", images, texts, "images", keep_fraction=5 / 6)[0]


def test_exact_copies_are_duplicates_at_any_cosine(tmp_path):
    images, texts = made.gaussians(6, 3), made.gaussians(6, 4)
    dropped, _ = find_dropped(
        tmp_path, images, texts, "images", pixel_digest=["aa", "bb", "cc", "dd", "bb", None]
    )
    assert dropped == dict([better(images, texts, 1, 4)])


def test_group_equal_texts_ignores_case_and_outer_space():
    names = pa.chunked_array([["A Cat ", None, "a dog"], ["\ta cat", "a  cat", None]])
    groups = group_equal_texts(names).tolist()
    assert groups[0] == groups[3]
    assert groups[1] == groups[5] == -1
    assert len({groups[0], groups[2], groups[4]}) == 3


def test_near_duplicates_in_clusters_measure_recall(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "MAX_EXACT", 10)
    z = made.gaussians(60, 6)
    images = Gaussian.cat([z, perturb(z, 1e-4)])
    dropped, result = find_dropped(tmp_path, images, made.gaussians(120, 7), "images", first_size=50)
    assert result.recall == {"images": 1.0}
    assert {frozenset(pair) for pair in dropped.items()} == {frozenset((i, i + 60)) for i in range(60)}


def test_missing_captions_are_not_duplicates(tmp_path):
    z = made.gaussians(2)
    embeddings = made.write(tmp_path / "e", [[made.row(n, "image", z[0], None) for n in range(3)]])
    scores = cache_scores(embeddings, tmp_path / "s")
    criterion = get_criterion("image-uncertainty")
    threshold = find_threshold(lambda: (best.score for best in scores.iter_best(criterion)), 1.0)
    assert (
        find_near_duplicates(
            embeddings, scores, criterion, threshold, kind="captions", min_cosine=0.5, temp_folder=tmp_path
        ).count
        == 0
    )
    images = find_near_duplicates(
        embeddings, scores, criterion, threshold, kind="images", min_cosine=0.5, temp_folder=tmp_path
    )
    assert images.better.tolist() == [-1, 0, 0]
    assert np.array_equal(images.index, [0, 1, 2]), "of equal scores the first is the better"
