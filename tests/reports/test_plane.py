import numpy as np
import pytest
import torch
from PIL import Image

from prolip import scenes
from prolip.evaluation.plane import ProjectedGaussian, project_similar_images
from prolip.reports import plane
from tests.evaluation.pairs import pairs_of
from tests.reports.svg import svg_text


def projected_gaussians(count=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    roots = torch.randn(count, 2, 2, generator=g, dtype=torch.float64)
    means = torch.randn(count, 2, generator=g, dtype=torch.float64)
    covariances = roots @ roots.mT
    gaussians = [
        ProjectedGaussian(mean=tuple(mean), covariance=(xx, xy, yy))
        for mean, ((xx, xy), (_, yy)) in zip(means.tolist(), covariances.tolist(), strict=True)
    ]
    return gaussians, means, covariances


def test_compute_ellipses_matches_covariance():
    gaussians, means, covariances = projected_gaussians()
    offsets = plane.compute_ellipses(gaussians, sigmas=1.5) - means[:, None]
    inverse = torch.linalg.inv(covariances)
    distance = torch.einsum("nca,nab,ncb->nc", offsets, inverse, offsets)
    torch.testing.assert_close(distance, torch.full_like(distance, 1.5**2))
    normal = torch.distributions.MultivariateNormal(torch.zeros(4, 2).double(), covariances)
    torch.manual_seed(0)
    offsets = normal.sample((20_000,)).unsqueeze(-1)
    inside = (offsets.mT @ inverse @ offsets).squeeze() <= plane.SIGMAS**2
    assert inside.double().mean() == pytest.approx(1 - np.exp(-(plane.SIGMAS**2) / 2), abs=0.01)


def test_compute_ellipses_of_points():
    points = [ProjectedGaussian(mean=(1.0, -2.0), covariance=(0.0, 0.0, 0.0))]
    expected = torch.tensor([1.0, -2.0]).double().expand(1, plane.NUM_VERTICES, 2)
    torch.testing.assert_close(plane.compute_ellipses(points), expected)


def test_mean_size_is_that_of_the_standard_deviations():
    circle = ProjectedGaussian(mean=(0.0, 0.0), covariance=(2.0, 0.0, 2.0))
    point = ProjectedGaussian(mean=(0.0, 0.0), covariance=(0.0, 0.0, 0.0))
    assert plane.compute_mean_size([circle, point]) == pytest.approx(plane.SIGMAS * 2 / 2)


def test_plane_figure_shows_every_caption(draw, tmp_path):
    source = scenes.Scenes("simple", length=8, size=32)
    image_index = torch.arange(12) % 6
    pairs = pairs_of(draw(6, 8), draw(12, 8), image_index, numbers=torch.arange(6) + 2)
    projected = project_similar_images(pairs, num_images=5)
    png, svg = plane.save_plane_figure(projected, tmp_path / "plane", source=source)
    text = svg_text(svg)
    assert len(projected.captions) == 10
    assert all(caption.caption in text for caption in projected.captions)
    assert svg.read_text().count("<image") == 5
    with Image.open(png) as image:
        assert image.width >= 1280
    _, plain = plane.save_plane_figure(projected, tmp_path / "plain")
    assert "<image" not in plain.read_text()


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([2, 1, 3, 7], "1–3, 7"), ([5, 5, 9, 8], "5, 8–9")]
)
def test_format_ranges(numbers, text):
    assert plane.format_ranges(numbers) == text
