import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from prolip.evaluation import plane
from prolip.measures.public import csd
from tests.evaluation.pairs import pairs_of


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


@pytest.mark.parametrize("shape", [(1, 5), (2, 2)])
def test_fit_plane_with_few_gaussians(draw, shape):
    z = draw(*shape)
    found = plane.fit_plane([z], seeded(), num_samples=1)
    torch.testing.assert_close(found.directions @ found.directions.mT, torch.eye(2).double())
    assert found.project_covariances(z).isfinite().all()


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


def test_project_similar_images_matches_projected_samples(draw):
    image_index = torch.arange(12) % 6
    pairs = pairs_of(draw(6, 8), draw(12, 8, low=-3, high=0), image_index, numbers=torch.arange(6) + 2)
    found = plane.project_similar_images(pairs, query_row=4, num_images=3, seed=7)
    rows, captions = plane.choose_similar_images(pairs, 4, 3)
    fitted = plane.fit_plane([pairs.images[rows], pairs.texts[captions]], seeded(7))
    assert [image.index for image in found.images] == (rows + 2).tolist()
    assert [caption.caption for caption in found.captions] == [pairs.captions.texts[i] for i in captions]
    assert found.captions_of(1) == tuple(f"caption {i}" for i in (int(rows[1]), int(rows[1]) + 6))
    samples = fitted.project(pairs.texts[captions].sample(seeded(1), 100_000))
    for n, caption in enumerate(found.captions):
        assert caption.mean == pytest.approx(samples[:, n].mean(0).tolist(), abs=0.02)
        (xx, xy), (_, yy) = torch.cov(samples[:, n].T).tolist()
        assert caption.covariance == pytest.approx((xx, xy, yy), abs=0.02)
    assert sum(found.explained_variance_ratio) == pytest.approx(float(fitted.explained_variance_ratio.sum()))
