"""HierarCaps: order of uncertainty along caption chains; precision and recall of traversals.

A chain is the captions of an image from general to specific. Measured are the order of uncertainty along chains, the
paper's traversal from an image to a root, and the data set's own protocol (by radius). The scores are in `chains`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import torch
from rich.table import Table
from torch import Tensor

from prolip.console import describe_bad_samples, format_number, format_percent, make_table
from prolip.data.sources.folder import ImageList
from prolip.data.sources.hierarcaps import HierarCaps
from prolip.embeddings.base_embedder import BaseEmbedder
from prolip.evaluation import chains as scores
from prolip.evaluation import paper_numbers
from prolip.evaluation.metrics.correlation import spearman
from prolip.gaussian import Gaussian
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.retrieval.traversal.traverse import (
    Root,
    RootOf,
    find_captions_at_roots,
    find_roots,
    traverse_to_roots,
)

BINS = 40
"""Bins of the histogram of uncertainty."""
PAPER_LEVELS = 4
"""Levels of the paper's chains: only chains of this length are shown with the paper's values."""


def evaluate_hierarcaps(
    embedder: BaseEmbedder,
    data: HierarCaps,
    *,
    metric: SimilarityMetric = "csd",
    form: Form = "exact",
    steps: int = 50,
) -> dict[str, Any]:
    """Evaluate a model on HierarCaps. (The authors' public code has metric="cosine", form="published".)

    Args:
        embedder: The model, and how to embed with it.
        data: Chains of captions and their images.
        metric: Similarity that ranks captions.
        form: Form of the log inclusion that finds roots.
        steps: Steps of a traversal, and thresholds of the radial protocol.

    Returns:
        data, chains, captions, images, missing (counts); bad (images that could not be used: only the texts of their
        chains count); metric, form; uncertainty (`evaluate_chain_uncertainty`); traversal (`evaluate_traversal`) and
        radial (`score_radial_protocol`), both None without images.
    """
    texts = embedder.embed_texts([*data.captions, ""])
    captions, null = texts[:-1], texts[-1:]
    traversal = radial = None
    bad = 0
    if data.images:
        encoded = embedder.embed_images(ImageList(data.path, data.images))
        bad = len(encoded.errors)
        image_rows, has_image = _find_image_rows(data.image_index, encoded.indices)
        chains = data.chains[has_image]
        traversal = evaluate_traversal(
            encoded.images[image_rows], captions, null, chains, metric=metric, form=form, steps=steps
        )
        radial = scores.score_radial_protocol(encoded.images, captions, null, chains, image_rows, steps=steps)
    return {
        "data": str(data.path),
        "chains": len(data.chains),
        "captions": len(data.captions),
        "images": len(data.images),
        "missing": len(data.missing),
        "bad": bad,
        "metric": metric,
        "form": form,
        "uncertainty": evaluate_chain_uncertainty(captions.uncertainty[data.chains], data.log_ambiguity),
        "traversal": traversal,
        "radial": radial,
    }


def evaluate_chain_uncertainty(
    uncertainty: Tensor, log_ambiguity: Tensor | None = None
) -> dict[str, Any] | None:
    """Measure whether uncertainty falls along chains, from general to specific captions.

    Args:
        uncertainty: Uncertainty of each chain's captions, (N, L), from general to specific.
        log_ambiguity: True log-ambiguity of the same captions, (N, L); None: unknown.

    Returns:
        None for a deterministic model, else
        adjacent_order, level_pairs, kendall: `adjacent_order`, `compare_level_pairs` and `kendall_by_level` of
            `prolip.evaluation.chains`. kendall is that of -uncertainty: 1 if it falls along every chain.
        by_level: for each level {mean, quartiles}.
        histogram: {edges, counts: for each level its counts}.
        ambiguity: {spearman, by_level}, Spearman's correlation with the true log-ambiguity; None if that is unknown.
    """
    if not bool((uncertainty > 0).any()):
        return None
    values = uncertainty.double()
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0).mT
    edges = torch.linspace(float(values.min()), float(values.max()), BINS + 1, dtype=torch.float64)
    return {
        "adjacent_order": scores.adjacent_order(values),
        "level_pairs": scores.compare_level_pairs(values),
        "kendall": scores.kendall_by_level(-values),
        "by_level": [
            {"mean": mean, "quartiles": quartiles_of_level}
            for mean, quartiles_of_level in zip(values.mean(0).tolist(), quartiles.tolist(), strict=True)
        ],
        "histogram": {
            "edges": edges.tolist(),
            "counts": [_count_in_bins(level, edges) for level in values.unbind(1)],
        },
        "ambiguity": None
        if log_ambiguity is None
        else {
            "spearman": spearman(values.flatten(), log_ambiguity.flatten()),
            "by_level": [
                spearman(a, b) for a, b in zip(values.unbind(1), log_ambiguity.unbind(1), strict=True)
            ],
        },
    }


def evaluate_traversal(
    images: Gaussian,
    captions: Gaussian,
    null: Gaussian,
    chains: Tensor,
    *,
    metric: SimilarityMetric = "csd",
    form: Form = "exact",
    steps: int = 50,
) -> list[dict[str, Any]]:
    """Traverse from each image to each kind of root; score the captions visited and the caption at the root.

    Args:
        images: The image of each chain, (N, D).
        captions: The distinct captions, (M, D).
        null: The embedding of the text "", (1, D).
        chains: Rows of each chain's captions, int64 (N, L).
        metric: Similarity that ranks captions.
        form: Form of the log inclusion that finds roots.
        steps: Steps of a traversal.

    Returns:
        One dict for each kind of root and each query that it is found for (the image, or the caption nearest to it):
        root, root_of ("image", "caption"; None for the null root, which has no query), and the values of
        `chains.traversal_scores` and `chains.root_scores`. A deterministic model has the null root only.
    """
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (images, captions))
    settings: list[tuple[Root, RootOf]] = [("null", "image")]
    if probabilistic:
        settings += [(root, query) for root in get_args(Root) if root != "null" for query in get_args(RootOf)]
    start = find_nearest(images, captions, 1, metric=metric)[1][:, 0]
    queries: dict[RootOf, Gaussian] = {"image": images, "caption": captions[start]}
    # "inclusion" and "inclusion+null" look for the same caption: find it once
    roots: dict[tuple[str, RootOf], Tensor] = {}
    rows = []
    for root, root_of in settings:
        key = (root.removesuffix("+null"), root_of)
        if key not in roots:
            roots[key] = find_roots(queries[root_of], captions, root, form)
        traversals = traverse_to_roots(
            captions, null, start, roots[key], root=root, rank_by=metric, steps=steps
        )
        at_root = find_captions_at_roots(traversals, captions, metric)
        row: dict[str, Any] = {"root": root, "root_of": None if root == "null" else root_of}
        rows.append(
            row | scores.traversal_scores(traversals.visited, chains) | scores.root_scores(at_root, chains)
        )
    return rows


def hierarcaps_tables(result: Mapping[str, Any]) -> list[Table]:
    """Make the tables of a HierarCaps evaluation, with the paper's values.

    Args:
        result: What `evaluate_hierarcaps` returned.

    Returns:
        Up to two tables: the order of levels, and the traversal, as far as they were evaluated.
    """
    tables = []
    if result["uncertainty"] is not None:
        tables.append(_uncertainty_order_table(result["uncertainty"]))
    if result["traversal"] is not None:
        tables.append(_traversal_table(result))
    return tables


def _uncertainty_order_table(uncertainty: Mapping[str, Any]) -> Table:
    """Table of the result of `evaluate_chain_uncertainty`.

    For each level, its mean uncertainty and the percent of chains in which it is more uncertain than each other level.
    """
    adjacent_order = uncertainty["adjacent_order"]  # None for chains of one level
    order, paper = map(format_percent, (adjacent_order, paper_numbers.ADJACENT_ORDER))
    title = f"HierarCaps: {order} % of adjacent levels in order (paper {paper})"
    num_levels = len(uncertainty["by_level"])
    note = (
        "in percent of chains; the paper's in parentheses"
        if num_levels == PAPER_LEVELS
        else "in percent of chains"
    )
    if adjacent_order is not None and adjacent_order < 0.5:
        note += ". General captions are less uncertain than specific ones here, contrary to what is expected"
    headings = ("mean uncertainty", *(f"more uncertain than level {level}" for level in range(num_levels)))
    table = make_table(title, ["level"], headings, caption=note)
    rows = zip(uncertainty["by_level"], uncertainty["level_pairs"], strict=True)
    for i, (summary, fractions) in enumerate(rows):
        percents = (_format_level_pair(fraction, i, j, num_levels) for j, fraction in enumerate(fractions))
        table.add_row(str(i), format_number(summary["mean"]), *percents)
    return table


def _traversal_table(result: Mapping[str, Any]) -> Table:
    """Table of precision and recall in percent: traversals by root, the data set's own protocol, the paper's rows."""
    title = f"HierarCaps: traversal of {result['radial']['steps']} steps, in percent"
    headings = ("precision", "recall", "any recall", "root recall")
    table = make_table(title, ["root", "root of"], headings, caption=describe_bad_samples(result["bad"]))
    for row in result["traversal"]:
        numbers = (row[key] for key in ("precision", "recall", "any_recall", "root_recall"))
        table.add_row(row["root"], row["root_of"] or "", *map(format_percent, numbers))
    radial = result["radial"]
    table.add_row(
        "HierarCaps' protocol", "", format_percent(radial["precision"]), format_percent(radial["recall"])
    )
    table.add_section()
    for name in paper_numbers.HIERARCAPS.rows:
        row = paper_numbers.HIERARCAPS.row(name)
        precision, recall, root_recall = (row[column] for column in paper_numbers.HIERARCAPS.columns)
        table.add_row(  # the paper doesn't say which recall its own is
            f"paper: {name}",
            "",
            format_percent(precision),
            f"{format_percent(recall)} ?",
            "",
            format_percent(root_recall),
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


def _count_in_bins(values: Tensor, edges: Tensor) -> list[int]:
    """Number of values in each bin between the edges."""
    return [int(count) for count in torch.histogram(values, edges).hist]


def _find_image_rows(image_index: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Find the row of each chain's image among the images that could be read.

    image_index: int64 (N,), the index of each chain's image in the data.
    indices:     int64 (I,), increasing: the index of each encoded image in the data.
    Returns the rows, int64, one for each chain whose image could be read; and which chains these are, bool (N,).
    """
    has_image = torch.isin(image_index, indices)
    return torch.searchsorted(indices, image_index[has_image]), has_image
