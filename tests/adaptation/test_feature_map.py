"""The fit of the feature map, against numpy in float64."""

import numpy as np
import pytest
import torch

from prolip.adaptation.feature_map import fit_feature_map


def make_features(generator, count=400, dim=12):
    mixing = torch.randn(dim, dim, generator=generator)
    return torch.randn(count, dim, generator=generator) @ mixing * 3 + torch.arange(dim)


def reference(features, components, x):
    """Components of x: standardize, clip, PCA, divide by the fourth root of the variance, scale."""
    f = features.double().numpy()
    mean, std = f.mean(0), f.std(0, ddof=1)
    standardized = np.clip((f - mean) / std, -8, 8)
    _, singular, rows = np.linalg.svd(standardized / np.sqrt(len(f)), full_matrices=False)
    scaled = rows[:components].T / np.sqrt(singular[:components])  # singular values are roots of variances
    scaled /= np.sqrt(np.mean((standardized @ scaled) ** 2))
    return np.clip((x.double().numpy() - mean) / std, -8, 8) @ scaled


@pytest.mark.parametrize("components", [1, 5, 12])
def test_map_is_that_of_numpy_up_to_signs(generator, components):
    features = make_features(generator)
    fitted = fit_feature_map(features, components)
    x = make_features(generator, count=50)
    expected, actual = reference(features, components, x), fitted(x).numpy()
    signs = np.sign((expected * actual).sum(0))
    np.testing.assert_allclose(actual * signs, expected, rtol=0, atol=1e-4)


def test_variances_are_half_whitened(generator):
    features = make_features(generator)
    y = fit_feature_map(features, 12)(features)
    covariance = torch.cov(y.T)
    variances = covariance.diagonal()
    torch.testing.assert_close(covariance, torch.diag(variances), rtol=0, atol=2e-2)
    standardized = (features - features.mean(0)) / features.std(0)
    own = torch.linalg.eigvalsh(torch.cov(standardized.T)).flip(0)
    torch.testing.assert_close(variances / variances[0], (own / own[0]).sqrt(), rtol=0, atol=1e-2)
    assert y.square().mean().item() == pytest.approx(1.0, abs=1e-5)


def test_constant_features_and_outliers_do_not_blow_up(generator):
    features = make_features(generator)
    features[:, 3] = 7.0
    fitted = fit_feature_map(features, 12)
    features[0, 5] = 1e30
    assert fitted(features).isfinite().all()
    assert fitted(features).abs().max() < 100


@pytest.mark.parametrize(
    ("features", "components", "message"),
    [
        (torch.ones(1, 4), 2, "at least 2 rows, not 1"),
        (torch.ones(5, 4), 5, "components 5 is more than the 4 features"),
        (torch.ones(5, 4), 2, "all 5 inputs are equal"),
        (torch.full((5, 4), torch.nan), 2, "NaN"),
    ],
)
def test_what_cannot_be_fitted_is_refused(features, components, message):
    with pytest.raises(ValueError, match=message):
        fit_feature_map(features, components)
