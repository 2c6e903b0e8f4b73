"""Retrieval and uncertainty on held-out data during training.

The evaluation draws no random numbers and doesn't change the model, so it doesn't change the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from prolip import distributed
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters
from prolip.measures.nearest import RankingMetric, similarity
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalize
from prolip.training.data_setup import HeldOutSamples

BATCH_SIZE = 256
"""Images or texts per forward pass."""


class HeldOutEmbeddings(NamedTuple):
    """Held-out samples as the model embeds them at a step.

    Attributes:
        images: (n, D), on the CPU.
        texts: (n, D), on the CPU.
        logits: Parameters of the model's match logits.
    """

    images: Gaussian
    texts: Gaussian
    logits: LogitParameters


class HeldOutEvaluator:
    """Evaluates the model that is being trained on held-out samples, which it keeps in memory.

    Args:
        model: Its weights at the time of each evaluation are used.
        samples: The samples.
    """

    def __init__(self, model: ProLIP, samples: HeldOutSamples) -> None:
        self._model = model
        self._pixels, self._ids = samples.images, samples.texts
        self._is_match = match_captions(samples.captions)

    @torch.no_grad()
    def embed(self) -> HeldOutEmbeddings:
        """Embed all held-out samples with the model's present weights. All ranks call it and embed a part each.

        Returns:
            Images and texts, and the parameters of the match logits that belong to the same weights.
        """
        with evaluation_mode(self._model):
            images = self._embed_on_all_ranks(len(self._pixels), self._embed_images)
            texts = self._embed_on_all_ranks(len(self._ids), self._embed_texts)
        return HeldOutEmbeddings(images, texts, self._model.logit_parameters)

    def compute_metrics(self, embedded: HeldOutEmbeddings) -> dict[str, float]:
        """Metrics (`HELD_OUT_METRICS`) of the result of `embed`.

        Args:
            embedded: The samples. The order is that of the model's match logits.

        Returns:
            Metrics by name, with the number of samples; without those of uncertainty if the model has no variances.
        """
        images, texts, logits = embedded
        metric: RankingMetric = logits.similarity_metric or logits
        retrieval = compute_retrieval(images, texts, self._is_match, metric)
        return {"held_out/n": float(len(images))} | retrieval | compute_uncertainty(images, texts)

    def compute_recall(self, embedded: HeldOutEmbeddings, *, of_images: bool) -> float:
        """Recall@1 of the result of `embed`.

        Args:
            embedded: The samples.
            of_images: From images to texts only; if texts are class prompts, that is the accuracy of classification.

        Returns:
            A fraction; without `of_images` the mean of both directions.
        """
        values = self.compute_metrics(embedded)
        return values["held_out/image_to_text_r1" if of_images else "held_out/r1"]

    def __len__(self) -> int:
        return len(self._pixels)

    def _embed_images(self, rows: Tensor) -> Gaussian:
        """Embed the images with these row numbers (n,): (n, D), on the model's device."""
        pixels = self._pixels[rows].to(self._model.device)
        if pixels.ndim == 2:
            return self._model.encode_components(pixels, "image")
        return self._model.encode_image(normalize(pixels, self._model.config.image.preprocessing))

    def _embed_texts(self, rows: Tensor) -> Gaussian:
        """Embed the texts with these row numbers (n,): (n, D), on the model's device."""
        ids = self._ids[rows].to(self._model.device)
        return (
            self._model.encode_components(ids, "text")
            if ids.is_floating_point()
            else self._model.encode_text(ids)
        )

    def _embed_on_all_ranks(self, num_rows: int, embed_rows: Callable[[Tensor], Gaussian]) -> Gaussian:
        """Embed this rank's part of the rows, then gather the parts of all ranks: (num_rows, D), on the CPU.

        The last row is repeated where `num_rows` is no multiple of the ranks: FSDP needs equally many calls on all
        ranks.

        Args:
            num_rows: Rows to embed, over all ranks.
            embed_rows: From row numbers (n,) to their embeddings (n, D).
        """
        world_size, rank = distributed.world_size(), distributed.rank()
        rows_per_rank = -(-num_rows // world_size)  # rounded up
        own_rows = torch.arange(rank * rows_per_rank, (rank + 1) * rows_per_rank).clamp(max=num_rows - 1)
        z = Gaussian.cat([embed_rows(rows) for rows in own_rows.split(BATCH_SIZE)])
        sizes = [rows_per_rank] * world_size
        gathered = Gaussian(distributed.all_gather(z.mean, sizes), distributed.all_gather(z.log_var, sizes))
        return gathered[:num_rows].to("cpu")


@contextmanager
def evaluation_mode(model: ProLIP) -> Iterator[None]:
    """Context without dropout, after which the model is in the mode that it was in.

    Args:
        model: The model.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def match_captions(captions: Sequence[str]) -> Tensor:
    """Find which samples have the same caption: then the image of each matches the captions of all of them.

    Args:
        captions: n captions.

    Returns:
        bool (n, n), symmetric; the diagonal is True.
    """
    indices = {caption: index for index, caption in enumerate(dict.fromkeys(captions))}
    caption_ids = torch.tensor([indices[caption] for caption in captions])
    return caption_ids[:, None] == caption_ids


def compute_retrieval(
    images: Gaussian, texts: Gaussian, is_match: Tensor, metric: RankingMetric = "csd"
) -> dict[str, float]:
    """Recall@1 from image to text and from text to image.

    Args:
        images: (n, D).
        texts: (n, D).
        is_match: (n, n) bool, rows are images.
        metric: Similarity that ranks.

    Returns:
        held_out/r1, which is the mean of both directions, and each direction; fractions from 0 to 1.
    """
    scores = similarity(images, texts, metric)
    rows = torch.arange(len(scores))
    to_text = is_match[rows, scores.argmax(1)].double().mean().item()
    to_image = is_match[scores.argmax(0), rows].double().mean().item()
    return {
        "held_out/r1": (to_text + to_image) / 2,
        "held_out/image_to_text_r1": to_text,
        "held_out/text_to_image_r1": to_image,
    }


def compute_uncertainty(images: Gaussian, texts: Gaussian) -> dict[str, float]:
    """Mean uncertainty of images and texts, and how often a text's is above its image's; {} if all are 0.

    Args:
        images: (n, D).
        texts: (n, D), in the same order.

    Returns:
        Metrics by name: traces of the covariances, and a fraction from 0 to 1.
    """
    image_uncertainty, text_uncertainty = images.uncertainty, texts.uncertainty
    if not image_uncertainty.any() and not text_uncertainty.any():
        return {}
    return {
        "held_out/image_uncertainty": image_uncertainty.mean().item(),
        "held_out/text_uncertainty": text_uncertainty.mean().item(),
        "held_out/text_above_image": (text_uncertainty > image_uncertainty).double().mean().item(),
    }
