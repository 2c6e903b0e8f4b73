from pathlib import Path

import torch

from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from reproduction.evaluation_data import (
    NOISY_SPLIT,
    PAIRS_SPLIT,
    SHOTS_SPLIT,
    EvaluationData,
    EvaluationSizes,
    has_variances,
    replace_with_constant_variance,
)

EVALUATION_DATA = EvaluationData(Path("nowhere"), EvaluationSizes(scenes=6, size=32, shots=2))


def test_parts_have_scenes_of_their_own():
    seeds = [EVALUATION_DATA.derive_seed(part) for part in (0, 1, PAIRS_SPLIT, NOISY_SPLIT, SHOTS_SPLIT)]
    assert len(set(seeds)) == len(seeds)


def test_shots_are_pictures_of_all_classes_that_are_shown(scenes_model):
    shots = EVALUATION_DATA.shots("color_shape")
    labels = shots.labels(Embedder(model=scenes_model, progress=False).embed_images(shots.source).metadata)
    assert torch.bincount(labels).unique().tolist() == [0, 2]
    assert len(labels.unique()) == 64 - 8


def test_unseen_pairs_are_never_drawn():
    kinds = {(t.color, t.shape) for i in range(300) for t in EVALUATION_DATA.world.draw_scene(1, i).objects}
    assert not kinds & EVALUATION_DATA.world.unseen


def test_constant_variances_are_the_mean_log_variance(draw):
    z = draw(5, 3)
    flat = replace_with_constant_variance(z)
    assert torch.equal(flat.mean, z.mean)
    assert torch.allclose(flat.log_var, z.log_var.mean().expand(5, 3))
    assert has_variances(flat)
    assert not has_variances(Gaussian.point(z.mean))
