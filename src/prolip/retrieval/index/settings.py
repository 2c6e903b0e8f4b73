"""What a database remembers of itself between searches: its index, how hard to search in it, and quantiles."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from prolip.configs import build, require_literals

Kind = Literal["none", "ivf-sq", "ivf-rq", "ivf-pq"]
"""none: every search is exact. The others sort items into cells, and keep of each item: ivf-sq: a byte a dimension;
ivf-rq: a bit a dimension; ivf-pq: a byte for 16 dimensions."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard an approximate search tries. nprobes: cells that are looked into, of those that are nearest. refine: for
    each result this many candidates are compared by their exact distance."""

    nprobes: int
    refine: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    kind:         of the index. trained: rows when it was built; others were folded in since.
    effort:       of a search by default; None: exact.
    recall:       recall@10 at that effort, as it was measured; None without an index.
    filtered, filtered_recall: the same for a search with a filter, measured with one that a tenth of the rows passes.
    target:       the recall that was asked for.
    milliseconds: of one approximate search, and of one exact search, when it was measured.
    quantiles:    of uncertainty, by modality: search/index/quantiles.py.
    """

    kind: Kind = "none"
    trained: int = 0
    effort: Effort | None = None
    recall: float | None = None
    filtered: Effort | None = None
    filtered_recall: float | None = None
    target: float | None = None
    milliseconds: float | None = None
    exact_milliseconds: float | None = None
    quantiles: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_literals(self)

    def told(self) -> str:
        """The index in one or two sentences."""
        if self.kind == "none":
            return "Every search is exact."
        if self.recall is None or self.milliseconds is None or self.exact_milliseconds is None:
            return f"The index {self.kind} was not measured yet."
        if self.effort is None:
            return (
                f"The index {self.kind} reaches recall@10 {self.recall:.3f}, not {self.target}: searches are exact, "
                f"{self.exact_milliseconds:.1f} ms each."
            )
        told = (
            f"The index {self.kind} reaches recall@10 {self.recall:.3f} in {self.milliseconds:.1f} ms a search "
            f"(exact: {self.exact_milliseconds:.1f} ms)"
        )
        if self.filtered is None:
            return f"{told}; searches with a filter are exact."
        return f"{told}, and {self.filtered_recall:.3f} with a filter."

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, where: str) -> Settings:
        settings: Settings = build(cls, json.loads(text), where)
        return settings
