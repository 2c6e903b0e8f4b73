"""Correlations of captions' uncertainty, and of its controls, with length, level and true ambiguity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, format_number, format_percent, make_table
from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions
from prolip.evaluation.configs import ControlsConfig
from prolip.evaluation.controls import (
    LABELS,
    ScoreName,
    choose_pool_scale,
    read_unigrams,
    score_pool,
    score_texts,
    select_pool,
)
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.order import SignTest, sign_test
from prolip.evaluation.order_controls import average_known, average_tests
from prolip.measures.match import LogitParameters

MIN_LENGTH_GROUP = 50
"""Fewest captions of one length for a correlation with ambiguity."""


@dataclass(frozen=True, kw_only=True)
class GroupCorrelation:
    """Correlation of uncertainty and true ambiguity among the captions of one length or level."""

    group: int
    """The length in tokens, or the level."""
    n: int
    """Number of distinct captions."""
    spearman: float | None
    """The correlation; None if one of them is constant."""


@dataclass(frozen=True, kw_only=True)
class AmbiguityCorrelations:
    """Correlations of uncertainty with the true log-ambiguity, over distinct captions."""

    n: int
    """Number of distinct captions of known ambiguity."""
    spearman: float | None
    """Correlation over all of them."""
    mean_within_length: float | None
    """Mean of the correlations within a length; None if there are none."""
    within_length: tuple[GroupCorrelation, ...]
    """For each length that has enough captions."""
    within_level: tuple[GroupCorrelation, ...] | None
    """For each level; None if levels are unknown."""


@dataclass(frozen=True, kw_only=True)
class ScoreCorrelations:
    """What one score of captions correlates with: the model's uncertainty, or a control. Each is None if undefined."""

    name: ScoreName
    """The score; higher should be more general."""
    length: float | None
    """Spearman's correlation with the length in tokens."""
    level: float | None
    """With the level of generality; None also if levels are unknown."""
    ambiguity: AmbiguityCorrelations | None
    """With the true log-ambiguity; None also if it is unknown."""
    equal_pieces: SignTest | None
    """Pairs of captions of one image, of different levels and equally many word pieces, each pair of texts once: in
    order if the more general one has the higher score. None without such pairs."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyControls:
    """The model's uncertainty of captions and its controls."""

    scores: tuple[ScoreCorrelations, ...]
    """The uncertainty, unless the model is deterministic, then the controls. Of untrained models: means over them."""
    unigram_captions: str
    """Captions whose words were counted."""
    perplexity_scale: float | None
    """Scale of the softmax over the pool of images; None without a pool."""
    num_untrained: int
    """Number of untrained models."""


def correlate_caption_ambiguity(captions: TokenizedCaptions, values: Tensor) -> AmbiguityCorrelations | None:
    """Correlate a score of captions with their true log-ambiguity.

    Args:
        captions: T captions.
        values: Score of each, (T,).

    Returns:
        Correlations over distinct texts of known ambiguity; lengths with fewer than MIN_LENGTH_GROUP texts are skipped.
        None if no ambiguity is known.
    """
    if captions.log_ambiguity is None:
        return None
    rows = captions.first_occurrences()
    rows = rows[captions.log_ambiguity[rows].isfinite()]
    ambiguity, values = captions.log_ambiguity[rows], values[rows]
    within_length = _correlate_groups(ambiguity, values, captions.lengths[rows], MIN_LENGTH_GROUP)
    levels = None if captions.levels is None else captions.levels[rows]
    return AmbiguityCorrelations(
        n=len(rows),
        spearman=spearman(ambiguity, values),
        mean_within_length=average_known([entry.spearman for entry in within_length]),
        within_length=within_length,
        within_level=None if levels is None else _correlate_groups(ambiguity, values, levels),
    )


def _correlate_groups(
    ambiguity: Tensor, values: Tensor, groups: Tensor, min_size: int = 1
) -> tuple[GroupCorrelation, ...]:
    """Correlation of ambiguity and a score, (R,) each, in each group of int64 (R,) with enough rows."""
    masks = {int(group): groups == group for group in groups.unique()}
    return tuple(
        GroupCorrelation(group=group, n=int(mask.sum()), spearman=spearman(ambiguity[mask], values[mask]))
        for group, mask in masks.items()
        if int(mask.sum()) >= min_size
    )


def measure_controls(
    pairs: EmbeddedPairs, config: ControlsConfig, logits: LogitParameters | None, untrained: Iterable[Tensor]
) -> UncertaintyControls:
    """Correlate the uncertainty of captions and its controls with length, level and true ambiguity.

    Args:
        pairs: Images and captions, embedded.
        config: The options.
        logits: Of the model, for the pool perplexity by its trained match; None: unknown.
        untrained: Uncertainty of the captions by each of some untrained models, (T,).

    Returns:
        The correlations of each score.
    """
    captions = pairs.captions
    unigrams = read_unigrams(config.unigram_captions, captions.texts)
    uncertainty = pairs.texts.uncertainty.double()
    scores: dict[ScoreName, Tensor] = {"uncertainty": uncertainty} if bool((uncertainty > 0).any()) else {}
    text_controls = score_texts(captions.texts, None, unigrams)
    scores |= replace(text_controls, pieces=-captions.lengths.double()).by_name()
    pool, own = select_pool(pairs.images, captions.image_index)
    scale = choose_pool_scale(pairs.texts, pool, own, config)
    if scale is not None:
        scores |= score_pool(pairs.texts, pool, own, scale, logits)
    equal_pairs = _find_equal_pairs(captions)
    found = [_correlate_score(name, values, captions, equal_pairs) for name, values in scores.items()]
    of_untrained = [_correlate_score("untrained", values, captions, equal_pairs) for values in untrained]
    return UncertaintyControls(
        scores=(*found, *([_average_correlations(of_untrained)] if of_untrained else [])),
        unigram_captions=unigrams.name,
        perplexity_scale=scale,
        num_untrained=len(of_untrained),
    )


def _correlate_score(
    name: ScoreName, values: Tensor, captions: TokenizedCaptions, equal_pairs: Tensor
) -> ScoreCorrelations:
    """Correlations of a score of captions, (T,). equal_pairs: of `_find_equal_pairs`."""
    levels = captions.levels
    return ScoreCorrelations(
        name=name,
        length=spearman(captions.lengths, values),
        level=None if levels is None else spearman(levels, values),
        ambiguity=correlate_caption_ambiguity(captions, values),
        equal_pieces=sign_test(values[equal_pairs[:, 0]], values[equal_pairs[:, 1]]),
    )


def _find_equal_pairs(captions: TokenizedCaptions) -> Tensor:
    """Pairs (general, specific) of captions of one image, of different levels and equal length, int64 (P, 2).

    Each pair of texts once, so that pairs are independent; none if levels are unknown.
    """
    if captions.levels is None:
        return torch.zeros(0, 2, dtype=torch.int64)
    rows_by_group: dict[tuple[int, int], list[int]] = {}  # by image and length
    keys = zip(captions.image_index.tolist(), captions.lengths.tolist(), strict=True)
    for row, key in enumerate(keys):
        rows_by_group.setdefault(key, []).append(row)
    levels: list[int] = captions.levels.tolist()
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for rows in rows_by_group.values():
        for general, specific in combinations(sorted(rows, key=levels.__getitem__), 2):
            if levels[general] < levels[specific]:
                found.setdefault((captions.texts[general], captions.texts[specific]), (general, specific))
    return torch.tensor(list(found.values()), dtype=torch.int64).reshape(-1, 2)


def _average_correlations(entries: Sequence[ScoreCorrelations]) -> ScoreCorrelations:
    """Means of the correlations of several models on the same captions."""
    ambiguities = [entry.ambiguity for entry in entries if entry.ambiguity is not None]
    return ScoreCorrelations(
        name=entries[0].name,
        length=average_known([entry.length for entry in entries]),
        level=average_known([entry.level for entry in entries]),
        ambiguity=_average_ambiguities(ambiguities) if ambiguities else None,
        equal_pieces=average_tests([entry.equal_pieces for entry in entries]),
    )


def _average_ambiguities(entries: Sequence[AmbiguityCorrelations]) -> AmbiguityCorrelations:
    """Means of correlations over the same captions: all, and those of each group."""
    levels = [entry.within_level for entry in entries if entry.within_level is not None]
    return AmbiguityCorrelations(
        n=entries[0].n,
        spearman=average_known([entry.spearman for entry in entries]),
        mean_within_length=average_known([entry.mean_within_length for entry in entries]),
        within_length=_average_groups([entry.within_length for entry in entries]),
        within_level=_average_groups(levels) if levels else None,
    )


def _average_groups(entries: Sequence[tuple[GroupCorrelation, ...]]) -> tuple[GroupCorrelation, ...]:
    """Means of the correlations of the same groups."""
    return tuple(
        replace(groups[0], spearman=average_known([group.spearman for group in groups]))
        for groups in zip(*entries, strict=True)
    )


def make_correlation_table(controls: UncertaintyControls, warning: str | None = None) -> Table:
    """Make the table of correlations: a row for each score, a column for each property of captions.

    Args:
        controls: The correlations of the uncertainty and of its controls.
        warning: Shown below the table; None: none.

    Returns:
        The table.
    """
    rows = [_format_cells(score) for score in controls.scores]
    what = (
        "uncertainty and controls"
        if controls.scores[0].name == "uncertainty"
        else "pool perplexity and controls"
    )
    table = make_table(
        f"Captions: Spearman's correlation of {what} with a property",
        ["of"],
        list(rows[0]),
        caption=". ".join(_describe_table(controls, warning)) or None,
    )
    for score, cells in zip(controls.scores, rows, strict=True):
        name = LABELS[score.name]
        label = f"{name}, mean of {controls.num_untrained}" if score.name == "untrained" else name
        table.add_row(label, *(cells.get(heading, MISSING) for heading in rows[0]))
    return table


def _describe_table(controls: UncertaintyControls, warning: str | None) -> list[str]:
    """Sentences below the table, without full stops."""
    parts = [] if warning is None else [warning]
    own = controls.scores[0]
    if own.ambiguity is not None:
        parts.append(
            "Truth: the true log-ambiguity, also among captions of one length (mean) or of one level"
        )
    if own.equal_pieces is not None:
        count = f"{own.equal_pieces.in_order.n:,}"
        parts.append(
            f"Equal pieces: percent in order by level, with an exact sign test, of {count} pairs of captions of one "
            "image with equally many word pieces"
        )
    if len(controls.scores) > 1:
        parts.append("Fewer words, pieces or nats count as more general")
        parts.append(f"Unigram information: words counted in {controls.unigram_captions}")
    if controls.perplexity_scale is not None:
        scale = f"{controls.perplexity_scale:.3g}"
        parts.append(f"Pool perplexity: softmax over the images but the own one, scale {scale}")
    return parts


def _format_cells(score: ScoreCorrelations) -> dict[str, str]:
    """Cells of a score by the heading of their column."""
    values: dict[str, float | None] = {"length": score.length}
    if score.level is not None:
        values["level"] = score.level
    if (ambiguity := score.ambiguity) is not None:
        values["truth"] = ambiguity.spearman
        values["one length"] = ambiguity.mean_within_length
        values |= {f"level {entry.group}": entry.spearman for entry in ambiguity.within_level or ()}
    cells = {name: format_number(value, ".3f") for name, value in values.items()}
    if (test := score.equal_pieces) is not None:
        cells["equal pieces"] = format_percent(test.in_order.value)
        cells["p"] = format_number(test.p_value, ".2g")
    return cells
