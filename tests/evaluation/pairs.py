"""Images with captions, embedded, for tests."""

import torch

from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions


def one_pair(draw):
    """One image with one caption."""
    captions = TokenizedCaptions(
        texts=("a",), image_index=torch.tensor([0]), tokens=torch.tensor([1]), lengths=torch.tensor([1])
    )
    return EmbeddedPairs(
        images=draw(1, 4),
        texts=draw(1, 4),
        captions=captions,
        indices=torch.tensor([0]),
        keys=("k",),
        name="x",
    )
