"""Values into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from prolip import extras
from prolip.reports.page.components import Block, Header, Section


def render(header: Header, sections: Sequence[Section]) -> str:
    """The page. Whatever comes from data is escaped; only the drawings, which matplotlib wrote, are markup."""
    jinja2 = extras.require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["by_kind"] = by_kind
    text: str = environment.get_template("page.html").render(header=header, sections=sections)
    return text


def by_kind(blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Neighbours of one kind together: figures stand side by side."""
    return [(kind, list(run)) for kind, run in groupby(blocks, key=lambda block: block.kind)]
