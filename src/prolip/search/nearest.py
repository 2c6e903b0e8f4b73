"""Moved to prolip.nearest; this file goes away."""

from prolip.nearest import Score, nearest, similarity, top

__all__ = ["Score", "nearest", "similarity", "top"]
