"""The references of the benchmark must compute the same thing, or the ratio means nothing."""

import math
from dataclasses import replace

import pytest
import torch

from benchmarks import evaluate
from prolip.retrieval.traversal.traverse import traverse
from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG, few_shot_config, fit_prompt_weights, zero_shot_weights

pytestmark = pytest.mark.slow


@pytest.fixture
def watched(monkeypatch):
    """Records what the benchmark times; each reference takes 2 s, ours 0.5 s."""
    works = []

    def compare(reference, ours, repeats, group):
        works.append((reference, ours, repeats))
        return {
            "reference_seconds": 2.0,
            "ours_seconds": 0.5,
            "times_faster": 4.0,
            "reference_mebibytes": 6.0,
            "ours_mebibytes": 2.0,
            "times_smaller": 3.0,
        }

    monkeypatch.setattr(evaluate, "compare_implementations", compare)
    return works


def test_class_by_class_bprw_gives_our_weights(draw):
    prompts, images = draw(3, 5, 12, low=-7.0, high=-3.0), draw(40, 12, low=-9.0, high=-5.0)
    found = zero_shot_weights(prompts, images, ZERO_SHOT_CONFIG, torch.Generator().manual_seed(3))
    noise = torch.randn(
        ZERO_SHOT_CONFIG.nearest_images,
        ZERO_SHOT_CONFIG.samples_per_image,
        12,
        generator=torch.Generator().manual_seed(3),
        dtype=torch.float64,
    )
    wanted = evaluate.class_by_class_bprw(prompts, images, noise, 1000)
    torch.testing.assert_close(wanted, found.weights, rtol=1e-4, atol=1e-5, check_dtype=False)
    assert (wanted.amax(-1) > 2 * wanted.amin(-1)).all(), "weights that are all alike would prove nothing"
    other = zero_shot_weights(
        prompts, images, replace(ZERO_SHOT_CONFIG, nearest_images=40), torch.Generator().manual_seed(3)
    )
    assert (other.weights - wanted).abs().max() > 1e-3, "which images are nearest must count"


def test_class_by_class_reweighing_gives_our_weights(draw):
    prompts, observed = draw(3, 5, 12, low=-7.0, high=-3.0), draw(3, 4, 12, low=-9.0, high=-5.0)
    settings = few_shot_config(4)
    found = fit_prompt_weights(prompts, observed, settings, torch.Generator().manual_seed(3))
    noise = torch.randn(
        4, settings.samples_per_image, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    wanted = evaluate.class_by_class_reweighing(prompts, observed, noise, settings, 1000)
    torch.testing.assert_close(wanted, found.weights, rtol=1e-4, atol=1e-5, check_dtype=False)


def test_image_by_image_traversal_gives_our_steps(draw):
    images, captions = draw(6, 16, low=-9.0, high=-5.0), draw(50, 16, low=-7.0, high=-3.0)
    null = draw(1, 16, low=-4.0, high=-2.0)
    traversals = traverse(images, captions, null, steps=30)
    wanted = evaluate.image_by_image_traversal(images, captions, null, steps=30)
    assert torch.equal(wanted, traversals.visited)
    assert max(len(traversals.get_path(row)) for row in range(6)) > 2, (
        "paths that stay at their start prove nothing"
    )
    assert len(traversals.roots.unique()) > 1, "one root for all proves nothing"
    assert evaluate.image_by_image_traversal(images[:1], captions, null).shape == (1, 50)


def test_run_scales_up_the_reference(watched):
    results = evaluate.run(scale=0.01, repeats=7, dims=24)
    assert [row["size"] for row in results] == [
        "10 classes x 2 prompts, 100 images, 24 dimensions",
        "10 classes x 2 prompts, 24 dimensions",
        "10 images x 40 captions, 24 dimensions",
    ]
    for row in results:
        assert row["reference_seconds"] == pytest.approx(2.0 * 10 / evaluate.NUM_TIMED)
        assert row["times_faster"] == pytest.approx(row["reference_seconds"] / 0.5)
        assert "times_smaller" not in row, "the reference's memory is of a few"
    *both, (reference_traversal, our_traversal, _) = watched
    assert [repeats for _, _, repeats in watched] == [7, 7, 7]
    for reference, ours, _ in both:
        assert reference().shape == (evaluate.NUM_TIMED, 2)
        assert ours().weights.shape == (10, 2)
    assert our_traversal().visited.shape == (10, 50)
    same = reference_traversal() == our_traversal().visited[: evaluate.NUM_TIMED]
    assert same.float().mean() > 0.95  # float32: a tie may fall either way


def test_run_and_print_result(capsys):
    results = evaluate.run(scale=0.001, repeats=1, dims=8)
    assert ["BPRW" in row["name"] for row in results] == [True, True, False]
    for row in results:
        assert {"name", "size", "reference"} <= row.keys()
        assert row["reference_seconds"] > 0
        assert row["times_faster"] == pytest.approx(row["reference_seconds"] / row["ours_seconds"])
    evaluate.print_result(results)
    table = " ".join(capsys.readouterr().out.split())
    assert "traversal to the inclusion root" in table
    for row in results:
        assert f"{row['reference_seconds']:.3f} s" in table
        assert f"{row['times_faster']:.3g} x" in table
    assert "MiB" not in table


@pytest.mark.parametrize("scale", [0.0, -1.0, 4.1, math.nan, math.inf])
def test_run_rejects_bad_scale(scale, watched):
    with pytest.raises(ValueError, match=f"--scale must be above 0 and at most 4, not {scale}"):
        evaluate.run(scale=scale)
    assert not watched


def test_run_rejects_zero_repeats(watched):
    with pytest.raises(ValueError, match=r"--repeats .* not 0"):
        evaluate.run(repeats=0)
    assert not watched
