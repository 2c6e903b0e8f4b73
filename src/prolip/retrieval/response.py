"""Search with a model for a text or an image, and the confidence of the result."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from prolip.choices import Modality
from prolip.configs import takes_config
from prolip.embeddings.identity import model_identity
from prolip.files import replace_nonfinite
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.retrieval.confidence import (
    COMPARED,
    SearchConfidence,
    compute_confidence,
)
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.hits import SearchHits
from prolip.retrieval.index.database import Database, open_database
from prolip.retrieval.match_messages import describe_match
from prolip.retrieval.match_probability import OTHER
from prolip.retrieval.perplexity import PerplexityEstimate, estimate_perplexity
from prolip.retrieval.query import choose_rank_by, get_default_modality, search_gaussians
from prolip.weights.load import load

log = logging.getLogger("prolip.retrieval")


@dataclass(frozen=True)
class SearchResponse:
    """The result of a search for one query.

    Attributes:
        query: The text, or the path of the image.
        query_modality: Modality of the query.
        target_modality: Modality of the items that were searched.
        hits: The items that were found, best first.
        confidence: How sure the search is of the first of them.
        match_messages: What the match probabilities mean, and what a limit on them has excluded.
    """

    query: str
    query_modality: Modality
    target_modality: Modality
    hits: SearchHits
    confidence: SearchConfidence
    match_messages: tuple[str, ...] = ()

    @property
    def is_cross_modal(self) -> bool:
        """Whether a text searched images, or an image texts: only then is there a match probability."""
        return self.query_modality != self.target_modality

    def to_json(self) -> str:
        """The response as JSON text; numbers that are not finite are null."""
        hits = [
            {name: value for name, value in row.items() if name != "match" or self.is_cross_modal}
            for row in self.hits.to_dicts()
        ]
        content = {
            "query": self.query,
            "query_modality": self.query_modality,
            "target_modality": self.target_modality,
            "method": self.hits.method,
            "confidence": asdict(self.confidence) | {"messages": self.confidence.describe()},
            "match_messages": list(self.match_messages),
            "hits": hits,
        }
        return json.dumps(replace_nonfinite(content), allow_nan=False)


@takes_config(SearchConfig)
def search(
    database: str | Path | Database, query: str | Path | Image.Image, config: SearchConfig
) -> SearchResponse:
    """Search a database with a text or an image, and compute the confidence of the result.

    Loads the model on every call. For many queries load it once (`load_database_model`) and pass their embeddings to
    `search_with_confidence`, or to `search_gaussians` all at once.

    Args:
        database: What `prolip index` wrote, or its location.
        query: A text (str), or an image (the Path of a file, or a PIL image).
        config: What to search for; or its fields as keywords.

    Returns:
        The hits, best first, and the confidence.

    Raises:
        TypeError: `query` is something else, such as a list of texts.
        ValueError: The model can't be loaded or is another one, or the database lacks what the config asks for.
    """
    _check_query(query)
    opened = open_database(database)
    model = load_database_model(opened, config.model, config.device)
    z = model.embed_texts(query) if isinstance(query, str) else model.embed_images(query)
    name = "image" if isinstance(query, Image.Image) else str(query)
    unknown_words = model.find_unknown_words(query) if isinstance(query, str) else ()
    return search_with_confidence(
        opened, name, z, "text" if isinstance(query, str) else "image", config,
        null=model.embed_texts(""), unknown_words=unknown_words,
    )  # fmt: skip


def _check_query(query: object) -> None:
    """Raise TypeError if a query is no text or image, and warn if a text is the name of a file."""
    if not isinstance(query, str | Path | Image.Image):
        raise TypeError(
            "query must be one text (str), or one image (a pathlib.Path or a PIL image), not "
            f"{type(query).__name__}: call search once per query, or search for many together with "
            "search_gaussians(database, model.embed_texts(texts)), where model is load_database_model(database)"
        )
    if isinstance(query, str) and os.path.isfile(query):
        log.warning(
            "%s is searched as a text, but it is the name of a file. To search by image, write --image %s, or in "
            "Python pathlib.Path(%r).",
            query, query, query,
        )  # fmt: skip


def load_database_model(
    database: str | Path | Database, name: str | None = None, device: str | None = None
) -> ProLIP:
    """Load the model that embedded the items of a database.

    Args:
        database: What `prolip index` wrote, or its location.
        name: Where the model is now; None: where it was when the items were embedded.
        device: cpu, cuda, ...; None: a GPU if there is one.

    Returns:
        The model.

    Raises:
        ValueError: The model can't be loaded, or is another one.
    """
    database = open_database(database)
    header = database.header
    try:
        model = load(name or header.model, device=device).eval()
    except (OSError, ValueError) as error:
        if name is not None:
            raise
        raise ValueError(
            f"the model of {database.uri} can't be loaded ({error}): pass its location with --model"
        ) from None
    if (identity := model_identity(model)) != header.identity:
        raise ValueError(
            f"{name or header.model} ({identity}) is not the model that embedded {database.uri} ({header.model}, "
            f"{header.identity}): pass that model's location with --model"
        )
    return model


def search_with_confidence(
    database: str | Path | Database,
    name: str,
    query: Gaussian,
    query_modality: Modality,
    config: SearchConfig | None = None,
    *,
    null: Gaussian | None = None,
    unknown_words: Sequence[str] = (),
) -> SearchResponse:
    """Search for one query, and compute how sure the search is.

    Args:
        database: What `prolip index` wrote, or its location.
        name: The query as it is printed: a text, or the path of an image.
        query: (1, D).
        query_modality: image or text.
        config: As for `search_gaussians`; without a modality images are searched if there are any, else texts.
        null: (1, D), the embedding of "". With it, a query that nothing matches is recognized; `config.only_included`
            needs it.
        unknown_words: What `model.find_unknown_words` returned for a text.

    Returns:
        The hits and the confidence.

    Raises:
        ValueError: `query` is not one embedding, or `search_gaussians` can't do what the config asks for.
    """
    database, config = open_database(database), SearchConfig() if config is None else config
    if query.mean.ndim != 2 or len(query) != 1:
        raise ValueError(f"query must be one embedding, (1, D), not {tuple(query.shape)}")
    modality = config.modality or get_default_modality(database)
    is_cross_modal = query_modality != modality
    if not is_cross_modal and (config.rank_by == "match" or config.has_match_limit):
        raise ValueError(
            f"a match probability needs an image and a text, but query and target are both of modality "
            f"{query_modality}: search modality {OTHER[modality]}, or use rank_by csd or cosine without matching and "
            "coverage"
        )
    default = choose_rank_by(database, config).rank_by
    if is_cross_modal and config.rerank is None:  # the order that the model was trained for
        default = database.header.logit_parameters.default_rank_by
    config = replace(config, modality=modality, rank_by=config.rank_by or default)
    # confidence is defined on the nearest by CSD, however the results themselves are ranked
    nearest_config = replace(
        config,
        k=max(config.k, COMPARED),
        rank_by="csd",
        matching=None,
        coverage=None,
        rerank=None,
        candidates=None,
        only_included=False,
    )
    (nearest,) = search_gaussians(database, query, nearest_config)
    if config == replace(nearest_config, k=config.k):  # one search serves both
        hits = nearest.head(config.k)
    else:
        (hits,) = search_gaussians(database, query, config, null=null if config.only_included else None)
    fitting = _estimate_fitting(database, query, query_modality, config, null) if is_cross_modal else None
    confidence = compute_confidence(
        database, query[0], nearest, query_modality, None if fitting is None else fitting.items
    )
    confidence = replace(
        confidence,
        unknown_words=tuple(unknown_words),
        relative_match=None if fitting is None else fitting.relative_match,
        nothing_matches=config.matching is not None and not len(hits),
    )
    if confidence.match is not None and hits.match is not None:
        # the match probability is that of the result that is shown first
        confidence = replace(confidence, match=float(hits.match[0]) if len(hits) else None)
    messages = describe_match(hits, modality, config) if is_cross_modal else []
    return SearchResponse(name, query_modality, modality, hits, confidence, tuple(messages))


@dataclass(frozen=True, kw_only=True)
class _Fitting:
    """How many items fit a query, and how well they match it; see `SearchConfidence`."""

    items: PerplexityEstimate
    relative_match: float | None


def _estimate_fitting(
    database: Database, query: Gaussian, query_modality: Modality, config: SearchConfig, null: Gaussian | None
) -> _Fitting | None:
    """How many items of the other modality fit a query (1, D); None if no item passes the filters.

    The items are compared with a query and, if the query is a text, with "" (`null`); else "" is one more text for the
    image. Only of likelihood models exp(logit) is the ratio of densities that a relative match needs.
    """
    parameters = database.header.logit_parameters
    if null is None or parameters.gamma is None:
        estimates = estimate_perplexity(database, query, config)
        return _Fitting(items=estimates[0], relative_match=None) if estimates else None
    queries = Gaussian.cat([query, null]) if query_modality == "text" else query
    estimates = estimate_perplexity(database, queries, config)
    if not estimates:
        return None
    reference = (
        estimates[1].log_mean if query_modality == "text" else float(parameters.logits(query, null)[0])
    )
    log_mean = estimates[0].log_mean
    assert log_mean is not None
    assert reference is not None
    return _Fitting(items=estimates[0], relative_match=math.exp(min(log_mean - reference, 700.0)))


def show(response: SearchResponse) -> None:
    """Print the hits as a table, and the confidence below it.

    Args:
        response: What `search_with_confidence` returned.
    """
    from prolip.console import make_console, make_table, printable

    hits, scores = response.hits, _get_scores(response)
    texts = {"id": hits.column("id"), "caption": hits.column("caption")}
    if any(hits.locations):
        texts["path" if any(hits.column("path")) else "url"] = hits.locations
    title = (
        f"{printable(response.query)}: {len(hits)} {response.target_modality}{'' if len(hits) == 1 else 's'}"
    )
    table = make_table(title, ["", *texts], [*scores, "uncertainty"], caption=f"search: {hits.method}")
    numbers = [[f"{value:.4g}" for value in values] for values in (*scores.values(), hits.uncertainty)]
    cells = [[printable(text or "-") for text in column] for column in texts.values()]
    for rank, row in enumerate(zip(*cells, *numbers, strict=True), start=1):
        table.add_row(str(rank), *row)
    console = make_console()
    console.print(table if len(hits) else title)  # no headings without rows
    for line in [*response.match_messages, *response.confidence.describe()]:
        console.print(line)


def _get_scores(response: SearchResponse) -> dict[str, np.ndarray]:
    """Get the scores that are shown for the n hits, (n,) each, by name; `match` only between image and text."""
    hits = response.hits
    scores = {"csd": hits.csd, "cosine": hits.cosine}
    if hits.match is not None and response.is_cross_modal:
        scores["match"] = hits.match
    return scores if hits.inclusion is None else scores | {"inclusion": hits.inclusion}
