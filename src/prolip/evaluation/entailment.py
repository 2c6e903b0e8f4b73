"""Entailment: how well scores separate captions that are true of an image, or of a specific caption, from false ones.

Queries are the images of chains, and the most specific caption of each chain. Candidates of a level are the query's own
caption of that level and captions of the same level of other chains, so that within a level generality says little.
Over all levels it says much where the truth is known: general captions are true more often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from rich.table import Table
from torch import Tensor

from prolip.choices import Form
from prolip.console import format_number, make_table
from prolip.evaluation.metrics.detection import DetectionMetrics, detection_metrics
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.measures.match import LogitParameters

BLOCK_ROWS = 8192
"""Pairs that are scored at one time."""
SEED = 0
"""Seed of the chains from which candidates are drawn."""

EntailmentQuery = Literal["image", "caption"]
"""image: is the caption true of this image? caption: does it follow from this most specific caption?"""
LABELS: dict[str, str] = {
    "log_inclusion": "log inclusion",
    "log_containment": "log containment",
    "inclusion": "H",
    "match": "trained match",
    "csd": "CSD",
    "cosine": "cosine",
    "uncertainty": "caption's uncertainty alone",
    "words": "words alone",
    "pieces": "word pieces alone",
    "unigram": "unigram information alone",
    "perplexity": "pool perplexity alone",
    "match_perplexity": "pool perplexity alone, by match",
}
"""Names of scores in tables: scores of query and caption, then controls that don't see the query."""


@dataclass(frozen=True, kw_only=True)
class LevelEntailment:
    """How well scores separate true from false captions of one level."""

    level: int | None
    """The level, 0 for the most general; None: all levels together."""
    scores: dict[str, DetectionMetrics]
    """By name of the score; true captions are the positives."""


@dataclass(frozen=True, kw_only=True)
class Entailment:
    """How well scores separate captions that are true of a query from false ones."""

    query: EntailmentQuery
    """What the captions are true or false of."""
    exact: bool
    """Whether it is known which captions are true. If not, all captions of other chains count as false, though some
    are true."""
    all_levels: LevelEntailment
    """All levels together."""
    levels: tuple[LevelEntailment, ...]
    """Each level, from general to specific."""

    def table(self) -> Table:
        """Table of AUROC and average precision by score and level."""
        entries = [self.all_levels, *self.levels]
        counts = next(iter(self.all_levels.scores.values()))
        names = ["all levels", *(f"level {entry.level}" for entry in self.levels)]
        truth = (
            "which captions are true is known exactly"
            if self.exact
            else "captions of other chains count as false, though some are true; the same text never does"
        )
        table = make_table(
            f"HierarCaps: {_QUESTIONS[self.query]}? AUROC / average precision",
            ["by"],
            names,
            caption=f"{counts.num_positive:,} true of {counts.n:,} captions; {truth}",
        )
        for name in self.all_levels.scores:
            is_last_of_query = name == "cosine"  # the controls follow
            cells = (_format_metrics(entry.scores[name]) for entry in entries)
            table.add_row(LABELS[name], *cells, end_section=is_last_of_query)
        return table


_QUESTIONS: dict[EntailmentQuery, str] = {
    "image": "is a caption true of the image",
    "caption": "does the most specific caption entail another",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class EntailmentCases:
    """K pairs of a chain and a candidate caption.

    Attributes:
        chain: int64 (K,): row of the chain whose image or most specific caption is the query.
        level: int64 (K,): level of the candidate.
        caption: int64 (K,): index of the candidate.
        is_true: bool (K,): whether the candidate is true of the query.
    """

    chain: Tensor
    level: Tensor
    caption: Tensor
    is_true: Tensor


def draw_cases(
    chains: Tensor,
    own_captions: Tensor,
    levels: range,
    negatives: int,
    is_true: Callable[[int, int], bool] | None = None,
    query_captions: Tensor | None = None,
) -> EntailmentCases:
    """Draw candidates: of each level the chain's own caption, and captions of other chains.

    Args:
        chains: Captions of each chain, int64 (N, L), from general to specific.
        own_captions: Captions that are known to be true of each chain's query, int64 (N, S): they, and equal texts, are
            never false.
        levels: Levels of the candidates.
        negatives: Captions of other chains that are drawn for each chain and level; equal ones count once.
        is_true: (row of the chain, index of the caption) -> whether it is true of the query; None: unknown, then all
            drawn captions but the own ones count as false.
        query_captions: The caption of each chain that is its query, int64 (N,): a caption of the same text is no
            candidate; None: the queries are images.

    Returns:
        The cases.
    """
    generator = torch.Generator().manual_seed(SEED)
    count = len(chains)
    own_texts = [set(row) for row in own_captions.tolist()]
    cases: list[tuple[int, int, int, bool]] = []
    for level in levels:
        column = chains[:, level].tolist()
        others = torch.randint(max(count - 1, 1), (count, negatives if count > 1 else 0), generator=generator)
        # numbers from a chain's own row on are one higher, so that it is never drawn
        others += (others >= torch.arange(count)[:, None]).long()
        for row, drawn in enumerate(others.tolist()):
            if query_captions is None or column[row] != int(query_captions[row]):
                cases.append((row, level, column[row], True))
            for caption in dict.fromkeys(column[other] for other in drawn):
                if caption not in own_texts[row]:
                    cases.append((row, level, caption, is_true is not None and is_true(row, caption)))
    chain, level_of_case, caption_of_case, truth = zip(*cases, strict=True)
    return EntailmentCases(
        chain=torch.tensor(chain),
        level=torch.tensor(level_of_case),
        caption=torch.tensor(caption_of_case),
        is_true=torch.tensor(truth),
    )


def score_pairs(
    queries: Gaussian, captions: Gaussian, logits: LogitParameters, form: Form = "exact"
) -> dict[str, Tensor]:
    """Score pairs of a query and a caption, row by row; higher should be true.

    Args:
        queries: Images or specific captions, (K, D).
        captions: More general captions, (K, D).
        logits: Of the model's trained match.
        form: Form of log inclusion and H.

    Returns:
        float64 (K,) by name; a deterministic model has only the match and the cosine.
    """
    parts = [
        _score_block(queries[rows], captions[rows], logits, form)
        for rows in torch.arange(len(queries)).split(BLOCK_ROWS)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _score_block(
    queries: Gaussian, captions: Gaussian, logits: LogitParameters, form: Form
) -> dict[str, Tensor]:
    """`score_pairs` of a few pairs."""
    scores = {
        "match": logits.logits(queries, captions),
        "csd": -public.csd(queries, captions),
        "cosine": (queries.mean * captions.mean).sum(-1),
    }
    if all(bool(torch.isfinite(z.log_var).all()) for z in (queries, captions)):
        scores = {
            "log_inclusion": public.log_inclusion(queries, captions, form=form),
            "log_containment": public.log_containment(queries, captions),
            "inclusion": public.inclusion(queries, captions, form=form),
        } | scores
    else:
        del scores["csd"]  # the order of the cosine
    return {name: values.double() for name, values in scores.items()}


def evaluate_entailment(
    query: EntailmentQuery, cases: EntailmentCases, scores: Mapping[str, Tensor], *, exact: bool
) -> Entailment:
    """Measure how well scores separate true from false captions.

    Args:
        query: What the captions are true or false of.
        cases: The candidates.
        scores: By name, the score of each case, (K,), higher for true ones; names are keys of LABELS.
        exact: Whether the truth is known.

    Returns:
        The metrics of all levels and of each.
    """

    def measure(level: int | None) -> LevelEntailment:
        rows = torch.ones_like(cases.is_true) if level is None else cases.level == level
        return LevelEntailment(
            level=level,
            scores={
                name: detection_metrics(cases.is_true[rows], values[rows]) for name, values in scores.items()
            },
        )

    levels = tuple(measure(int(level)) for level in cases.level.unique())
    return Entailment(query=query, exact=exact, all_levels=measure(None), levels=levels)


def _format_metrics(metrics: DetectionMetrics) -> str:
    """AUROC and average precision of a cell."""
    auroc, precision = (format_number(value, ".3f") for value in (metrics.auroc, metrics.average_precision))
    return f"{auroc} / {precision}"
