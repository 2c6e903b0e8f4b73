import math

import pytest
import torch

from benchmarks.fitting import bound_entropy, draw_captions, print_result, run
from prolip import scenes


@pytest.mark.parametrize("by_moments", [False, True])
@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("top", [1, 5, 199])
def test_bounds_enclose_the_exact_entropy(top, spread, by_moments):
    generator = torch.Generator().manual_seed(0)
    logits = spread * torch.randn(100, 200, generator=generator, dtype=torch.float64)
    exact = torch.special.entr(logits.softmax(1)).sum(1)
    low, high = bound_entropy(logits, top, by_moments=by_moments)
    assert bool(((low <= exact + 1e-9) & (exact <= high + 1e-9)).all())
    assert bool((high <= math.log(200) + 1e-9).all())


def test_moments_tighten_the_bounds():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(50, 300, generator=generator, dtype=torch.float64)
    low, high = bound_entropy(logits, 20, by_moments=False)
    narrow_low, narrow_high = bound_entropy(logits, 20, by_moments=True)
    assert bool(((low <= narrow_low) & (narrow_high <= high)).all())
    assert float((narrow_high - narrow_low).mean()) < 0.7 * float((high - low).mean())


def test_captions_are_true_of_as_many_scenes_as_counted():
    texts, true = draw_captions(30, 20)
    assert len(texts) == len(set(texts)) == 20
    drawn = [scenes.SIMPLE.draw_scene(81_001, index) for index in range(30)]
    counted = [sum(scenes.is_true_caption(text, scene) for scene in drawn) for text in texts]
    assert true.tolist() == counted


def test_run_compares_counts(capsys):
    result = run(images=300, captions=40)
    assert (result.num_images, result.num_captions) == (300, 40)
    by_name = {one.name: one for one in result.counts}
    best = by_name["perplexity by match, k 1.0"]
    assert best.spearman > 0.8
    assert 0.5 < best.median_ratio < 2
    assert best.within_two > by_name["equally good, of 100"].within_two
    assert all(one.enclosed == 1.0 for one in result.bounds)
    print_result(result)
    assert "equally good, of 100" in capsys.readouterr().out
