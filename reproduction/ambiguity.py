"""Correlation of text uncertainty with true ambiguity and with length, each with the other held fixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from prolip.evaluation.metrics.correlation import spearman
from prolip.scenes.ambiguity import log_ambiguity
from reproduction.evaluation_data import EmbeddedScenes

MIN_GROUP = 50
"""Smallest group of captions of one length, or of one ambiguity, that has a correlation."""
LEVELS = (1, 2, 3)
"""Level 0 is always true: its ambiguity doesn't vary."""


def measure(embedded: EmbeddedScenes) -> dict[str, Any] | None:
    """Spearman's correlations of tr(Sigma), over different texts; None for a deterministic model.

    n: different texts. spearman: with ln of the true probability. by_level: the same within levels 1, 2, 3,
    {n, spearman}. within_length: the same among captions of equally many words, {mean, min, groups, n}.
    length: with the number of words. length_within_ambiguity: the same among captions of the same ambiguity.
    None where a side does not vary.
    """
    if not embedded.probabilistic:
        return None
    first = {caption.text: row for row, caption in reversed(list(enumerate(embedded.captions)))}
    rows = sorted(first.values())
    captions = [embedded.captions[row] for row in rows]
    uncertainty = embedded.texts.uncertainty[rows].double()
    truth = torch.tensor(
        [round(log_ambiguity(caption.meaning, embedded.world), 9) for caption in captions],
        dtype=torch.float64,
    )
    words = torch.tensor([len(caption.text.split()) for caption in captions])
    levels = torch.tensor([caption.level for caption in captions])
    return {
        "n": len(captions),
        "spearman": spearman(uncertainty, truth),
        "by_level": {str(level): _correlate_subset(uncertainty, truth, levels == level) for level in LEVELS},
        "within_length": _summary(correlate_within_groups(words, uncertainty, truth)),
        "length": spearman(uncertainty, words.double()),
        "length_within_ambiguity": _summary(correlate_within_groups(truth, uncertainty, words.double())),
    }


def correlate_within_groups(groups: Tensor, a: Tensor, b: Tensor) -> Iterator[tuple[int, float]]:
    """Iterate over (n, Spearman's correlation of a and b (N,)) of groups of MIN_GROUP or more that are not constant."""
    for group in groups.unique():
        same = groups == group
        if int(same.sum()) >= MIN_GROUP and (found := spearman(a[same], b[same])) is not None:
            yield int(same.sum()), found


def _correlate_subset(a: Tensor, b: Tensor, chosen: Tensor) -> dict[str, Any]:
    return {"n": int(chosen.sum()), "spearman": spearman(a[chosen], b[chosen])}


def _summary(groups: Iterator[tuple[int, float]]) -> dict[str, Any]:
    """n: captions of all groups together."""
    counted = list(groups)
    found = [correlation for _, correlation in counted]
    return {
        "n": sum(count for count, _ in counted),
        "mean": sum(found) / len(found) if found else None,
        "min": min(found, default=None),
        "groups": len(found),
    }
