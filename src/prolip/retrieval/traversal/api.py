"""Traversal with a model: paths of captions from specific to general, for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from prolip.choices import Root
from prolip.configs import takes_config
from prolip.data.sources.captions import iter_captions, open_captions
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.header import has_embeddings
from prolip.embeddings.identity import model_identity
from prolip.gaussian import Gaussian, MeanTrace
from prolip.measures.nearest import SimilarityMetric
from prolip.model.inference import as_image_list
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImageSource
from prolip.retrieval.config import TraverseConfig
from prolip.retrieval.index.database import Database, has_database
from prolip.retrieval.traversal.candidates import CandidateSearch
from prolip.retrieval.traversal.captions import (
    CaptionRows,
    CaptionsInMemory,
    CaptionTable,
    DatabaseCaptions,
    EmbeddedCaptions,
)
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.most_general import PairScore, get_truth_score
from prolip.retrieval.traversal.traverse import CaptionSearch, Traversals, traverse
from prolip.weights.load import load


@dataclass(frozen=True)
class CaptionStep:
    """One caption of a path.

    Attributes:
        caption: The text.
        uncertainty: Trace of its covariance; None if the model has none.
        similarity: Similarity of the image to the caption by the metric of the search: 1 - CSD / 2 for csd, or the
            cosine of the means.
    """

    caption: str
    uncertainty: float | None
    similarity: float


@dataclass(frozen=True)
class CaptionPath:
    """The path of one image.

    Attributes:
        steps: Captions from the nearest one towards the root.
        root: The caption that the root is made of, of the image or of its nearest caption; None with the null root.
        root_kind: Which root was sought.
        uncertainty: Trace of the image's covariance; None if the model has none.
        root_is_true: Whether the caption of a general-... root counts as true; None for other roots.
    """

    steps: tuple[CaptionStep, ...]
    root: CaptionStep | None
    root_kind: Root
    uncertainty: float | None
    root_is_true: bool | None = None

    @property
    def root_is_general(self) -> bool:
        """Whether the root is "", or a caption that counts as true and is at least as uncertain as the nearest one."""
        if self.root is None:
            return True
        nearest, root = self.steps[0].uncertainty, self.root.uncertainty
        return bool(self.root_is_true) and nearest is not None and root is not None and root >= nearest

    @property
    def root_label(self) -> str:
        """What the caption of the root is called: "root" if it is general; else "anchor", since it may be specific."""
        return "root" if self.root_is_general else "anchor"

    @property
    def note(self) -> str:
        """What a reader should know about this path, in one line."""
        notes = ["similarity: of the image to the caption"]
        if self.root is not None:
            notes.append(f"{self.root_label}: {self._describe_root()}")
        if self.root_kind.endswith("+null"):
            notes.append(f'the path leads to the mean of the {self.root_label} and of ""')
        uncertainties = [step.uncertainty for step in self.steps if step.uncertainty is not None]
        if uncertainties and uncertainties[-1] < uncertainties[0]:
            notes.append(
                "uncertainty falls along this path: for this model the last caption is not more general"
            )
        return "; ".join(notes)

    def _describe_root(self) -> str:
        """Say which caption the root is made of."""
        kind = self.root_kind.removesuffix("+null")
        if kind in ("inclusion", "containment"):
            return f"the caption with the largest {kind}, which need not be general"
        verb = "matches" if kind == "general-match" else "contains"
        if not self.root_is_true:
            return f'no caption {verb} as well as "" does, and this one {verb} best'
        return f'the most uncertain caption that {verb} as well as "" does'


@takes_config(TraverseConfig)
def traverse_images(
    model: str | Path | ProLIP,
    images: ImageSource | Sequence[ImageSource],
    captions: str | Path | Sequence[str] | CaptionSearch,
    config: TraverseConfig,
) -> list[CaptionPath]:
    """Find the path of captions from each image's nearest caption to its root.

    Args:
        model: Embeds the images, and the captions if they are texts; or what `prolip.load` takes.
        images: One image, or several.
        captions: Texts, of which equal ones count once; or the path of a file of captions (`read_captions`), of an
            embedding data set or of a database; or a search, from `open_caption_search`.
        config: How to traverse; or its fields as keywords.

    Returns:
        One path per image.

    Raises:
        ValueError: There is no caption, the captions are of another model, or the root needs variances they lack.
    """
    if isinstance(captions, str | Path):
        captions = open_caption_search(captions, scan=config.scan)
    if not isinstance(model, ProLIP):
        model = load(model, device=config.device).eval()
    search = _build_caption_search(model, captions) if isinstance(captions, Sequence) else captions
    if isinstance(search.table, EmbeddedCaptions | DatabaseCaptions):
        require_same_model(model, search.table)
    z, null = model.embed_images(as_image_list(images)), model.embed_texts("")
    root_kind: Root = config.root or _choose_root(model, null)
    rank_by = config.rank_by or model.logit_parameters.nearest_metric
    if isinstance(search, ExactSearch | CandidateSearch) and search.match is None:
        # a softmax has no match probability: then CSD decides, whose order PPCL's probability has
        has_probability = model.logit_bias is not None
        search = replace(search, match=model.match_probability_matrix if has_probability else None)
    in_table = traverse(
        z, search, null, root=root_kind, root_of=config.root_of, rank_by=rank_by, steps=config.steps
    )
    traversals, rows = _read_captions(in_table, search.table)
    paths = [_make_path(row, traversals, z, rows, rank_by, root_kind) for row in range(len(z))]
    if not root_kind.startswith("general-"):
        return paths
    z_captions, score = rows.to_gaussian(), get_truth_score(root_kind, getattr(search, "match", None))
    queries = z if config.root_of == "image" else z_captions[traversals.start]
    is_true = _count_as_true(queries, z_captions[traversals.roots], null, score)
    return [replace(path, root_is_true=answer) for path, answer in zip(paths, is_true, strict=True)]


def _choose_root(model: ProLIP, null: Gaussian) -> Root:
    """The default root: the most general one for likelihood models, else the paper's; null without uncertainty.

    Only the likelihood ties uncertainty to generality in every model (docs/traversal.md).
    """
    if not bool(null.uncertainty.any()):
        return "null"
    return "general-match" if model.logit_parameters.default_rank_by == "match" else "inclusion+null"


def _count_as_true(queries: Gaussian, roots: Gaussian, null: Gaussian, score: PairScore) -> list[bool]:
    """Whether each root (N, D) scores at least as high as "" (1, D) for its query (N, D), but for rounding."""
    values = [
        (score(queries[row][None], roots[row][None]), score(queries[row][None], null))
        for row in range(len(queries))
    ]
    return [bool((value >= threshold) | value.isclose(threshold)) for value, threshold in values]


def open_caption_search(path: str | Path, *, scan: bool = False) -> list[str] | CaptionSearch:
    """Open captions for `traverse_images`.

    Args:
        path: A file of captions (`read_captions`), an embedding data set, or a database.
        scan: Compare all captions of a database instead of those that its index finds. Without an index that is done
            anyway: it is faster than one exact database search per step.

    Returns:
        The texts of a file; else a search.
    """
    if has_embeddings(path):
        return ExactSearch(EmbeddedCaptions(EmbeddingDataset.open(path)))
    if has_database(path):
        database = Database.open(path)
        table, settings = DatabaseCaptions(database), database.settings
        is_tuned = settings.effort is not None and settings.filtered_effort is not None
        if scan or database.index_kind == "none" or not is_tuned:
            return ExactSearch(table)
        assert settings.effort is not None
        assert settings.filtered_effort is not None
        return CandidateSearch(table, settings.effort, settings.filtered_effort)
    return read_captions(path)


def read_captions(path: str | Path) -> list[str]:
    """Read all captions of a file, each once.

    Args:
        path: A file in a format of `prolip.data.sources.captions.open_captions`.

    Returns:
        The captions, in the order of the file.
    """
    return list(dict.fromkeys(iter_captions(open_captions(path))))


def require_same_model(model: ProLIP, captions: EmbeddedCaptions | DatabaseCaptions) -> None:
    """Raise ValueError if captions were embedded by another model.

    Args:
        model: The model that embeds the images.
        captions: Embedded captions on disk.
    """
    identity, header = model_identity(model), captions.header
    if identity != header.identity:
        raise ValueError(
            f"{captions.name} holds embeddings of {header.model} ({header.identity}), not of this model ({identity}): "
            "embeddings of two models can't be compared, so load the model that embedded the captions"
        )


def show(name: str, path: CaptionPath) -> None:
    """Print a path as a table, the nearest caption first.

    Args:
        name: Name of the image.
        path: One of the paths that `traverse_images` returned.
    """
    from prolip.console import make_table, print_tables, printable

    title = name if path.uncertainty is None else f"{name}: uncertainty {path.uncertainty:.4g}"
    table = make_table(printable(title), ["", "caption"], ["uncertainty", "similarity"], caption=path.note)
    for index, step in enumerate(path.steps, start=1):
        table.add_row(str(index), *_format_step(step), end_section=index == len(path.steps))
    if path.root is not None:
        table.add_row(path.root_label, *_format_step(path.root))
    print_tables([table])


def _build_caption_search(model: ProLIP, captions: Sequence[str]) -> CaptionSearch:
    """Embed the distinct captions, and make an exact search over them, in memory; ValueError if there is none."""
    if not captions:
        raise ValueError("there is no caption to search")
    texts = tuple(dict.fromkeys(captions))
    return ExactSearch(CaptionsInMemory(model.embed_texts(list(texts)), texts), progress=False)


def _format_step(step: CaptionStep) -> tuple[str, str, str]:
    """Format the caption, the uncertainty and the similarity of a step as cells of a table."""
    from prolip.console import printable

    uncertainty = "-" if step.uncertainty is None else f"{step.uncertainty:.4g}"
    return printable(step.caption), uncertainty, f"{step.similarity:.4f}"


def _read_captions(traversals: Traversals, table: CaptionTable) -> tuple[Traversals, CaptionRows]:
    """Read all captions that the traversals name, each once.

    Returns:
        The traversals with indices into the captions that were read instead of positions in the table (roots stay -1
        with the null root), and these captions.
    """
    roots = traversals.roots[traversals.roots >= 0]
    positions = torch.cat([traversals.start, roots, traversals.visited.flatten()]).unique()
    start, visited, root_indices = (
        torch.searchsorted(positions, values.contiguous())
        for values in (traversals.start, traversals.visited, traversals.roots)
    )
    root_indices = torch.where(traversals.roots >= 0, root_indices, -1)
    return replace(traversals, start=start, roots=root_indices, visited=visited), table.take(positions)


def _make_path(
    row: int,
    traversals: Traversals,
    images: Gaussian,
    captions: CaptionRows,
    rank_by: SimilarityMetric,
    root_kind: Root,
) -> CaptionPath:
    """Make the path of one image.

    Args:
        row: Number of the image.
        traversals: Traversals with indices into `captions`, from `_read_captions`.
        images: (N, D).
        captions: The captions that the traversals name.
        rank_by: How similarity is measured.
        root_kind: Which root was sought.
    """
    # a table may hold a text many times, and rounding decides which of its rows is nearest: merge equal texts
    path = [next(same) for _, same in groupby(traversals.get_path(row), lambda index: captions.texts[index])]
    root = int(traversals.roots[row])
    # the caption of the root is appended; with the null root it is caption 0, which is dropped below
    path_and_root = [*path, max(root, 0)]
    similarities = _compute_similarities(
        images[row], MeanTrace(captions.z.mean[path_and_root], captions.z.uncertainty[path_and_root]), rank_by
    )
    is_probabilistic = bool(captions.z.uncertainty.any())
    steps = [
        CaptionStep(
            captions.texts[index],
            float(captions.z.uncertainty[index]) if is_probabilistic else None,
            float(similarities[rank]),
        )
        for rank, index in enumerate(path_and_root)
    ]
    return CaptionPath(
        steps=tuple(steps[:-1]),
        root=None if root < 0 else steps[-1],
        root_kind=root_kind,
        uncertainty=float(images.uncertainty[row]) if is_probabilistic else None,
    )


def _compute_similarities(image: Gaussian, captions: MeanTrace, rank_by: SimilarityMetric) -> Tensor:
    """Compute the similarity of an image (D,) to captions (n, D): the cosine of the means, or 1 - CSD / 2; (n,)."""
    if rank_by == "cosine":
        return cosine_similarity(captions.mean, image.mean, dim=-1)
    distance = (captions.mean - image.mean).square().sum(-1)
    return 1 - 0.5 * (distance + captions.uncertainty + image.uncertainty)
