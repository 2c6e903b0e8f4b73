"""Uncertainty of views: hidden parts of images against the whole images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from prolip.data.source import Subset
from prolip.embeddings.base_embedder import EncodedImages
from prolip.embeddings.embedder import Embedder
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.evaluation.configs import UncertaintyConfig
from prolip.evaluation.pool_perplexity import evaluate_perplexity
from prolip.evaluation.uncertainty import UncertaintyResult, evaluate_uncertainty
from prolip.evaluation.view_uncertainty import measure_views
from prolip.gaussian import Gaussian
from prolip.preprocessing.images import read_image
from tests.adaptation.pictures import Pictures


class VisibleArea:
    """An embedder whose uncertainty counts distinct colors (sign 1), or their lack (-1), and records what it saw."""

    def __init__(self, sign):
        self.sign, self.seen = sign, []

    def embed_images(self, source, transform=None):
        values = []
        self.seen.append([])
        for index in range(len(source)):
            image = source.read(index).image
            pixels = np.asarray(read_image(image) if isinstance(image, bytes) else image)
            self.seen[-1].append(pixels)
            values.append(self.sign * len(np.unique(pixels.reshape(-1, 3), axis=0)))
        mean = torch.ones(len(values), 1)
        log_var = torch.tensor(values, dtype=torch.float32)[:, None] / 1e3
        metadata = tuple(SampleMetadata(str(n), (), {}) for n in range(len(values)))
        return EncodedImages(Gaussian(mean, log_var), torch.arange(len(values)), metadata, (), source.name)


def noise(count, side=28):
    """Images in which nearly every pixel has its own color."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, side, side, 3), dtype=np.uint8)

    class Noise(Pictures):
        def read(self, index):
            return replace(super().read(index), image=Image.fromarray(images[index]))

    return Noise(count), images


def test_views_have_the_stated_parts():
    source, images = noise(5)
    embedder = VisibleArea(1)
    report = measure_views(embedder, source, 5, seed=0)
    whole, box, patches, crop = embedder.seen
    assert all((a == b).all() for a, b in zip(whole, images, strict=True))
    for image, hidden in zip(images, box, strict=True):
        assert (image == hidden).all(2).mean() == pytest.approx(0.7, abs=0.04)
    for image, hidden in zip(images, patches, strict=True):
        assert (image == hidden).all(2).mean() == pytest.approx(0.25, abs=0.02)
    for part in crop:
        assert part.shape[0] * part.shape[1] == pytest.approx(28 * 28 / 4, rel=0.15)
    assert [row.kind for row in report.rows] == ["box", "patches", "crop"]
    assert [row.rises.value for row in report.rows] == [
        0.0,
        0.0,
        0.0,
    ]  # fewer colors, less of this uncertainty
    opposite = measure_views(VisibleArea(-1), source, 5, seed=0)
    assert [row.rises.value for row in opposite.rows] == [1.0, 1.0, 1.0]
    assert all(row.median_ratio > 1 for row in opposite.rows)


def test_the_uncertainty_report_has_views_if_asked(nano, tmp_path):
    embedder = Embedder(model=nano, progress=False)
    source = Pictures(12)
    result = evaluate_uncertainty(embedder, source, UncertaintyConfig(controls=1, view_images=6))
    assert result.views.n == 6
    assert len(result.tables()) == 5
    assert UncertaintyResult.from_json(result.to_json()) == result
    alone = measure_views(embedder, source, 6, 0)
    assert alone == result.views
    assert alone.n == len(Subset(source, 6))
    assert evaluate_uncertainty(embedder, source, UncertaintyConfig(controls=1)).views is None


def test_view_images_are_refused_where_they_have_no_effect(nano):
    with pytest.raises(ValueError, match="view_images"):
        UncertaintyConfig(view_images=-1)
    with pytest.raises(ValueError, match="view_images compares variances"):
        evaluate_perplexity(Embedder(model=nano), Pictures(4), UncertaintyConfig(view_images=2))
