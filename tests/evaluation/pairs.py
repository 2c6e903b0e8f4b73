"""Pictures with captions, embedded, for tests."""

import torch

from prolip.evaluation.captions import Captions, Pairs


def one_pair(draw):
    """One image with one caption."""
    captions = Captions(
        texts=("a",), image_of=torch.tensor([0]), tokens=torch.tensor([1]), lengths=torch.tensor([1])
    )
    return Pairs(
        images=draw(1, 4),
        texts=draw(1, 4),
        captions=captions,
        numbers=torch.tensor([0]),
        keys=("k",),
        name="x",
    )
