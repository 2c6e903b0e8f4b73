"""Calibration of match probabilities on held-out pairs, in batches as in training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.checks import require_positive_int
from prolip.evaluation.metrics.calibration import PairCalibration, pair_calibration
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters

BLOCK_PAIRS = 2**20
"""Pairs whose float64 logits are held at one time."""
LIKELY = 0.02
"""Match probability above which a pair is a likely one."""


@dataclass(frozen=True, kw_only=True)
class MatchCalibration:
    """Calibration of match probabilities over all pairs of an image and a text of the same batch.

    As in training, a text matches its own image only, even if it is true of others. The bias of the logits holds the
    prior of a training batch, one match among B texts: with another batch size the probabilities can't be calibrated.
    """

    n: int
    """Number of texts, each with its image, in complete batches."""
    batch_size: int
    """Texts per batch."""
    pairs: PairCalibration
    """Of all n x batch_size pairs. Most are certain non-matches, which make its values small."""
    num_likely: int
    """Pairs with a match probability above 0.02."""
    likely: PairCalibration | None
    """Of these pairs alone; None if there are none."""


def match_calibration(
    images: Gaussian,
    texts: Gaussian,
    image_of_text: Tensor,
    logits: LogitParameters,
    batch_size: int,
    seed: int = 0,
) -> MatchCalibration | None:
    """Measure the calibration of match probabilities in batches as in training: images with one text each.

    Args:
        images: The images, (N, D).
        texts: The texts, (T, D).
        image_of_text: Row of each text's image, int64 (T,).
        logits: Parameters of the model's match logits.
        batch_size: B, texts per batch: as in training.
        seed: Seed of the batches, see `draw_batches`.

    Returns:
        The calibration; None for a softmax model, and if there is no complete batch.
    """
    batches = draw_batches(image_of_text, batch_size, seed)
    if logits.bias is None or not batches:
        return None
    likely: list[tuple[Tensor, Tensor]] = []

    def iter_blocks() -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and matches, (R, B) each, of R images at a time; keeps the likely ones."""
        columns = torch.arange(batch_size)
        for batch in batches:
            for rows in columns.split(max(1, BLOCK_PAIRS // batch_size)):
                block = logits.logits_matrix(images[image_of_text[batch[rows]]], texts[batch]).double()
                is_own, is_likely = rows[:, None] == columns, block.sigmoid() > LIKELY
                likely.append((block[is_likely], is_own[is_likely]))
                yield block, is_own

    pairs = pair_calibration(iter_blocks())
    likely_logits, likely_matches = (torch.cat(blocks) for blocks in zip(*likely, strict=True))
    return MatchCalibration(
        n=len(batches) * batch_size,
        batch_size=batch_size,
        pairs=pairs,
        num_likely=len(likely_logits),
        likely=pair_calibration([(likely_logits, likely_matches)]) if len(likely_logits) else None,
    )


def draw_batches(image_of_text: Tensor, batch_size: int, seed: int) -> list[Tensor]:
    """Cut texts into random batches, as training does over several passes: each pass takes one text of each image.

    Args:
        image_of_text: Row of each text's image, int64 (T,).
        batch_size: B, texts per batch.
        seed: Seed of the order of texts.

    Returns:
        Rows of the texts of each batch, int64 (B,), of B different images. A text is in at most one batch; the texts of
        a pass that don't fill a batch are in none.
    """
    require_positive_int(batch_size, "batch_size")
    order = torch.randperm(len(image_of_text), generator=torch.Generator().manual_seed(seed))
    by_image = image_of_text[order].argsort(stable=True)  # image by image, the texts of each in random order
    counts = image_of_text[order][by_image].unique_consecutive(return_counts=True)[1]
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    passes = torch.empty_like(order)
    passes[by_image] = torch.arange(len(order)) - starts
    num_passes = int(counts.max()) if len(counts) else 0
    return [
        batch
        for number in range(num_passes)
        for batch in order[passes == number].split(batch_size)
        if len(batch) == batch_size
    ]
