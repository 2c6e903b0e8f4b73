"""`prolip report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.cli import common


def page(
    run: Annotated[Positional[Path], arg(metavar="RUN")],
    out: Path | None = None,
    data: str | None = None,
    labelled: Path | None = None,
    hierarimgs: Path | None = None,
    compare: tuple[str, ...] = (),
    controls: int = 3,
    claims: Path | None = None,
    quick: int = 500,
    device: str | None = None,
) -> None:
    """One HTML page of a training run: curves, what is certain and what is not, hierarchies, zero-shot, robustness.

    Example: prolip report runs/miniature --compare clip=runs/clip

    What doesn't apply is left out. The page needs no other file and no network.

    Args:
        run: The folder that prolip train wrote.
        out: The page, or a folder for it. None: RUN/report.html.
        data: Pictures with captions to judge on. None: the run's held-out data, or what it was trained on. Of scenes
            all evaluation sets are drawn afresh, with captions as in training.
        labelled: Pictures with classes: a folder in the layout of the 38 tasks, or one with a folder for each class.
        hierarimgs: The folder that prolip data hierarimgs built.
        compare: Other models for the headline, as NAME=MODEL (a folder, a run, a hub id).
        controls: Untrained models of the same size beside it; what they can do shows nothing learned.
        claims: A table of claims to show: the table.json that reproduction writes.
        quick: Pictures of each set.
        device: cpu, cuda, ... None: a GPU if there is one.
    """
    from prolip.reports.page.build import build
    from prolip.reports.page.claims import read_claims

    others = [_named(word) for word in compare]
    written = build(
        run, out, data=data, labelled=labelled, hierarimgs=hierarimgs, compare=others, controls=controls,
        claims=None if claims is None else read_claims(claims), quick=quick, device=device,
        command=["prolip", *common.typed],
    )  # fmt: skip
    print(written.path)


def _named(word: str) -> tuple[str, str]:
    """NAME=MODEL; a model alone is called as its folder is."""
    name, sign, model = word.partition("=")
    return (name, model) if sign else (common.short_name(word), word)
