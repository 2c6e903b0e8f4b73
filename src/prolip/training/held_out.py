"""A small check on data that is not trained on: does retrieval work, and what is uncertain?

It draws nothing at random and leaves no trace in the model, so a run with it and one without it are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prolip import distributed
from prolip.gaussian import Gaussian
from prolip.measures.public import csd_matrix
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalise

AT_ONCE = 256


class HeldOutCheck:
    """pixels: uint8 (n, 3, S, S). captions: n, one an image."""

    def __init__(self, model: ProLIP, pixels: Tensor, captions: Sequence[str]) -> None:
        self._model = model
        self._pixels, self._ids = pixels, model.tokenize(list(captions))
        self._same = same_caption(captions)

    @torch.no_grad()
    def embed(self) -> tuple[Gaussian, Gaussian]:
        """Images and texts (n, D), on the CPU. All ranks call it, each embeds its share."""
        images = self._embedded(len(self._pixels), self._images)
        return images, self._embedded(len(self._ids), self._texts)

    def judge(self, images: Gaussian, texts: Gaussian) -> dict[str, float]:
        """The numbers by name, of what `embed` gave."""
        return retrieval(images, texts, self._same) | uncertainty(images, texts)

    def _images(self, rows: Tensor) -> Gaussian:
        pixels = self._pixels[rows].to(self._model.device)
        return self._model.encode_image(normalise(pixels, self._model.config.image.pixels))

    def _texts(self, rows: Tensor) -> Gaussian:
        return self._model.encode_text(self._ids[rows].to(self._model.device))

    def _embedded(self, count: int, embed: Callable[[Tensor], Gaussian]) -> Gaussian:
        """Each rank's share of the rows, then everyone's together. Sharded towers are called equally often by all."""
        world, rank = distributed.world_size(), distributed.rank()
        each = -(-count // world)
        own = torch.arange(rank * each, (rank + 1) * each).clamp(max=count - 1)
        z = Gaussian.cat([embed(rows) for rows in own.split(AT_ONCE)])
        sizes = [each] * world
        whole = Gaussian(distributed.gather(z.mean, sizes), distributed.gather(z.log_var, sizes))
        return whole[:count].to("cpu")


def same_caption(captions: Sequence[str]) -> Tensor:
    """(n, n) bool: i and j have one caption, so either picture is right for it."""
    numbers = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    which = torch.tensor([numbers[caption] for caption in captions])
    return which[:, None] == which


def retrieval(images: Gaussian, texts: Gaussian, right: Tensor) -> dict[str, float]:
    """Share whose nearest, by CSD, of the other kind is right. right: (n, n) bool, rows are images."""
    distance = csd_matrix(images, texts)
    rows = torch.arange(len(distance))
    to_text = right[rows, distance.argmin(1)].double().mean().item()
    to_image = right[distance.argmin(0), rows].double().mean().item()
    return {
        "held_out/r1": (to_text + to_image) / 2,
        "held_out/image_to_text_r1": to_text,
        "held_out/text_to_image_r1": to_image,
    }


def uncertainty(images: Gaussian, texts: Gaussian) -> dict[str, float]:
    """Mean uncertainty of each kind, how often a caption's is above its image's; nothing for a deterministic model."""
    image, text = images.uncertainty, texts.uncertainty
    if not image.any() and not text.any():
        return {}
    return {
        "held_out/image_uncertainty": image.mean().item(),
        "held_out/text_uncertainty": text.mean().item(),
        "held_out/text_above_image": (text > image).double().mean().item(),
    }
