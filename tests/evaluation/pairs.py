"""Images with captions, embedded, for tests."""

import torch

from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions


def pairs_of(images, texts, image_index, words=None, numbers=None):
    """Images with captions of one token each; `numbers` are indices of the images in their source."""
    count = len(texts)
    captions = TokenizedCaptions(
        texts=tuple(words or (f"caption {i}" for i in range(count))),
        image_index=image_index,
        tokens=torch.ones(count).long(),
        lengths=torch.ones(count).long(),
    )
    numbers = torch.arange(len(images)) if numbers is None else numbers
    return EmbeddedPairs(
        images=images, texts=texts, captions=captions, indices=numbers, keys=("k",) * len(images), name="x"
    )


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
