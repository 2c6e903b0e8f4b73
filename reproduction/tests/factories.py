"""Hand-made cells and scenes."""

import torch

from prolip.gaussian import Gaussian
from prolip.scenes import RandomDraws, Scenes, make_caption
from prolip.scenes.config import SceneDatasetSpec
from reproduction.cell import MEASURES, Cell
from reproduction.evaluation_data import EmbeddedScenes

WORLD = SceneDatasetSpec(world="simple", unseen=8).distribution
DIMS = 4


def cell(variant="prolip", seed=0, scale="minutes", fingerprint="0", **numbers):
    return Cell(
        scale=scale, variant=variant, seed=seed, fingerprint=fingerprint, provenance={"measures": MEASURES},
        numbers=numbers,
    )  # fmt: skip


def gaussian(uncertainty, mean=None):
    """Unit means (the same for all, if none are given), variances that are equal in all dimensions."""
    uncertainty = torch.as_tensor(uncertainty, dtype=torch.float64)
    if mean is None:
        mean = torch.eye(DIMS, dtype=torch.float64)[:1].expand(len(uncertainty), -1)
    return Gaussian(mean, (uncertainty / DIMS).log()[:, None].expand(-1, DIMS).clone())


def embedded(uncertainty_of, images=0.1, count=300, seed=5):
    """Scenes with four captions each; a caption's uncertainty is any function of it."""
    source = Scenes(WORLD, length=count, size=32, seed=seed)
    captions = [caption for index in range(count) for caption in source.captions(index)]
    return EmbeddedScenes(
        world=WORLD,
        source=source,
        images=gaussian([images] * count),
        captions=tuple(captions),
        image_of=torch.arange(count).repeat_interleave(4),
        texts=gaussian([uncertainty_of(one) for one in captions]),
    )


def full_caption(scene, number=0):
    return make_caption(scene, 3, RandomDraws(1, number), WORLD)
