"""The tab Search: a text, an image, or an item of the database against the database."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.app.inputs import InputError, NamedImage, check_text
from prolip.app.workspace import ModelWorkspace, get_label
from prolip.choices import Modality
from prolip.gaussian import Gaussian
from prolip.retrieval.config import SearchConfig
from prolip.retrieval.response import SearchResponse, search_with_confidence

MAX_RESULTS = 60


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What to search for: one of text, image and row."""

    text: str = ""
    """A text."""
    image: NamedImage | None = None
    """An image."""
    row: int | None = None
    """Row of the database: its image or text is the query."""
    modality: Modality = "image"
    """Modality of the results."""
    k: int = 12
    """Number of results."""
    matching: float | None = None
    """Show only items that match with at least this probability; None: no limit."""
    max_uncertainty: float | None = None
    """Leave out items above this quantile of the uncertainty; None: no limit."""


def search(workspace: ModelWorkspace, request: SearchRequest) -> SearchResponse:
    """Search the database of a workspace.

    Args:
        workspace: The model and its database.
        request: The query, and which results to show.

    Returns:
        The results and their confidence.

    Raises:
        InputError: There is no query or no database, or a number is out of range.
        ValueError: The database can't do what the request asks for.
    """
    database = workspace.require_database().refreshed()
    if not 1 <= request.k <= MAX_RESULTS:
        raise InputError(f"The number of results must be from 1 to {MAX_RESULTS}.")
    name, modality, query, unknown_words = _embed_query(workspace, request)
    is_cross_modal = modality != request.modality
    config = SearchConfig(
        k=request.k,
        modality=request.modality,
        matching=request.matching if is_cross_modal else None,
        max_uncertainty=request.max_uncertainty,
    )
    return search_with_confidence(
        database, name, query, modality, config, null=workspace.null, unknown_words=unknown_words
    )


def _embed_query(
    workspace: ModelWorkspace, request: SearchRequest
) -> tuple[str, Modality, Gaussian, list[str]]:
    """Embed the query of a request: its name, its modality, (1, D), and its words that the model never met."""
    text, image = request.text.strip(), request.image
    if request.row is not None:
        item = workspace.get_item(request.row)
        if item["modality"] == "text":
            text, image = item["caption"] or "", None
        else:
            found = workspace.read_image(item)
            if found is None:
                raise InputError("The image of this result can't be read, so it can't be searched for.")
            image = NamedImage(get_label(item), found)
    if image is not None:
        return image.name, "image", workspace.embed_images([image.image]), []
    if not text:
        raise InputError("Type a text, or drop in an image.")
    check_text(text, "text")
    return text, "text", workspace.embed_texts([text]), workspace.find_unknown_words([text])
