"""Correlation of text uncertainty with true ambiguity and with length, each with the other held fixed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from prolip.evaluation.configs import ControlsConfig
from prolip.evaluation.controls import choose_pool_scale, read_unigrams, score_pool, score_texts
from prolip.evaluation.metrics.correlation import spearman
from prolip.scenes.ambiguity import log_ambiguity
from prolip.scenes.source import make_tokenizer
from reproduction.evaluation_data import EmbeddedScenes

MIN_GROUP = 50
"""Smallest group of captions of one length, or of one ambiguity, of which a correlation is computed."""
LEVELS = (1, 2, 3)
"""Levels of captions that have a correlation. A caption of level 0 is always true: its ambiguity doesn't vary."""


def measure_ambiguity(embedded: EmbeddedScenes) -> dict[str, Any]:
    """Correlate text uncertainty tr(Sigma) with true ambiguity and with length, by Spearman over different texts.

    Returns:
        With None in place of a correlation if one side does not vary; a deterministic model has only n and controls:
        n: number of different texts.
        spearman: correlation with the log-ambiguity, ln of the true probability.
        by_level: the same within each of levels 1, 2, 3, {n, spearman}.
        within_length: the same among captions of equally many words, {mean, min, groups, n}.
        length: correlation with the number of words.
        length_within_ambiguity: the same among captions of equal ambiguity, {mean, min, groups, n}.
        controls: by name {spearman, within_length, by_level} of a control in place of uncertainty, see
            `score_controls`; positive where the control rises with ambiguity.
    """
    first_rows = {caption.text: row for row, caption in reversed(list(enumerate(embedded.captions)))}
    rows = sorted(first_rows.values())
    captions = [embedded.captions[row] for row in rows]
    # rounded, so that equal ambiguities are equal numbers and make a group
    truth = torch.tensor(
        [round(log_ambiguity(caption.meaning, embedded.world), 9) for caption in captions],
        dtype=torch.float64,
    )
    words = torch.tensor([len(caption.text.split()) for caption in captions])
    levels = torch.tensor([caption.level for caption in captions])

    def correlate(score: Tensor | None) -> dict[str, Any]:
        """{spearman, by_level, within_length} of a score of the captions; None each without a score."""
        if score is None:
            return dict.fromkeys(("spearman", "by_level", "within_length"))
        return {
            "spearman": spearman(score, truth),
            "by_level": {str(level): _correlate_subset(score, truth, levels == level) for level in LEVELS},
            "within_length": _summarize_groups(correlate_within_groups(words, score, truth)),
        }

    uncertainty = embedded.texts.uncertainty[rows].double() if embedded.probabilistic else None
    length: dict[str, Any] = {"length": None, "length_within_ambiguity": None}
    if uncertainty is not None:
        groups = correlate_within_groups(truth, uncertainty, words.double())
        length = {
            "length": spearman(uncertainty, words.double()),
            "length_within_ambiguity": _summarize_groups(groups),
        }
    return {
        "n": len(captions),
        **correlate(uncertainty),
        **length,
        "controls": {name: correlate(score[rows]) for name, score in score_controls(embedded).items()},
    }


def score_controls(embedded: EmbeddedScenes) -> dict[str, Tensor]:
    """Score captions by what doesn't need a learned width; higher should be more ambiguous.

    Returns:
        Of the T captions, float64 (T,) each. words, pieces: minus their number (every word of scenes is one piece of
        the tokenizer of scenes). unigram: the sum of the log-probabilities of the words, counted in these texts.
        perplexity: entropy of the softmax over the scenes but the caption's own, by the means alone, with the scale
        that the own scenes are likeliest with; absent for fewer than three scenes.
    """
    texts = [caption.text for caption in embedded.captions]
    scores = score_texts(texts, make_tokenizer(), read_unigrams(None, texts)).by_name()
    scale = choose_pool_scale(embedded.texts, embedded.images, embedded.image_of, ControlsConfig())
    if scale is not None:
        scores |= score_pool(embedded.texts, embedded.images, embedded.image_of, scale)
    return {str(name): values for name, values in scores.items()}


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
