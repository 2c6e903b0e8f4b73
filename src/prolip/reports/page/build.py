"""One self-contained HTML page of a training run: the story."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.checks import require_count
from prolip.extras import require
from prolip.files import write_whole
from prolip.model.prolip import ProLIP
from prolip.reports.page import (
    curves,
    gallery,
    hierarimgs,
    origin,
    robustness,
    traversal,
    uncertainty,
    view,
    zeroshot,
)
from prolip.reports.page.claims import section as claims_section
from prolip.reports.page.components import Header, Section
from prolip.reports.page.header import header
from prolip.reports.page.inputs import Material, find_material
from prolip.reports.page.render import render
from prolip.reports.page.results import Findings, Reading, examine
from prolip.reports.page.run import Run, read_run
from prolip.weights.load import load

NAME = "report.html"


@dataclass(frozen=True)
class Page:
    """Where it was written, and what stands at its top."""

    path: Path
    header: Header


def build(
    run: str | Path,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    labelled: str | Path | None = None,
    hierarimgs: str | Path | None = None,
    compare: Sequence[tuple[str, ProLIP | str | Path]] = (),
    controls: int = 3,
    claims: Sequence[Mapping[str, Any]] | None = None,
    quick: int = 500,
    device: str | None = None,
    command: Sequence[str] = (),
    progress: bool | None = None,
) -> Page:
    """Write the page of a run. What doesn't apply is left out.

    out:        the file, or a folder for report.html; None: the run's own folder.
    data:       pictures with captions. None: the run's held-out data, or what it was trained on. Of scenes all
                evaluation sets are drawn afresh, with captions as in training, into the user's cache.
    labelled:   pictures with classes: the layout of the 38 tasks, or a folder for each class.
    hierarimgs: the folder that `prolip data hierarimgs` built.
    compare:    other models by name, for the headline. controls: untrained models beside them.
    claims:     rows of the table of claims, by the names of `parts.Claim`.
    quick:      pictures of each set. command: what was typed, to be told on the page.
    """
    require_count(quick, "quick", most=1_000_000)
    for module in ("matplotlib", "jinja2"):  # before minutes of work
        require(module, "report")
    told = read_run(run, device)
    others = [
        (name, other if isinstance(other, ProLIP) else load(other, device=device).eval())
        for name, other in compare
    ]
    place = _place(told.folder if out is None else Path(out).expanduser())
    material = find_material(
        told.config, data=data, labelled=labelled, hierarimgs=hierarimgs, quick=quick, progress=progress
    )
    reading = Reading(quick=quick, bad_limit=told.config.data.bad_limit, progress=progress)
    found = examine(told.model, material, compare=others, controls=controls, reading=reading)
    made = [
        *_sections(told, material, found),
        *([] if claims is None else [claims_section(claims)]),
        origin.section(told, material, command=command, controls=controls, quick=quick),
    ]
    top = header(told, material, found)
    text = render(top, made)
    return Page(write_whole(place, lambda aside: aside.write_text(text, encoding="utf-8")), top)


def _place(out: Path) -> Path:
    """The file. Its folder is made now: after minutes of work is no time to learn that it can't be."""
    place = out / NAME if out.is_dir() else out
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"{place.parent} can't be a folder for the page: there is a file of that name"
        ) from None
    if not os.access(place.parent, os.W_OK):
        raise PermissionError(f"{place.parent} can't be written to; name another place for the page (--out)")
    return place


def _sections(run: Run, material: Material, found: Findings) -> Iterator[Section]:
    """Those that apply, in order."""
    if (training := curves.section(run)) is not None:
        yield training
    if found.pairs is not None and found.uncertainty is not None and material.pairs is not None:
        yield view.section(found.pairs, material.pairs)
        yield gallery.section(found.uncertainty, material.pairs)
        yield uncertainty.section(found.uncertainty, found.untrained)
    if found.hierarimgs is not None and material.hierarimgs is not None:
        yield hierarimgs.section(found.hierarimgs, material.hierarimgs)
    if found.walks:
        yield traversal.section(found.walks, found.hierarcaps)
    if found.zero_shot is not None and material.zero_shot is not None:
        yield zeroshot.section(
            found.zero_shot, material.zero_shot, found.prompts, material.prompts, found.untrained
        )
    if found.robustness is not None:
        yield robustness.section(found.robustness, found.untrained_robustness)
