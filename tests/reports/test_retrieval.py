from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.console import format_percent
from prolip.evaluation.positives import Positives
from prolip.evaluation.retrieval import RetrievalResult, image_text_recall, many_to_many_metrics
from prolip.gaussian import Gaussian
from prolip.reports import retrieval
from tests.reports.svg import svg_texts


@pytest.fixture
def result(draw):
    images, owner = draw(40, 6), torch.arange(80) % 40
    texts = Gaussian.cat([images, draw(40, 6)])
    csd, cosine = (image_text_recall(images, texts, owner, metric) for metric in ("csd", "cosine"))
    return RetrievalResult(data="drawn", n=40, num_texts=80, csd=csd, cosine=cosine)


def test_retrieval_figure_shows_every_number(result, tmp_path):
    paths = retrieval.save_retrieval_figure(result, tmp_path / "retrieval")
    assert [path.name for path in paths] == ["retrieval.png", "retrieval.svg"]
    with Image.open(paths[0]) as image:
        assert len(image.convert("RGB").getcolors(2**20)) > 50, "not an empty page"
    text = svg_texts(paths[1])
    for metrics in (result.csd, result.cosine):
        for recalls in (metrics.image_to_text, metrics.text_to_image):
            for recall in (recalls.r1, recalls.r5, recalls.r10):
                assert format_percent(recall.value) in text
    assert {"CSD", "cosine", "R@1", "R@10", "image → text (among 80)", "text → image (among 40)"} <= set(text)
    assert not {"mAP@R", "R-Precision"} & set(text)


def test_retrieval_figure_shows_many_to_many_metrics(result, draw, tmp_path):
    pairs = Positives.from_pairs(torch.arange(120) % 40, torch.arange(120) % 80, 40, 80)
    images, texts = draw(40, 6), draw(80, 6)
    csd, cosine = (
        replace(getattr(result, metric), many_to_many=many_to_many_metrics(images, texts, pairs, metric))
        for metric in ("csd", "cosine")
    )
    result = replace(result, csd=csd, cosine=cosine)
    text = svg_texts(retrieval.save_retrieval_figure(result, tmp_path / "retrieval")[1])
    assert {"mAP@R", "R-Precision"} <= set(text)
    assert format_percent(cosine.many_to_many.text_to_image.map_at_r.value) in text


def test_retrieval_figure_shows_the_match_of_a_likelihood(result, draw, tmp_path):
    texts = svg_texts(retrieval.save_retrieval_figure(result, tmp_path / "retrieval")[1])
    assert "match" not in texts
    match = image_text_recall(draw(40, 6), draw(80, 6), torch.arange(80) % 40)
    with_match = svg_texts(
        retrieval.save_retrieval_figure(replace(result, match=match), tmp_path / "retrieval")[1]
    )
    assert {"CSD", "cosine", "match"} <= set(with_match)
    assert with_match.count("R@1") == texts.count("R@1")
    assert len([text for text in with_match if "." in text]) == 1.5 * len([t for t in texts if "." in t])
    assert format_percent(match.text_to_image.r10.value) in with_match


def test_retrieval_figure_skips_unknown_metrics(result, tmp_path):
    csd, cosine = (
        replace(metrics, text_to_image=replace(metrics.text_to_image, r10=None))
        for metrics in (result.csd, result.cosine)
    )
    result = replace(result, csd=csd, cosine=cosine)
    assert svg_texts(retrieval.save_retrieval_figure(result, tmp_path / "retrieval")[1]).count("R@10") == 1
