"""Retrieval: a vector database of embeddings, search with confidence, and traversal of captions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.retrieval.calibration import Calibration as Calibration
    from prolip.retrieval.calibration import read_calibration as read_calibration
    from prolip.retrieval.config import IndexConfig as IndexConfig
    from prolip.retrieval.config import SearchConfig as SearchConfig
    from prolip.retrieval.config import TraverseConfig as TraverseConfig
    from prolip.retrieval.index.checksums import VerificationResult as VerificationResult
    from prolip.retrieval.index.checksums import verify_database as verify_database
    from prolip.retrieval.index.database import Database as Database
    from prolip.retrieval.perplexity import PerplexityEstimate as PerplexityEstimate
    from prolip.retrieval.perplexity import estimate_perplexity as estimate_perplexity
    from prolip.retrieval.query import search_gaussians as search_gaussians
    from prolip.retrieval.response import SearchResponse as SearchResponse
    from prolip.retrieval.response import load_database_model as load_database_model
    from prolip.retrieval.response import search as search
    from prolip.retrieval.response import search_with_confidence as search_with_confidence
    from prolip.retrieval.traversal.api import CaptionPath as CaptionPath
    from prolip.retrieval.traversal.api import CaptionStep as CaptionStep
    from prolip.retrieval.traversal.api import open_caption_search as open_caption_search
    from prolip.retrieval.traversal.api import traverse_images as traverse_images
    from prolip.retrieval.traversal.traverse import traverse as traverse
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "calibration": ["Calibration", "read_calibration"],
            "config": ["IndexConfig", "SearchConfig", "TraverseConfig"],
            "index.checksums": ["VerificationResult", "verify_database"],
            "index.database": ["Database"],
            "perplexity": ["PerplexityEstimate", "estimate_perplexity"],
            "query": ["search_gaussians"],
            "response": ["SearchResponse", "load_database_model", "search", "search_with_confidence"],
            "traversal.api": ["CaptionPath", "CaptionStep", "open_caption_search", "traverse_images"],
            "traversal.traverse": ["traverse"],
        },
    )
