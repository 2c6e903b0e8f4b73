import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA

from prolip import scenes
from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions
from prolip.gaussian import Gaussian
from prolip.measures.public import csd
from prolip.reports import plane
from tests.reports.svg import svg_text


def pairs_of(images, texts, image_index, words=None, numbers=None):
    count = len(texts)
    captions = TokenizedCaptions(
        texts=tuple(words or (f"caption {i}" for i in range(count))),
        image_index=image_index,
        tokens=torch.ones(count).long(),
        lengths=torch.ones(count).long(),
    )
    numbers = torch.arange(len(images)) if numbers is None else numbers
    return EmbeddedPairs(
        images=images, texts=texts, captions=captions, indices=numbers, keys=("k",) * len(images), name="x"
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_fit_plane_matches_scikit_learn(draw):
    images, texts = draw(9, 7), draw(5, 7, low=-3, high=0)
    found = plane.fit_plane([images, texts], seeded(), num_samples=10)
    g = seeded()
    samples = torch.cat([z.sample(g, 10).reshape(-1, 7) for z in (images, texts)]).numpy()
    expected = PCA(2).fit(samples)
    signs = np.sign((expected.components_ * found.directions.numpy()).sum(1))
    np.testing.assert_allclose(found.directions.numpy(), signs[:, None] * expected.components_, atol=1e-9)
    np.testing.assert_allclose(
        found.explained_variance_ratio.numpy(), expected.explained_variance_ratio_, atol=1e-9
    )
    points = found.project(images.mean).numpy()
    np.testing.assert_allclose(points, signs * expected.transform(images.mean.numpy()), atol=1e-9)


def test_fit_plane_fixes_signs(draw):
    z = draw(12, 6)
    found = plane.fit_plane([z], seeded())
    largest = found.directions.gather(1, found.directions.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()
    assert torch.equal(found.directions, plane.fit_plane([z], seeded()).directions)


def test_project_covariances_matches_samples(draw):
    z = draw(3, 6, low=-5, high=0)
    found = plane.fit_plane([z], seeded())
    drawn = found.project(z.sample(seeded(1), 200_000))  # (draws, 3, 2)
    for n, covariance in enumerate(found.project_covariances(z)):
        empirical = torch.cov(drawn[:, n].T)
        torch.testing.assert_close(covariance, empirical, rtol=0.03, atol=0.01 * float(covariance.trace()))


def test_compute_ellipses_matches_covariance(draw):
    z = draw(4, 6)
    found = plane.fit_plane([z], seeded())
    offsets = found.compute_ellipses(z, sigmas=1.5) - found.project(z.mean)[:, None]
    inverse = torch.linalg.inv(found.project_covariances(z))
    distance = torch.einsum("nca,nab,ncb->nc", offsets, inverse, offsets)
    torch.testing.assert_close(distance, torch.full_like(distance, 1.5**2))
    offsets = (found.project(z.sample(seeded(2), 20_000)) - found.project(z.mean)).unsqueeze(-1)
    inside = (offsets.mT @ inverse @ offsets).squeeze() <= plane.SIGMAS**2
    assert inside.double().mean() == pytest.approx(1 - np.exp(-(plane.SIGMAS**2) / 2), abs=0.01)


@pytest.mark.parametrize("shape", [(1, 5), (2, 2)])
def test_fit_plane_with_few_gaussians(draw, shape):
    z = draw(*shape)
    found = plane.fit_plane([z], seeded(), num_samples=1)
    torch.testing.assert_close(found.directions @ found.directions.mT, torch.eye(2).double())
    assert found.compute_ellipses(z).isfinite().all()


def test_compute_ellipses_of_points(draw):
    z = Gaussian.point(draw(6, 4).mean)
    found = plane.fit_plane([z], seeded())
    torch.testing.assert_close(
        found.compute_ellipses(z), found.project(z.mean)[:, None].expand(-1, plane.NUM_VERTICES, -1)
    )


def test_fit_plane_without_gaussians_raises():
    with pytest.raises(ValueError, match="at least one"):
        plane.fit_plane([], seeded())


def test_choose_similar_images_takes_first_and_last_caption(draw):
    images = draw(20, 5)
    image_index = torch.arange(60) % 20
    pairs = pairs_of(images, draw(60, 5), image_index)
    rows, captions = plane.choose_similar_images(pairs, query_row=7, num_images=4)
    distance = [float(csd(images[7], z)) if i != 7 else -1.0 for i, z in enumerate(images)]
    assert rows.tolist() == np.argsort(distance)[:4].tolist()
    assert rows[0] == 7
    assert captions.tolist() == [c for i in rows.tolist() for c in (i, 40 + i)]
    lonely = pairs_of(images, draw(20, 5), torch.arange(20))
    assert plane.choose_similar_images(lonely, query_row=7, num_images=4)[1].tolist() == rows.tolist(), (
        "one caption counts once"
    )
    with pytest.raises(ValueError, match=r"from 0 to 19.* not 20"):
        plane.choose_similar_images(pairs, query_row=20)


def test_plane_figure_shows_every_caption(draw, tmp_path):
    source = scenes.Scenes("simple", length=8, size=32)
    image_index = torch.arange(12) % 6
    pairs = pairs_of(draw(6, 8), draw(12, 8), image_index, numbers=torch.arange(6) + 2)
    png, svg = plane.save_plane_figure(tmp_path / "plane", pairs, num_images=5, source=source)
    text = svg_text(svg)
    _, captions = plane.choose_similar_images(pairs, 0, 5)
    assert all(pairs.captions.texts[i] in text for i in captions)
    assert svg.read_text().count("<image") == 5
    with Image.open(png) as image:
        assert image.width >= 1280
    _, plain = plane.save_plane_figure(tmp_path / "plain", pairs, num_images=5)
    assert "<image" not in plain.read_text()


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([2, 1, 3, 7], "1–3, 7"), ([5, 5, 9, 8], "5, 8–9")]
)
def test_format_ranges(numbers, text):
    assert plane.format_ranges(numbers) == text
