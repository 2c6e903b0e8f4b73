"""Corruptions: what they leave alone, that they grow with severity, and that they depend on the number alone."""

import math

import pytest
import torch

from prolip.data.sources.foreground import GRAY
from prolip.evaluation.corruptions import CORRUPTIONS, SEVERITIES, make_corruption, make_occlusion


@pytest.fixture
def pixels(generator):
    """A smooth image with some texture, uint8 (3, 48, 48)."""
    across = torch.linspace(0, 3, 48)
    waves = torch.sin(across[:, None] * 5) + torch.cos(across[None] * 7)
    base = torch.stack([waves - 0.6, waves.flip(0), waves.flip(1) + 0.6]) * 40 + 128
    return (base + 12 * torch.randn(3, 48, 48, generator=generator)).clamp(1, 254).to(torch.uint8)


def distance(a, b):
    return (a.double() - b.double()).norm().item()


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_a_severer_corruption_is_further_away(kind, pixels):
    before = pixels.clone()
    done = [make_corruption(kind, severity).apply(pixels, 3) for severity in range(1, 6)]
    assert all(one.shape == pixels.shape and one.dtype == torch.uint8 for one in done)
    assert torch.equal(pixels, before), "the image itself is not changed"
    away = [distance(one, pixels) for one in done]
    assert away[0] > 0
    assert away == sorted(set(away))
    again = make_corruption(kind, 4).apply(pixels, 3)
    assert torch.equal(again, done[3])
    names = {make_corruption(kind, severity).name for severity in range(1, 6)}
    assert len(names) == 5, "cached results are stored by these names"


def test_noise_is_the_samples_own_of_the_sigma_that_is_asked_for():
    gray = torch.full((3, 96, 96), 128, dtype=torch.uint8)
    first, second = (make_corruption("gaussian_noise", 1).apply(gray, number) for number in (0, 1))
    assert not torch.equal(first, second)
    assert not torch.equal(first, make_corruption("gaussian_noise", 1, seed=1).apply(gray, 0))
    sigma = (first.double() - 128).std().item() / 255
    assert sigma == pytest.approx(SEVERITIES["gaussian_noise"][0], rel=0.03)


@pytest.mark.parametrize("severity", [1, 5])
def test_contrast_preserves_mean_color_and_brightness_hue(pixels, severity):
    flat = make_corruption("contrast", severity).apply(pixels, 0).double()
    factor = SEVERITIES["contrast"][severity - 1]
    assert torch.allclose(flat.mean((1, 2)), pixels.double().mean((1, 2)), atol=0.6)
    assert torch.allclose(flat.std((1, 2)), factor * pixels.double().std((1, 2)), rtol=0.05, atol=0.4)
    bright = make_corruption("brightness", severity).apply(pixels, 0).double()
    value, added = pixels.double().amax(0), 255 * SEVERITIES["brightness"][severity - 1]
    assert torch.allclose(bright.amax(0), (value + added).clamp_max(255), atol=0.51)
    assert torch.allclose(bright / bright.amax(0), pixels.double() / value, atol=0.02)
    black = torch.zeros(3, 4, 4, dtype=torch.uint8)
    assert make_corruption("brightness", severity).apply(black, 0).unique().tolist() == [round(added)]


def test_pixels_that_are_alike_stay_alike():
    gray = torch.full((3, 32, 32), 90, dtype=torch.uint8)
    for kind in ("gaussian_blur", "pixelate", "contrast"):
        assert torch.equal(make_corruption(kind, 5).apply(gray, 0), gray)


@pytest.mark.parametrize("fraction", [0.025, 0.05, 0.075, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("side", [32, 33])
def test_occlusion_changes_only_the_center(fraction, side, generator):
    pixels = torch.randint(0, 128, (3, side, side), generator=generator).to(torch.uint8)  # nowhere gray
    hidden = make_occlusion(fraction).apply(pixels, 0)
    box = round(side * math.sqrt(fraction))
    start = (side - box) // 2
    wanted = pixels.clone()
    wanted[:, start : start + box, start : start + box] = GRAY
    assert torch.equal(hidden, wanted)
    assert (hidden != pixels).all(0).sum().item() == box * box
    assert abs(start - (side - start - box)) <= 1, "it is in the middle"


def test_occlusion_of_nothing_and_with_another_gray(pixels):
    assert torch.equal(make_occlusion(0.0).apply(pixels, 0), pixels)
    assert make_occlusion(1.0, level=7).apply(pixels, 0).unique().tolist() == [7]
    assert len({make_occlusion(*rule).name for rule in [(0.1,), (0.05,), (0.1, 7)]}) == 3


def test_invalid_arguments_are_reported(pixels):
    with pytest.raises(ValueError, match=r"severity .* from 1 to 5, not 6"):
        make_corruption("jpeg", 6)
    with pytest.raises(ValueError, match="is not one of"):
        make_corruption("fog", 1)
    with pytest.raises(ValueError, match=r"in 0\.\.1"):
        make_occlusion(10)
    with pytest.raises(ValueError, match=r"shape \(3, S, S\)"):
        make_corruption("jpeg", 1).apply(pixels[:1], 0)
    with pytest.raises(TypeError, match="uint8"):
        make_corruption("gaussian_noise", 1).apply(pixels.float(), 0)
