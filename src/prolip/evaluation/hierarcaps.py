"""HierarCaps: order of uncertainty along caption chains, with controls; entailment; precision and recall of traversals.

A chain is the captions of an image from general to specific. Measured are the order of uncertainty along chains, with
what words and a pool of images give (`order_controls`), whether scores tell true from false captions (`entailment`),
the paper's traversal from an image to a root, and the data set's own protocol (by radius). The scores are in `chains`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import torch
from rich.table import Table
from torch import Tensor

from prolip.choices import Form, Root, RootOf, SimilarityMetric
from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.data.sources.folder import ImageList
from prolip.data.sources.hierarcaps import HierarCaps
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import chains as scores
from prolip.evaluation import paper_numbers
from prolip.evaluation.configs import HierarCapsConfig
from prolip.evaluation.entailment import Entailment
from prolip.evaluation.order_controls import (
    PAPER_LEVELS,
    ChainAmbiguity,
    OrderControls,
    correlate_ambiguity,
)
from prolip.evaluation.result import Mean, Proportion, Result, get_value
from prolip.evaluation.scored_chains import ScoredChains, find_image_rows
from prolip.gaussian import Gaussian
from prolip.measures.nearest import find_nearest
from prolip.retrieval.traversal.traverse import find_captions_at_roots, find_roots, traverse_to_roots

BINS = 40
"""Bins of the histogram of uncertainty."""


@dataclass(frozen=True, kw_only=True)
class ChainLevel:
    """Uncertainty of the captions of one level."""

    mean: float
    """Mean uncertainty."""
    quartiles: tuple[float, ...]
    """The three quartiles."""
    counts: tuple[int, ...]
    """Number of captions in each bin of the histogram."""


@dataclass(frozen=True, kw_only=True)
class ChainUncertainty:
    """Whether uncertainty falls along chains, from general to specific captions."""

    adjacent_order: Proportion | None
    """Fraction of pairs of adjacent levels whose uncertainty falls; None for chains of one level."""
    level_pairs: tuple[tuple[Proportion | None, ...], ...]
    """[i][j]: fraction of chains whose level i is more uncertain than level j; None on the diagonal."""
    kendall: float | None
    """Mean over chains of Kendall's tau of -uncertainty with the level: 1 if it falls along every chain."""
    edges: tuple[float, ...]
    """Edges of the bins of the histograms."""
    levels: tuple[ChainLevel, ...]
    """The levels, from general to specific."""
    ambiguity: ChainAmbiguity | None
    """Against the true ambiguity; None if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class RootTraversal:
    """Scores of the traversals from each image to one kind of root."""

    root: Root
    """Kind of root."""
    root_of: RootOf | None
    """Query that it is found for: the image, or the caption nearest to it; None for the null root, which has none."""
    visited: scores.TraversalScores
    """Scores of the captions that are visited."""
    at_root: scores.RootScores
    """Scores of the one caption at the root."""
    ends: scores.EndScores | None = None
    """Whether paths end at captions that are true and general; None if it is unknown which captions are true."""
    paths: scores.PathScores | None = None
    """Whether paths lead from the specific to the general; None: not measured."""


@dataclass(frozen=True, kw_only=True)
class HierarCapsResult(Result):
    """Result of HierarCaps; `n` is the number of chains. Of a bad image's chain only the texts count."""

    task: ClassVar[str] = "hierarcaps"

    num_captions: int
    """Number of distinct captions."""
    num_images: int
    """Number of images."""
    num_missing: int
    """Number of images that the table names, but that don't exist."""
    rank_by: SimilarityMetric
    """Similarity that ranks captions."""
    form: Form
    """Form of the log inclusion that finds roots."""
    uncertainty: ChainUncertainty | None
    """Order of uncertainty along chains; None for a deterministic model."""
    traversal: tuple[RootTraversal, ...] | None
    """Scores for each kind of root; a deterministic model has the null root only. None without images."""
    radial: scores.RadialScores | None
    """Scores by the data set's own protocol; None without images."""
    order_controls: OrderControls | None = None
    """The same order by words, word pieces and other controls, next to the model's; None: not measured."""
    entailment: tuple[Entailment, ...] = ()
    """Whether scores tell true from false captions: of images, if there are any, and of most specific captions."""

    def tables(self) -> list[Table]:
        """Tables of what was measured: the order of levels, its controls, entailment, the traversal."""
        tables = [] if self.uncertainty is None else [_uncertainty_order_table(self.uncertainty)]
        if self.order_controls is not None:
            tables.append(self.order_controls.table())
        tables += [entry.table() for entry in self.entailment]
        return tables if self.traversal is None else [*tables, _traversal_table(self)]


def evaluate_hierarcaps(
    embedder: BaseEmbedder,
    data: HierarCaps,
    config: HierarCapsConfig | None = None,
    is_true: Callable[[int, str], bool] | None = None,
) -> HierarCapsResult:
    """Evaluate a model on HierarCaps. (The authors' public code has rank_by="cosine", form="published".)

    Args:
        embedder: The model, and how to embed with it.
        data: Chains of captions and their images.
        config: The options; None: the defaults.
        is_true: (index in `data.images`, caption) -> whether the caption is true of the image, such as
            `is_true_caption` of an `AnnotatedSource` with the same images; None: unknown.

    Returns:
        The result.
    """
    config = config or HierarCapsConfig()
    rank_by = config.rank_by or embedder.logit_parameters.nearest_metric
    config = replace(config, rank_by=rank_by)
    texts = embedder.embed_texts([*data.captions, ""])
    captions, null = texts[:-1], texts[-1:]
    encoded = embedder.embed_images(ImageList(data.path, data.images)) if data.images else None
    chains = ScoredChains(embedder, data, config, captions, encoded)
    traversal = radial = None
    if encoded is not None:
        image_rows, has_image = find_image_rows(data.image_index, encoded.indices)
        rows = data.chains[has_image]
        truth = None if is_true is None else make_caption_truth(data, data.image_index[has_image], is_true)
        traversal = evaluate_traversal(encoded.images[image_rows], captions, null, rows, config, truth)
        radial = scores.score_radial_protocol(
            encoded.images, captions, null, rows, image_rows, steps=config.steps
        )
    return HierarCapsResult(
        data=str(data.path),
        n=len(data.chains),
        num_bad=0 if encoded is None else len(encoded.errors),
        num_captions=len(data.captions),
        num_images=len(data.images),
        num_missing=len(data.missing),
        rank_by=rank_by,
        form=config.form,
        uncertainty=evaluate_chain_uncertainty(captions.uncertainty[data.chains], data.log_ambiguity),
        traversal=traversal,
        radial=radial,
        order_controls=chains.evaluate_order(),
        entailment=chains.evaluate_entailment(is_true),
    )


def make_caption_truth(
    data: HierarCaps, image_index: Tensor, is_true: Callable[[int, str], bool]
) -> scores.CaptionTruth:
    """Collect what is known of the captions of chains.

    Args:
        data: The chains.
        image_index: Index in `data.images` of the image of each traversal, int64 (N,).
        is_true: As in `evaluate_hierarcaps`.

    Returns:
        Truth, level and, if the table has it, log-ambiguity.
    """
    log_ambiguity = None
    if data.log_ambiguity is not None:
        log_ambiguity = torch.zeros(len(data.captions), dtype=torch.float64)
        log_ambiguity[data.chains] = data.log_ambiguity
    return scores.CaptionTruth(
        is_true=lambda row, caption: is_true(int(image_index[row]), data.captions[caption]),
        levels=scores.get_caption_levels(data.chains, len(data.captions)),
        log_ambiguity=log_ambiguity,
    )


def evaluate_chain_uncertainty(
    uncertainty: Tensor, log_ambiguity: Tensor | None = None
) -> ChainUncertainty | None:
    """Measure whether uncertainty falls along chains, from general to specific captions.

    Args:
        uncertainty: Uncertainty of each chain's captions, (N, L), from general to specific.
        log_ambiguity: True log-ambiguity of the same captions, (N, L); None: unknown.

    Returns:
        The order of uncertainty; None for a deterministic model.
    """
    if not bool((uncertainty > 0).any()):
        return None
    values = uncertainty.double()
    edges = torch.linspace(float(values.min()), float(values.max()), BINS + 1, dtype=torch.float64)
    return ChainUncertainty(
        adjacent_order=scores.adjacent_order(values),
        level_pairs=scores.compare_level_pairs(values),
        kendall=scores.kendall_by_level(-values),
        edges=tuple(edges.tolist()),
        levels=tuple(_summarize_level(level, edges) for level in values.unbind(1)),
        ambiguity=None if log_ambiguity is None else correlate_ambiguity(values, log_ambiguity),
    )


def _summarize_level(values: Tensor, edges: Tensor) -> ChainLevel:
    """Summarize the uncertainties (N,) of a level; `edges` are those of the histogram."""
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    counts = tuple(int(count) for count in torch.histogram(values, edges).hist)
    return ChainLevel(mean=values.mean().item(), quartiles=tuple(quartiles), counts=counts)


def evaluate_traversal(
    images: Gaussian,
    captions: Gaussian,
    null: Gaussian,
    chains: Tensor,
    config: HierarCapsConfig | None = None,
    truth: scores.CaptionTruth | None = None,
) -> tuple[RootTraversal, ...]:
    """Traverse from each image to each kind of root; score the captions visited and the caption at the root.

    Args:
        images: The image of each chain, (N, D).
        captions: The distinct captions, (M, D).
        null: The embedding of the text "", (1, D).
        chains: Rows of each chain's captions, int64 (N, L).
        config: The options; None: the defaults.
        truth: Which captions are true of which of the images, and general; None: unknown.

    Returns:
        One for each kind of root and each query that it is found for; for a deterministic model the null root only.
    """
    config = config or HierarCapsConfig()
    rank_by = config.rank_by or "csd"
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (images, captions))
    settings: list[tuple[Root, RootOf]] = [("null", "image")]
    if probabilistic:
        settings += [(root, query) for root in get_args(Root) if root != "null" for query in get_args(RootOf)]
    if not bool(torch.isfinite(null.log_var).all()):  # "" as a point contains nothing
        settings = [setting for setting in settings if not setting[0].startswith("general-containment")]
    levels = scores.get_caption_levels(chains, len(captions))
    start = find_nearest(images, captions, 1, metric=rank_by)[1][:, 0]
    queries: dict[RootOf, Gaussian] = {"image": images, "caption": captions[start]}
    # "inclusion" and "inclusion+null" look for the same caption: find it once
    roots: dict[tuple[str, RootOf], Tensor] = {}
    rows = []
    for root, root_of in settings:
        key = (root.removesuffix("+null"), root_of)
        if key not in roots:
            roots[key] = find_roots(queries[root_of], captions, root, config.form, null)
        traversals = traverse_to_roots(
            captions, null, start, roots[key], root=root, rank_by=rank_by, steps=config.steps
        )
        at_root = find_captions_at_roots(traversals, captions, rank_by)
        rows.append(
            RootTraversal(
                root=root,
                root_of=None if root == "null" else root_of,
                visited=scores.traversal_scores(traversals.visited, chains),
                at_root=scores.root_scores(at_root, chains),
                ends=None
                if truth is None
                else scores.score_ends(traversals.visited, traversals.roots, captions.uncertainty, truth),
                paths=scores.score_paths(traversals.visited, levels, truth),
            )
        )
    return tuple(rows)


def _uncertainty_order_table(uncertainty: ChainUncertainty) -> Table:
    """Table of the order of levels.

    For each level, its mean uncertainty and the percent of chains in which it is more uncertain than each other level.
    """
    adjacent_order = get_value(uncertainty.adjacent_order)  # None for chains of one level
    order, paper = map(format_percent, (adjacent_order, paper_numbers.ADJACENT_ORDER))
    title = f"HierarCaps: {order} % of adjacent levels in order (paper {paper})"
    num_levels = len(uncertainty.levels)
    note = (
        "in percent of chains; the paper's in parentheses"
        if num_levels == PAPER_LEVELS
        else "in percent of chains"
    )
    if adjacent_order is not None and adjacent_order < 0.5:
        note += ". General captions are less uncertain than specific ones here, contrary to what is expected"
    headings = ("mean uncertainty", *(f"more uncertain than level {level}" for level in range(num_levels)))
    table = make_table(title, ["level"], headings, caption=note)
    rows = zip(uncertainty.levels, uncertainty.level_pairs, strict=True)
    for i, (level, fractions) in enumerate(rows):
        percents = (
            _format_level_pair(get_value(fraction), i, j, num_levels) for j, fraction in enumerate(fractions)
        )
        table.add_row(str(i), format_number(level.mean), *percents)
    return table


def _traversal_table(result: HierarCapsResult) -> Table:
    """Table of precision and recall in percent: traversals by root, the data set's own protocol, the paper's rows."""
    radial = result.radial
    steps = "" if radial is None else f" of {radial.steps} steps"
    title = f"HierarCaps: traversal{steps}, in percent"
    has_truth = any(row.ends is not None for row in result.traversal or ())
    headings = ["precision", "recall", "any recall", "root recall", "rises", "ends general"]
    headings += ["captions true", "ends true and general"] if has_truth else []
    table = make_table(title, ["root", "root of"], headings, caption=describe_bad_samples(result.num_bad))
    for row in result.traversal or ():
        visited = row.visited
        numbers = (visited.precision, visited.recall, visited.any_recall, row.at_root.recall)
        percents = [format_percent(number.value) for number in numbers]
        paths, ends = row.paths, row.ends
        along: list[Proportion | Mean | None] = (
            [None, None] if paths is None else [paths.rises, paths.ends_general]
        )
        if has_truth:
            along += [None if paths is None else paths.true, None if ends is None else ends.true_and_general]
        percents += [format_percent(get_value(number)) for number in along]
        table.add_row(row.root, row.root_of or "", *percents)
    if radial is not None:
        precision, recall = (format_percent(number.value) for number in (radial.precision, radial.recall))
        table.add_row("HierarCaps' protocol", "", precision, recall)
    table.add_section()
    for name in paper_numbers.HIERARCAPS.rows:
        paper = paper_numbers.HIERARCAPS.row(name)
        precision, recall, root_recall = (
            format_percent(paper[column]) for column in paper_numbers.HIERARCAPS.columns
        )
        table.add_row(  # the paper doesn't say which recall its own is
            f"paper: {name}",
            "",
            precision,
            f"{recall} ?",
            "",
            root_recall,
        )
    return table


def _format_level_pair(fraction: float | None, i: int, j: int, num_levels: int) -> str:
    """Format a fraction of chains, those whose level i is more uncertain than level j, in percent.

    The paper's value follows in parentheses if it has one: for i < j and chains of PAPER_LEVELS levels.
    """
    if fraction is None or i >= j or num_levels != PAPER_LEVELS:
        return format_percent(fraction)
    paper = paper_numbers.LEVEL_PAIRS.get((i, j))
    printed = f"≥ {format_percent(paper_numbers.FAR_LEVEL_PAIRS)}" if paper is None else format_percent(paper)
    return f"{format_percent(fraction)} ({printed})"
