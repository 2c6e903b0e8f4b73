"""HierarCaps: chains of captions from general to specific, each with its picture.

What is measured: whether uncertainty falls along a chain; what a walk from a picture to a root finds of its chain; and
the data set's own protocol. The scores are in `chains`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from rich.table import Table
from torch import Tensor

from prolip.data.sources.hierarcaps import HierarCaps
from prolip.data.sources.image_list import ImageList
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import chains as scores
from prolip.evaluation import paper_numbers
from prolip.evaluation.formatting import describe_bad_samples, format_number, format_percent, table
from prolip.evaluation.metrics.correlation import spearman
from prolip.gaussian import Gaussian
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric, find_nearest
from prolip.model.prolip import ProLIP
from prolip.retrieval.traversal.traverse import RootOf, Root, find_roots, find_captions_at_roots, walk

BINS = 40
LEVELS = 4
"""Of the paper's chains: only such are shown beside its pairs of levels."""


def evaluate_hierarcaps(
    model: ProLIP,
    data: HierarCaps,
    *,
    by: SimilarityMetric = "csd",
    form: Form = "exact",
    steps: int = 50,
    cache: Path | None = None,
    batch_size: int = 64,
    max_bad_fraction: float = 0.01,
    progress: bool | None = None,
) -> dict[str, Any]:
    """All of it. by: what ranks captions. form: of the log inclusion that looks for roots.

    The release's mode is by="cosine", form="published"; ours is the default. Layout: data, chains, captions, pictures,
    missing (counts); by, form; uncertainty (`evaluate_chain_uncertainty`; None for a deterministic model); traversal
    (`evaluate_traversal`) and hierarcaps (`radial_scores`), both None without pictures. bad: pictures that could not be
    used; their chains are judged by their texts alone. cache, batch_size, max_bad_fraction, progress: as in `encode_images`.
    """
    embedder = Embedder(
        model=model, cache=cache, batch_size=batch_size, max_bad_fraction=max_bad_fraction, progress=progress
    )
    texts = embedder.embed_texts([*data.captions, ""])
    captions, null = texts[:-1], texts[-1:]
    traversal = radial = None
    bad = 0
    if data.pictures:
        encoded = embedder.embed_images(ImageList(data.path, data.pictures))
        bad = len(encoded.errors)
        image_of, used = _rows_of(data.image_index, encoded.indices)
        chains = data.chains[used]
        walks = encoded.images[image_of]
        traversal = evaluate_traversal(walks, captions, null, chains, by=by, form=form, steps=steps)
        radial = scores.radial_scores(encoded.images, captions, null, chains, image_of, steps=steps)
    return {
        "data": str(data.path),
        "chains": len(data.chains),
        "captions": len(data.captions),
        "pictures": len(data.pictures),
        "missing": len(data.missing),
        "bad": bad,
        "by": by,
        "form": form,
        "uncertainty": evaluate_chain_uncertainty(captions.uncertainty[data.chains], data.log_ambiguity),
        "traversal": traversal,
        "hierarcaps": radial,
    }


def evaluate_chain_uncertainty(
    uncertainty: Tensor, log_ambiguity: Tensor | None = None
) -> dict[str, Any] | None:
    """Uncertainty (N, L) along chains; None if there is none (a deterministic model).

    adjacent_order, level_pairs, kendall: see `chains`; kendall is of falling uncertainty, 1 is perfect.
    by_level: mean and quartiles. histogram: counts of each level between shared edges.
    truth: Spearman's correlation with the true log-ambiguity, over all captions and by level.
    """
    if not bool((uncertainty > 0).any()):
        return None
    values = uncertainty.double()
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0).mT
    edges = torch.linspace(float(values.min()), float(values.max()), BINS + 1, dtype=torch.float64)
    return {
        "adjacent_order": scores.adjacent_order(values),
        "level_pairs": scores.level_pairs(values),
        "kendall": scores.kendall_by_level(-values),
        "by_level": [
            {"mean": mean, "quartiles": three}
            for mean, three in zip(values.mean(0).tolist(), quartiles.tolist(), strict=True)
        ],
        "histogram": {
            "edges": edges.tolist(),
            "counts": [_counts(level, edges) for level in values.unbind(1)],
        },
        "truth": None
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
    by: SimilarityMetric = "csd",
    form: Form = "exact",
    steps: int = 50,
) -> list[dict[str, Any]]:
    """One row for each root, and for what it is the root of (the image, or the caption nearest to it).

    images: (N, D), of each chain. captions: (M, D), each text once. null: (1, D), of "". chains: int64 (N, L).
    RootOf a row: root, of; precision, recall, any_recall (`chains.traversal_scores`) and root_recall, root_mean_recall,
    root_level_0 (`chains.root_scores`). A deterministic model has the null root only.
    """
    probabilistic = all(bool(torch.isfinite(z.log_var).all()) for z in (images, captions))
    settings: list[tuple[Root, RootOf]] = [("null", "image")]
    if probabilistic:
        settings += [(root, of) for root in get_args(Root) if root != "null" for of in get_args(RootOf)]
    start = find_nearest(images, captions, 1, metric=by)[1][:, 0]
    queries: dict[RootOf, Gaussian] = {"image": images, "caption": captions[start]}
    searched: dict[tuple[str, RootOf], Tensor] = {}  # a root with null and one without it seek the same caption
    rows = []
    for root, of in settings:
        search = (root.removesuffix("+null"), of)
        if search not in searched:
            searched[search] = find_roots(queries[of], captions, root, form)
        walks = traverse_to_roots(captions, null, start, searched[search], root=root, by=by, steps=steps)
        found = find_captions_at_roots(walks, captions, by)
        told: dict[str, Any] = {"root": root, "of": None if root == "null" else of}
        rows.append(told | scores.traversal_scores(walks.visited, chains) | scores.root_scores(found, chains))
    return rows


def hierarcaps_tables(result: Mapping[str, Any]) -> list[Table]:
    """For people: the order of levels, and the traversal beside the paper's rows."""
    made = []
    if (told := result["uncertainty"]) is not None:
        made.append(_order_table(told))
    if result["traversal"] is not None:
        made.append(_traversal_table(result))
    return made


def _order_table(told: Mapping[str, Any]) -> Table:
    order = f"{format_percent(told['adjacent_order'])} % of adjacent in order (paper {format_percent(paper_numbers.ADJACENT_ORDER)})"
    levels = len(told["by_level"])
    note = "in percent of chains; in brackets the paper's" if levels == LEVELS else "in percent of chains"
    if told["adjacent_order"] < 0.5:
        note += ". The general captions are the narrower ones here: uncertainty points the wrong way"
    headings = ("mean uncertainty", *(f"above level {level}" for level in range(levels)))
    made = table(f"HierarCaps: {order}", ["level"], headings, caption=note)
    for i, (facts, shares) in enumerate(zip(told["by_level"], told["level_pairs"], strict=True)):
        cells = (_cell(share, i, j, levels) for j, share in enumerate(shares))
        made.add_row(str(i), format_number(facts["mean"]), *cells)
    return made


def _traversal_table(result: Mapping[str, Any]) -> Table:
    title = f"HierarCaps: what {result['hierarcaps']['steps']} steps find, in percent"
    headings = ("precision", "recall", "any", "root")
    made = table(title, ["root", "of"], headings, caption=describe_bad_samples(result["bad"]))
    for row in result["traversal"]:
        numbers = (row[key] for key in ("precision", "recall", "any_recall", "root_recall"))
        made.add_row(row["root"], row["of"] or "", *map(format_percent, numbers))
    own = result["hierarcaps"]
    made.add_row("HierarCaps' protocol", "", format_percent(own["precision"]), format_percent(own["recall"]))
    made.add_section()
    for name in paper_numbers.HIERARCAPS.rows:
        row = paper_numbers.HIERARCAPS.row(name)
        precision, recall, root = (row[column] for column in paper_numbers.HIERARCAPS.columns)
        made.add_row(f"paper: {name}", "", format_percent(precision), f"{format_percent(recall)} ?", "", format_percent(root))
    return made


def _cell(share: float | None, i: int, j: int, levels: int) -> str:
    """Share of level i above level j, with the paper's behind it where it has one: of four levels, i below j."""
    if share is None or i >= j or levels != LEVELS:
        return format_percent(share)
    theirs = paper_numbers.LEVEL_PAIRS.get((i, j))
    printed = f"≥ {format_percent(paper_numbers.FAR_LEVEL_PAIRS)}" if theirs is None else format_percent(theirs)
    return f"{format_percent(share)} ({printed})"


def _counts(values: Tensor, edges: Tensor) -> list[int]:
    return [int(count) for count in torch.histogram(values, edges).hist]


def _rows_of(image_index: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The row of each chain's picture among the pictures that were encoded, and which chains have one: bool (N,)."""
    used = torch.isin(image_index, numbers)
    return torch.searchsorted(numbers, image_index[used]), used
