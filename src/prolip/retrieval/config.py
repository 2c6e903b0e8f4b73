"""IndexConfig, SearchConfig, TraverseConfig: options of functions and commands; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.checks import require_fraction, require_positive_int
from prolip.choices import InclusionMeasure, IndexChoice, Modality, RankBy, Root, RootOf, SimilarityMetric
from prolip.configs import Advanced, require_field_types

MAX_RESULTS = 100_000
"""Largest k."""


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """How a database is indexed."""

    kind: IndexChoice = "auto"
    """Kind of the approximate index. auto: the existing one; else none below 100,000 rows, and ivf-rq above, or ivf-sq
    if that misses the recall."""
    recall: float = 0.95
    """Recall@10 that approximate searches must reach. If no index reaches it, searches are exact."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        require_field_types(self)
        require_fraction(self.recall, "recall", exclude_zero=True)


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """What to search for."""

    k: int = 20
    """Number of results."""
    rank_by: RankBy | None = None
    """csd: expected squared distance. cosine: of the means. match: by the probability of the loss that
    the model was trained with. None: match for a likelihood model between image and text; cosine if
    the model's widths were added to finished means; else csd."""
    matching: float | None = None
    """Show only items that match with at least this probability, perhaps none. Calibrate it: prolip calibrate."""
    coverage: float | None = None
    """Show only the set of items that holds the query's own with this probability. Needs prolip calibrate."""
    where: str | None = None
    """SQL condition on the columns of the database, such as "uncertainty < 0.4 AND caption LIKE '%star%'"."""
    modality: Modality | None = None
    """Modality of the results. None: images if there are any, else texts."""
    max_uncertainty: float | None = None
    """Quantile of the uncertainty, from 0 to 1, not a value of it: 0.9 excludes the most uncertain tenth of the images,
    and of the texts. To exclude by value: where "uncertainty < 0.4"."""
    rerank: InclusionMeasure | None = None
    """Sort the nearest items by how much the query includes them."""
    only_included: bool = False
    """Show only items that the query includes more than the empty caption does."""
    exact: bool = False
    """Compare with every item, even if there is an index."""
    model: str | None = None
    """Location of the model. None: where it was when the items were embedded."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    candidates: Advanced[int | None] = None
    """Number of nearest items that are reranked. None: ten per result, at least 200."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is impossible or two options exclude each other, TypeError for a loaded model."""
        if hasattr(self.model, "embed_texts"):
            raise TypeError(
                "model must be the location of a model, not a model. To search with a loaded model, call "
                "search_gaussians(database, model.embed_texts(texts)) or search_with_confidence of prolip.retrieval"
            )
        require_field_types(self)
        require_positive_int(self.k, "k", maximum=MAX_RESULTS)
        if self.max_uncertainty is not None:
            require_fraction(self.max_uncertainty, "max_uncertainty", exclude_zero=True)
        for name, value in (("matching", self.matching), ("coverage", self.coverage)):
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} must be above 0 and below 1, not {value!r}")
        if self.rerank is not None and self.rank_by == "cosine":
            raise ValueError(
                f"rank_by cosine and rerank {self.rerank} exclude each other: leave out one of them"
            )
        if self.candidates is not None:
            require_positive_int(self.candidates, "candidates")
            if self.candidates < self.k:
                raise ValueError(f"candidates ({self.candidates}) must be at least k ({self.k})")

    @property
    def is_filtered(self) -> bool:
        """Whether the user excludes rows."""
        return self.where is not None or self.max_uncertainty is not None

    @property
    def has_match_limit(self) -> bool:
        """Whether results must have a least match probability."""
        return self.matching is not None or self.coverage is not None


@dataclass(frozen=True, kw_only=True)
class TraverseConfig:
    """How captions are traversed from specific to general."""

    root: Root | None = None
    """End of the path: the embedding of "", the caption that includes the image most (by log inclusion or by
    containment), the most uncertain caption that matches (or contains) the image as well as "" does, or the mean of ""
    and that caption. inclusion+null: the paper's. None: general-match for a likelihood model, inclusion+null for other
    models with uncertainty, null for models without."""
    root_of: RootOf = "image"
    """Root of the image, or of the caption nearest to it."""
    rank_by: SimilarityMetric | None = None
    """Nearest by CSD, or by the cosine of the means. None: cosine for a model whose matches read means only, else
    csd."""
    steps: int = 50
    """Points on the path."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    scan: Advanced[bool] = False
    """Compare with all captions of a database, instead of those that its index finds."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        require_field_types(self)
        require_positive_int(self.steps, "steps")
