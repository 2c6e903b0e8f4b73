import math

import pytest
import torch

from prolip.embeddings.dataset import get_part_name
from prolip.filtering import score_cache
from prolip.filtering.criteria import get_criterion
from prolip.filtering.filter import filter_pairs
from prolip.filtering.score_cache import cache_scores
from tests.filtering import made_embeddings as made

TEXT, IMAGE = get_criterion("text-perplexity"), get_criterion("image-perplexity")


@pytest.fixture
def embeddings(tmp_path):
    """Three parts; sample 3 has two captions, sample 6 no caption, sample 7 no image."""
    images, texts = made.gaussians(7, 1), made.gaussians(8, 2)
    parts = [made.pairs(images[:4], texts[:4]), made.pairs(images[4:6], texts[4:6], first=4)]
    parts[0].append(made.row(3, "text", texts[6], "another caption of 3"))
    parts.append([made.row(6, "image", images[6], None), made.row(7, "text", texts[7], "alone")])
    return made.write(tmp_path / "e", parts)


def read(scores):
    return [row for part in scores.parts for row in scores.read_part(part).to_pylist()]


def count_fitting(query, items, scale=1.0):
    """exp of the entropy of the softmax of scale (1 - CSD / 2), in a loop over Python's floats."""
    logits = []
    for item in items:
        cosine = sum(a * b for a, b in zip(query["mean"], item["mean"], strict=True))
        logits.append(scale * (cosine - 0.5 * (query["uncertainty"] + item["uncertainty"])))
    total = sum(math.exp(value) for value in logits)
    return math.exp(-sum(math.exp(value) / total * (value - math.log(total)) for value in logits))


@pytest.mark.parametrize(("criterion", "query", "pool"), [(TEXT, "text", "image"), (IMAGE, "image", "text")])
def test_perplexities_match_a_loop(embeddings, tmp_path, criterion, query, pool):
    rows = read(cache_scores(embeddings, tmp_path / "s", criterion=criterion))
    vectors = [row for _, part in embeddings.iter_parts() for row in part.to_pylist()]
    items = [row for row in vectors if row["modality"] == pool]
    queries = {
        (row["index"], row["caption"] if query == "text" else ""): row
        for row in vectors
        if row["modality"] == query
    }
    compared = 0
    for row in rows:
        found = row[criterion.column]
        if row[f"{query}_row"] is None:
            assert found is None
            continue
        expected = count_fitting(
            queries[row["index"], row["caption"] if query == "text" else ""],
            items,
            embeddings.header.scale,
        )
        assert found == pytest.approx(expected, rel=1e-5)
        compared += 1
    assert compared == 8
    other = IMAGE if criterion is TEXT else TEXT
    assert {row[other.column] for row in rows} == {None}


def test_perplexities_are_computed_once_per_part_and_column(embeddings, tmp_path, monkeypatch):
    cache_scores(embeddings, tmp_path / "s", criterion=TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(score_cache, "fill_perplexity", None)  # not to be called
        cache_scores(embeddings, tmp_path / "s", criterion=TEXT)
        cache_scores(embeddings, tmp_path / "s", criterion=get_criterion("csd"))
    (tmp_path / "s" / get_part_name(1)).unlink()  # as if the run had been stopped
    rows = read(cache_scores(embeddings, tmp_path / "s", criterion=IMAGE))
    texts = {row["index"]: row["text_perplexity"] for row in rows}
    assert texts[0] is not None
    assert texts[4] is None  # the part was written again, and texts were not asked for
    assert all(row["image_perplexity"] is not None for row in rows if row["image_row"] is not None)


def test_perplexities_over_parts_that_were_embedded_again_are_dropped(tmp_path):
    images, texts = made.gaussians(4, 1), made.gaussians(4, 2)
    parts = [made.pairs(images[:2], texts[:2]), made.pairs(images[2:], texts[2:], first=2)]
    cache_scores(made.write(tmp_path / "e", parts), tmp_path / "s", criterion=TEXT)
    changed = made.gaussians(2, 7)
    parts[1] = made.pairs(changed, texts[2:], first=2)
    again = made.write(tmp_path / "e", parts)
    assert {row["text_perplexity"] for row in read(cache_scores(again, tmp_path / "s"))} == {None}
    found = read(cache_scores(again, tmp_path / "s", criterion=TEXT))
    fresh = read(cache_scores(again, tmp_path / "fresh", criterion=TEXT))
    assert [row["text_perplexity"] for row in found] == [row["text_perplexity"] for row in fresh]


def test_filter_pairs_keeps_the_captions_that_fit_the_fewest_images(tmp_path):
    # two groups of images; a caption of one's mean fits that group, one between them fits both
    basis = torch.eye(4)
    means = torch.stack([basis[0], basis[0], basis[1], basis[1]])
    between = torch.nn.functional.normalize(basis[0] + basis[1], dim=0)
    images = made.Gaussian(means, torch.full((4, 4), -20.0))
    texts = made.Gaussian(torch.stack([basis[0], between, basis[1], between]), torch.full((4, 4), -20.0))
    made.write(tmp_path / "e", [made.pairs(images, texts)], scale=30.0)
    found = filter_pairs(
        tmp_path / "e", tmp_path / "out", keep_fraction=0.5, rank_by="text-perplexity", progress=False
    )
    (part,) = found.selection.iter_parts(["id"])
    assert part.kept_rows["id"].to_pylist() == ["key0", "key2"]
    assert found.summary.threshold == pytest.approx(2.0, abs=1e-6)


def test_filter_pairs_by_perplexity_needs_a_pool(tmp_path):
    z = made.gaussians(3)
    rows = [made.row(n, "image", one, None) for n, one in enumerate(z)]
    embeddings = made.write(tmp_path / "e", [rows])
    with pytest.raises(
        ValueError, match=r"3 samples of .* image-perplexity: it needs an image, and captions"
    ):
        filter_pairs(embeddings, tmp_path / "o", keep_fraction=0.5, rank_by="image-perplexity")
