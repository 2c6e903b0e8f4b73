"""Order of levels along chains of captions by the model's uncertainty, and by its controls.

Adjacent levels are compared: the more general caption should have the higher score. Among pairs of equally many word
pieces length can't help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, format_number, format_percent, make_table
from prolip.evaluation import paper_numbers
from prolip.evaluation.chains import kendall_by_level
from prolip.evaluation.controls import LABELS, ScoreName
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.metrics.order import SignTest, fraction_in_order, sign_test
from prolip.evaluation.result import Proportion, get_value

PAPER_LEVELS = 4
"""Levels of the paper's chains: only chains of this length are shown with the paper's values."""


@dataclass(frozen=True, kw_only=True)
class ChainAmbiguity:
    """Spearman's correlation of a score with the true log-ambiguity; None if one of them is constant."""

    spearman: float | None
    """Over all levels."""
    by_level: tuple[float | None, ...]
    """Within each level."""


@dataclass(frozen=True, kw_only=True)
class OrderControl:
    """Order of the levels by one score; ties count half. Of untrained models: means over them."""

    name: ScoreName
    """The score: the model's uncertainty, or a control."""
    adjacent_order: Proportion | None
    """Fraction of pairs of adjacent levels in order; None for chains of one level."""
    level_pairs: tuple[tuple[Proportion | None, ...], ...]
    """[i][j]: fraction of chains whose level i has the higher score than level j; None on the diagonal."""
    kendall: float | None
    """Mean over chains of Kendall's tau of -score with the level; a tie counts as neither."""
    equal_pieces: SignTest | None
    """Adjacent levels, only pairs of equally many word pieces, each pair of texts once; None without such pairs, or
    without a tokenizer."""
    equal_pieces_by_level: tuple[SignTest | None, ...]
    """The same for each pair of adjacent levels."""
    ambiguity: ChainAmbiguity | None
    """Against the true ambiguity; None if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class OrderControls:
    """Order of the levels by the model's uncertainty and by the controls."""

    scores: tuple[OrderControl, ...]
    """The model's uncertainty (a deterministic model has none), then the controls that could be computed."""
    unigram_captions: str
    """Captions whose words were counted."""
    perplexity_scale: float | None
    """Scale of the softmax over the pool of images; None without a pool."""
    num_untrained: int
    """Number of untrained models."""

    def get(self, name: ScoreName) -> OrderControl | None:
        """The order by one score; None if it was not computed."""
        return next((score for score in self.scores if score.name == name), None)

    def table(self) -> Table:
        """Table of the order of adjacent levels by each score, in percent, with the paper's."""
        num_levels = len(self.scores[0].level_pairs)
        has_truth = any(score.ambiguity is not None for score in self.scores)
        pairs = [f"{level} > {level + 1}" for level in range(num_levels - 1)]
        headings = [*pairs, "all", "equal pieces", "pairs", "95 %", "p", *(["truth ρ"] if has_truth else [])]
        table = make_table(
            "HierarCaps: adjacent levels in order, in percent, and controls",
            ["by"],
            headings,
            caption=self._describe(has_truth),
        )
        for score in self.scores:
            truth = [] if score.ambiguity is None else [format_number(score.ambiguity.spearman, ".3f")]
            table.add_row(
                self._label(score), *_format_order(score), *_format_test(score.equal_pieces), *truth
            )
        if num_levels == PAPER_LEVELS:
            table.add_section()
            far = f"≥ {format_percent(paper_numbers.FAR_LEVEL_PAIRS)}"
            values = [paper_numbers.LEVEL_PAIRS.get((level, level + 1)) for level in range(num_levels - 1)]
            cells = [far if value is None else format_percent(value) for value in values]
            table.add_row("the paper's uncertainty", *cells, format_percent(paper_numbers.ADJACENT_ORDER))
        return table

    def _label(self, score: OrderControl) -> str:
        """Name of a score in the table."""
        return LABELS[score.name] + (f", mean of {self.num_untrained}" if score.name == "untrained" else "")

    def _describe(self, has_truth: bool) -> str:
        """Caption of the table: what the columns are, and what the controls were computed from."""
        parts = [
            "fewer words, pieces or nats count as more general; ties half",
            "equal pieces: pairs of equally many word pieces, with an exact sign test",
            f"unigram information: words counted in {self.unigram_captions}",
        ]
        if self.get("pieces") is None:
            parts.append("word pieces and untrained models need the model itself")
        if self.perplexity_scale is None:
            parts.append("pool perplexity needs images")
        else:
            parts.append(
                f"pool perplexity: softmax over the images but the own one, scale {self.perplexity_scale:.3g}"
            )
        if has_truth:
            parts.append("truth ρ: Spearman's correlation with the true log-ambiguity")
        return ". ".join(f"{part[:1].upper()}{part[1:]}" for part in parts)


def measure_order(
    name: ScoreName,
    values: Tensor,
    chains: Tensor,
    pieces: Tensor | None = None,
    log_ambiguity: Tensor | None = None,
) -> OrderControl:
    """Measure in what fraction of chains a score falls from level to level.

    Args:
        name: Name of the score.
        values: Score of each chain's captions, (N, L), from general to specific; higher should be more general.
        chains: Indices of each chain's captions, int64 (N, L): equal texts have equal indices.
        pieces: Number of word pieces of the captions, (N, L); None: unknown.
        log_ambiguity: True log-ambiguity of the captions, (N, L); None: unknown.

    Returns:
        The order.
    """
    count, adjacent = values.shape[1], range(values.shape[1] - 1)
    values = values.double()
    rows = [_select_equal_pairs(chains, pieces, level) for level in adjacent]
    higher, lower = (
        [values[row, level + below] for level, row in zip(adjacent, rows, strict=True)] for below in (0, 1)
    )
    has_tests = pieces is not None and count > 1
    return OrderControl(
        name=name,
        adjacent_order=_order(values[:, :-1].flatten(), values[:, 1:].flatten(), len(values)),
        level_pairs=tuple(
            tuple(None if i == j else _order(values[:, i], values[:, j], len(values)) for j in range(count))
            for i in range(count)
        ),
        kendall=kendall_by_level(-values),
        equal_pieces=sign_test(torch.cat(higher), torch.cat(lower)) if has_tests else None,
        equal_pieces_by_level=tuple(map(sign_test, higher, lower)) if has_tests else (),
        ambiguity=None if log_ambiguity is None else correlate_ambiguity(values, log_ambiguity),
    )


def average_orders(orders: Sequence[OrderControl]) -> OrderControl:
    """Average the orders of several models over the same chains.

    Args:
        orders: At least one, of the same chains.

    Returns:
        Means of all fractions and correlations; without p-values, since the models share their pairs.
    """
    first, num_levels = orders[0], len(orders[0].level_pairs)
    ambiguities = [order.ambiguity for order in orders if order.ambiguity is not None]
    return OrderControl(
        name=first.name,
        adjacent_order=_average_proportions([order.adjacent_order for order in orders]),
        level_pairs=tuple(
            tuple(
                _average_proportions([order.level_pairs[i][j] for order in orders]) for j in range(num_levels)
            )
            for i in range(num_levels)
        ),
        kendall=average_known([order.kendall for order in orders]),
        equal_pieces=average_tests([order.equal_pieces for order in orders]),
        equal_pieces_by_level=tuple(
            map(average_tests, zip(*(order.equal_pieces_by_level for order in orders), strict=True))
        ),
        ambiguity=_average_ambiguities(ambiguities) if ambiguities else None,
    )


def average_known(values: Sequence[float | None]) -> float | None:
    """Average values.

    Args:
        values: Numbers; None: undefined.

    Returns:
        The mean of those that are defined; None if none is.
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def average_tests(tests: Sequence[SignTest | None]) -> SignTest | None:
    """Average sign tests of the same pairs.

    Args:
        tests: Of several models; None: no pairs.

    Returns:
        The mean fraction, without a p-value and without ties; None without pairs.
    """
    in_order = _average_proportions([None if test is None else test.in_order for test in tests])
    return None if in_order is None else SignTest(in_order=in_order, num_ties=0, p_value=None)


def correlate_ambiguity(values: Tensor, log_ambiguity: Tensor) -> ChainAmbiguity:
    """Correlate scores with true log-ambiguities.

    Args:
        values: Score of each chain's captions, (N, L).
        log_ambiguity: True log-ambiguity of the same captions, (N, L).

    Returns:
        Spearman's correlations.
    """
    by_level = (spearman(a, b) for a, b in zip(values.unbind(1), log_ambiguity.unbind(1), strict=True))
    return ChainAmbiguity(
        spearman=spearman(values.flatten(), log_ambiguity.flatten()), by_level=tuple(by_level)
    )


def _select_equal_pairs(chains: Tensor, pieces: Tensor | None, level: int) -> Tensor:
    """Rows of chains whose captions of a level and the next are different texts of equally many pieces, int64.

    Of several chains with the same two texts the first is taken, so that pairs are independent.
    """
    if pieces is None:
        return torch.zeros(0, dtype=torch.int64)
    first_rows: dict[tuple[int, int], int] = {}
    is_equal = (pieces[:, level] == pieces[:, level + 1]) & (chains[:, level] != chains[:, level + 1])
    for row in is_equal.nonzero()[:, 0].tolist():
        general, specific = chains[row, level : level + 2].tolist()
        first_rows.setdefault((general, specific), row)
    return torch.tensor(list(first_rows.values()), dtype=torch.int64)


def _order(higher: Tensor, lower: Tensor, num_cases: int) -> Proportion | None:
    """Fraction of pairs in order, with the interval of so many independent cases; None without pairs."""
    return Proportion.from_mean(fraction_in_order(higher, lower), num_cases) if len(higher) else None


def _average_proportions(proportions: Sequence[Proportion | None]) -> Proportion | None:
    """Mean of proportions of the same cases, with the interval of as many cases; None if they are."""
    known = [proportion for proportion in proportions if proportion is not None]
    if not known:
        return None
    return Proportion.from_mean(sum(proportion.value for proportion in known) / len(known), known[0].n)


def _average_ambiguities(ambiguities: Sequence[ChainAmbiguity]) -> ChainAmbiguity:
    """Mean of correlations, at least one, over all levels and within each."""
    by_level = zip(*(ambiguity.by_level for ambiguity in ambiguities), strict=True)
    return ChainAmbiguity(
        spearman=average_known([ambiguity.spearman for ambiguity in ambiguities]),
        by_level=tuple(map(average_known, by_level)),
    )


def _format_order(score: OrderControl) -> list[str]:
    """Cells of the fractions of adjacent levels in order: each pair of levels, then all."""
    pairs = [get_value(row[level + 1]) for level, row in enumerate(score.level_pairs[:-1])]
    return list(map(format_percent, [*pairs, get_value(score.adjacent_order)]))


def _format_test(test: SignTest | None) -> list[str]:
    """Cells of a sign test: fraction, number of pairs, interval, p."""
    if test is None:
        return [MISSING] * 4
    found = test.in_order
    interval = f"{format_percent(found.low)} – {format_percent(found.high)}"
    return [format_percent(found.value), f"{found.n:,}", interval, format_number(test.p_value, ".2g")]
