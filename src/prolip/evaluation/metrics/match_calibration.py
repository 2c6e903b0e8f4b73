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
    """Number of images, each with one text, in complete batches."""
    batch_size: int
    """Images per batch."""
    pairs: PairCalibration
    """Of all n x batch_size pairs. Most are certain non-matches, which make its values small."""
    num_likely: int
    """Pairs with a match probability above 0.02."""
    likely: PairCalibration | None
    """Of these pairs alone; None if there are none."""


def match_calibration(
    images: Gaussian, texts: Gaussian, logits: LogitParameters, batch_size: int, seed: int = 0
) -> MatchCalibration | None:
    """Measure the calibration of match probabilities in batches, drawn at random.

    Args:
        images: The images, (N, D).
        texts: One text of each image, (N, D).
        logits: Parameters of the model's match logits.
        batch_size: B, images per batch: as in training. The last N mod B images of the random order don't count.
        seed: Seed of the order.

    Returns:
        The calibration; None for a softmax model, and if there is no complete batch.
    """
    require_positive_int(batch_size, "batch_size")
    if images.shape != texts.shape:
        raise ValueError(
            f"images {tuple(images.shape)} and texts {tuple(texts.shape)} must be pairs, (N, D) each"
        )
    num_batches = len(images) // batch_size
    if logits.bias is None or not num_batches:
        return None
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    batches = order[: num_batches * batch_size].split(batch_size)
    likely: list[tuple[Tensor, Tensor]] = []

    def iter_blocks() -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and matches, (R, B) each, of R images at a time; keeps the likely ones."""
        columns = torch.arange(batch_size)
        for batch in batches:
            for rows in columns.split(max(1, BLOCK_PAIRS // batch_size)):
                block = logits.logits_matrix(images[batch[rows]], texts[batch]).double()
                is_own, is_likely = rows[:, None] == columns, block.sigmoid() > LIKELY
                likely.append((block[is_likely], is_own[is_likely]))
                yield block, is_own

    pairs = pair_calibration(iter_blocks())
    likely_logits, likely_matches = (torch.cat(blocks) for blocks in zip(*likely, strict=True))
    return MatchCalibration(
        n=num_batches * batch_size,
        batch_size=batch_size,
        pairs=pairs,
        num_likely=len(likely_logits),
        likely=pair_calibration([(likely_logits, likely_matches)]) if len(likely_logits) else None,
    )
