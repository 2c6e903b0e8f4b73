from pathlib import Path

import torch

from prolip.embeddings.embedder import Embedder
from prolip.gaussian import Gaussian
from reproduction.evaluation_sets import (
    PICTURES,
    POLLUTED,
    SHOTS,
    Ground,
    Samples,
    has_variances,
    with_constant_variance,
)

GROUND = Ground(Path("nowhere"), Samples(scenes=6, size=32, shots=2))


def test_parts_have_scenes_of_their_own():
    seeds = [GROUND.seed_of(part) for part in (0, 1, PICTURES, POLLUTED, SHOTS)]
    assert len(set(seeds)) == len(seeds)


def test_shots_are_pictures_of_all_classes_that_are_shown(scenes_model):
    shots = GROUND.shots("colour_shape")
    labels = shots.labels(Embedder(model=scenes_model, progress=False).images(shots.source).facts)
    assert torch.bincount(labels).unique().tolist() == [0, 2]
    assert len(labels.unique()) == 64 - 8


def test_unseen_pairs_are_never_drawn():
    kinds = {(t.colour, t.shape) for i in range(300) for t in GROUND.world.scene(1, i).things}
    assert not kinds & GROUND.world.unseen


def test_constant_variances_are_the_mean_log_variance(draw):
    z = draw(5, 3)
    flat = with_constant_variance(z)
    assert torch.equal(flat.mean, z.mean)
    assert torch.allclose(flat.log_var, z.log_var.mean().expand(5, 3))
    assert has_variances(flat)
    assert not has_variances(Gaussian.point(z.mean))
