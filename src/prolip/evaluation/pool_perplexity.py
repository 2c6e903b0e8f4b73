"""Pool perplexity of texts over images and of images over texts, beside uncertainty: do they tell hard queries?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import MISSING, describe_bad_samples, format_number, format_percent, make_table
from prolip.data.open import open_data
from prolip.data.source import AnnotatedSource, Source
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation.caption_correlations import (
    UncertaintyControls,
    make_correlation_table,
    measure_controls,
)
from prolip.evaluation.captions import EmbeddedPairs, embed_pairs
from prolip.evaluation.configs import ControlsConfig, UncertaintyConfig
from prolip.evaluation.controls import LABELS, ScoreName, choose_pool_scale, score_pool, select_pool
from prolip.evaluation.metrics.correlation import spearman
from prolip.evaluation.regression import rank_paired_images
from prolip.evaluation.result import Proportion, Result
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters

RECALL = 10
"""K of the recall@K of the surest and of the least sure queries."""


@dataclass(frozen=True, kw_only=True)
class DifficultyScore:
    """How a score of queries goes with their difficulty: the rank of the right item by CSD."""

    name: ScoreName
    """uncertainty; perplexity (by the means alone); match_perplexity (by the trained match)."""
    spearman: float | None
    """Spearman's correlation with the rank; None if one of them is constant."""
    surest: Proportion | None
    """recall@10 of the tenth of the queries with the lowest score; None with fewer than ten queries."""
    least_sure: Proportion | None
    """recall@10 of the tenth with the highest score."""


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """Scores of queries of one modality that search a pool of the other."""

    num_queries: int
    """Number of queries."""
    num_pool: int
    """Number of items that they search."""
    perplexity_scale: float | None
    """Scale of the softmax over the pool; None: the pool is too small."""
    scores: tuple[DifficultyScore, ...]
    """The uncertainty, unless the model is deterministic, and the perplexities."""


@dataclass(frozen=True, kw_only=True)
class DifficultyReport:
    """Whether uncertainty and pool perplexity tell hard queries, in both directions."""

    texts: Difficulty
    """All captions, over the images."""
    images: Difficulty
    """Images over captions, the most specific one of each image (the first, if levels are unknown)."""

    def table(self) -> Table:
        """A row for each score of each direction."""
        table = make_table(
            f"Hard queries: the rank of the right item, and recall@{RECALL} of the surest and the least sure tenth",
            ["queries", "score"],
            ("Spearman", "surest %", "least sure %"),
            caption="Higher correlations are better: uncertain queries should be hard. The own item doesn't count in "
            "the perplexity",
        )
        for name, one in (("texts over images", self.texts), ("images over texts", self.images)):
            for score in one.scores:
                deciles = [
                    MISSING if tenth is None else format_percent(tenth.value)
                    for tenth in (score.surest, score.least_sure)
                ]
                table.add_row(name, LABELS[score.name], format_number(score.spearman, ".3f"), *deciles)
        return table


@dataclass(frozen=True, kw_only=True)
class PerplexityResult(Result):
    """The uncertainty report of a deterministic model, by pool perplexity; `n` is the number of images."""

    task: ClassVar[str] = "perplexity"

    num_captions: int
    """Number of captions of all images."""
    controls: UncertaintyControls
    """What the perplexity of captions, and controls of it, correlate with."""
    difficulty: DifficultyReport
    """Whether perplexity tells hard queries."""

    def tables(self) -> list[Table]:
        """Two tables: correlations, hard queries."""
        warning = describe_bad_samples(self.num_bad) or None
        return [make_correlation_table(self.controls, warning), self.difficulty.table()]


def evaluate_perplexity(
    embedder: BaseEmbedder, source: Source, config: UncertaintyConfig | None = None
) -> PerplexityResult:
    """Report the pool perplexity of a model's captions and images: its uncertainty, if it has no variances.

    Args:
        embedder: The model, and how to embed with it; also a deterministic one (CLIP, SigLIP).
        source: Images with captions, see `embed_pairs`.
        config: The options of the uncertainty report; None: the defaults.

    Returns:
        The result.
    """
    config = config or UncertaintyConfig()
    if config.view_images:
        raise ValueError(
            "view_images compares variances of images, and this model is deterministic: leave it out"
        )
    pairs = embed_annotated_pairs(embedder, source, config)
    return PerplexityResult(
        data=pairs.name,
        n=len(pairs.images),
        num_bad=pairs.num_bad,
        num_captions=len(pairs.captions),
        controls=measure_controls(pairs, config, embedder.logit_parameters, untrained=()),
        difficulty=measure_difficulty(pairs, config, embedder.logit_parameters),
    )


def embed_annotated_pairs(embedder: BaseEmbedder, source: Source, config: UncertaintyConfig) -> EmbeddedPairs:
    """Embed images and captions, with the true ambiguity of captions of the world that the config names.

    Args:
        embedder: The model, and how to embed with it.
        source: Images with captions.
        config: Limit and world.

    Returns:
        Images and captions, embedded.
    """
    scenes = None if config.world is None else open_data(f"scenes:{config.world}")
    log_ambiguity = scenes.log_ambiguity if isinstance(scenes, AnnotatedSource) else None
    return embed_pairs(embedder, source, limit=config.limit, log_ambiguity=log_ambiguity)


def measure_difficulty(
    pairs: EmbeddedPairs, config: ControlsConfig, logits: LogitParameters | None
) -> DifficultyReport:
    """Compare uncertainty and pool perplexity with the ranks of the right items, in both directions.

    Args:
        pairs: Images and captions, embedded.
        config: Scale and k of the perplexity.
        logits: Of the model, for the perplexity by its trained match; None: unknown.

    Returns:
        The report.
    """
    image_index = pairs.captions.image_index
    captioned, own_captions = _select_captions(image_index, pairs.captions.levels)
    return DifficultyReport(
        texts=_measure_queries(pairs.texts, pairs.images, image_index, config, logits),
        images=_measure_queries(
            pairs.images[captioned], pairs.texts[own_captions], torch.arange(len(captioned)), config, logits
        ),
    )


def _select_captions(image_index: Tensor, levels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Select one caption of each image that has any, the first of the highest level.

    Args:
        image_index: Row of each caption's image, int64 (T,).
        levels: Level of each caption, int64 (T,); None: unknown, all equal.

    Returns:
        Rows of the images and of their captions, int64 (N,) each.
    """
    order = torch.arange(len(image_index)) if levels is None else (-levels).argsort(stable=True)
    by_image: dict[int, int] = {}
    for row in order.tolist():
        by_image.setdefault(int(image_index[row]), row)
    images = sorted(by_image)
    return torch.tensor(images), torch.tensor([by_image[image] for image in images])


def _measure_queries(
    queries: Gaussian, items: Gaussian, own: Tensor, config: ControlsConfig, logits: LogitParameters | None
) -> Difficulty:
    """Scores of queries (Q, D) that search items (M, D), whose own ones are in the rows `own`, int64 (Q,)."""
    ranks = rank_paired_images(items, queries, own)
    scores: dict[ScoreName, Tensor] = {}
    if bool((queries.uncertainty > 0).any()):
        scores["uncertainty"] = queries.uncertainty.double()
    pool, own_in_pool = select_pool(items, own)
    scale = choose_pool_scale(queries, pool, own_in_pool, config)
    if scale is not None:
        scores |= score_pool(queries, pool, own_in_pool, scale, logits)
    return Difficulty(
        num_queries=len(queries),
        num_pool=len(items),
        perplexity_scale=scale,
        scores=tuple(_compare_with_ranks(scores, ranks)),
    )


def _compare_with_ranks(scores: Mapping[ScoreName, Tensor], ranks: Tensor) -> list[DifficultyScore]:
    """Metrics of scores against ranks of the right item, (Q,) each."""
    is_found = (ranks <= RECALL).double()
    tenth = len(ranks) // 10
    found = []
    for name, values in scores.items():
        ordered = is_found[values.argsort(stable=True)]
        ends = (ordered[:tenth], ordered[len(ordered) - tenth :])
        surest, least_sure = (
            Proportion.from_mean(float(end.mean()), tenth) if tenth else None for end in ends
        )
        correlation = spearman(ranks, values)
        found.append(DifficultyScore(name=name, spearman=correlation, surest=surest, least_sure=least_sure))
    return found
