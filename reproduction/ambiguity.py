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
"""Smallest group of captions of one length, or of one ambiguity, of which a correlation is computed."""
LEVELS = (1, 2, 3)
"""Levels of captions that have a correlation. A caption of level 0 is always true: its ambiguity doesn't vary."""


def measure_ambiguity(embedded: EmbeddedScenes) -> dict[str, Any] | None:
    """Correlate text uncertainty tr(Sigma) with true ambiguity and with length, by Spearman over different texts.

    Returns:
        None for a deterministic model. Else, with None in place of a correlation if one side does not vary:
        n: number of different texts.
        spearman: correlation with the log-ambiguity, ln of the true probability.
        by_level: the same within each of levels 1, 2, 3, {n, spearman}.
        within_length: the same among captions of equally many words, {mean, min, groups, n}.
        length: correlation with the number of words.
        length_within_ambiguity: the same among captions of equal ambiguity, {mean, min, groups, n}.
    """
    if not embedded.probabilistic:
        return None
    first_rows = {caption.text: row for row, caption in reversed(list(enumerate(embedded.captions)))}
    rows = sorted(first_rows.values())
    captions = [embedded.captions[row] for row in rows]
    uncertainty = embedded.texts.uncertainty[rows].double()
    # rounded, so that equal ambiguities are equal numbers and make a group
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
        "within_length": _summarize_groups(correlate_within_groups(words, uncertainty, truth)),
        "length": spearman(uncertainty, words.double()),
        "length_within_ambiguity": _summarize_groups(
            correlate_within_groups(truth, uncertainty, words.double())
        ),
    }


def correlate_within_groups(groups: Tensor, a: Tensor, b: Tensor) -> Iterator[tuple[int, float]]:
    """Yield (n, Spearman's correlation of a and b) of each group of rows; all arguments are (N,).

    Groups of fewer than MIN_GROUP rows are omitted, and those in which a or b does not vary.
    """
    for group in groups.unique():
        in_group = groups == group
        if int(in_group.sum()) < MIN_GROUP:
            continue
        correlation = spearman(a[in_group], b[in_group])
        if correlation is not None:
            yield int(in_group.sum()), correlation


def _correlate_subset(a: Tensor, b: Tensor, mask: Tensor) -> dict[str, Any]:
    """{n, spearman} of a and b (N,) over the rows where the mask, bool (N,), is true."""
    return {"n": int(mask.sum()), "spearman": spearman(a[mask], b[mask])}


def _summarize_groups(groups: Iterator[tuple[int, float]]) -> dict[str, Any]:
    """Summarize (n, correlation) of groups: {n (of all groups together), mean, min, groups (their number)}."""
    counts_and_correlations = list(groups)
    correlations = [correlation for _, correlation in counts_and_correlations]
    return {
        "n": sum(count for count, _ in counts_and_correlations),
        "mean": sum(correlations) / len(correlations) if correlations else None,
        "min": min(correlations, default=None),
        "groups": len(correlations),
    }
