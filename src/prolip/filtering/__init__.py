"""Filtering of image-text pairs: scores, threshold, near-duplicates, and the outputs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.filtering.config import FilterConfig as FilterConfig
    from prolip.filtering.filter import FilterResult as FilterResult
    from prolip.filtering.filter import filter_pairs as filter_pairs
    from prolip.filtering.summary import FilterSummary as FilterSummary
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "config": ["FilterConfig"],
            "filter": ["FilterResult", "filter_pairs"],
            "summary": ["FilterSummary"],
        },
    )
