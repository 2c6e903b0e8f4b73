"""The result of Search as HTML: a grid whose cards can be clicked, and what is known of their confidence."""

from __future__ import annotations

from typing import Any

from prolip.app.views import markup
from prolip.app.views.pictures import show_picture
from prolip.app.workspace import ModelWorkspace, get_label
from prolip.retrieval.response import SearchResponse


def show_response(workspace: ModelWorkspace, response: SearchResponse) -> str:
    """Show the results of a search.

    Args:
        workspace: Whose database was searched.
        response: The results.

    Returns:
        HTML.
    """
    lines = response.confidence.describe()
    doubts = lines[: response.confidence.num_doubts]
    warnings = "".join(markup.make_message(_capitalize(line), "warning") for line in doubts)
    facts = markup.make_lines(
        [_capitalize(line) for line in [*lines[len(doubts) :], *response.match_messages]]
    )
    plural = "" if len(response.hits) == 1 else "s"
    heading = f"{len(response.hits)} {response.target_modality}{plural} for {markup.escape(response.query)}"
    explanation = (
        "Best first. <b>match</b>: probability that it belongs to the query. <b>uncertainty</b>: how much it leaves "
        "open. Click one to search from it."
    )
    cards = [_make_card(workspace, row, response) for row in response.hits.to_dicts()]
    grid = markup.make_grid(cards) if cards else markup.make_message("No item passes.")
    return (
        f'<div class="pl-messages">{warnings}</div>{facts}{markup.make_section(heading, explanation, grid)}'
    )


def _capitalize(sentence: str) -> str:
    """A sentence that begins with a capital."""
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _make_card(workspace: ModelWorkspace, row: dict[str, Any], response: SearchResponse) -> str:
    """The card of one result: its picture or text, its match probability and its uncertainty."""
    is_image = row["modality"] == "image"
    title = markup.escape(get_label(row)) if is_image else markup.escape(row["caption"] or row["id"])
    lines = [title]
    if response.is_cross_modal and row.get("match") is not None:
        lines.append(f'match <b class="pl-number">{markup.format_percent(row["match"])}</b>')
    else:
        lines.append(f'cosine <b class="pl-number">{markup.format_value(row["cosine"])}</b>')
    lines.append(f'uncertainty <b class="pl-number">{markup.format_value(row["uncertainty"])}</b>')
    picture = (
        show_picture(workspace, row["origin"], row["path"], row["index"], get_label(row)) if is_image else ""
    )
    return markup.make_card(picture, lines, row["row"], "Search from this")
