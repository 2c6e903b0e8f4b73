"""`prolip demo`: train a small ProLIP on scenes, look at what it learned, beside one that was trained for longer."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prolip.checks import require_count
from prolip.reports.page.build import NAME, Page, build
from prolip.reports.page.claims import read_claims
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.run_folder import MODEL, differences, is_run, put_aside, read_config
from prolip.training.trainer import train

SAMPLES = 160_000
"""Some four minutes on two idle cores."""
LONGER = "scenes-tiny"
"""The model to compare with: the same recipe, nine times as long. It comes with the package."""


def run(
    out: Path,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    anew: bool = False,
    quick: int = 500,
    claims: Path | None = None,
) -> Path:
    """Train, evaluate, write `out`/report.html; its path. What an earlier demo left is used again, if the user likes.

    anew: don't ask, begin again. quick: pictures of each evaluation set. claims: a table.json of reproduction.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and below 2^63, not {seed}")
    require_count(samples, "samples", most=2**40)
    console = Console()
    out.mkdir(parents=True, exist_ok=True)  # now, not after the work
    words = [f"samples={samples}", f"seed={seed}", f"out={out / 'scenes-demo'}"]
    config = recipes.load("miniature").config(words)
    finished = _is_same(config) and (Path(config.out) / MODEL).is_dir()
    if finished and not anew and (out / NAME).is_file():
        if _wants_old(console, out):
            return _point_to(console, out / NAME)
        anew = True
    if anew or not finished:
        _train(console, config, anew)
    console.print("Evaluating it, beside an untrained model and one that was trained for longer ...")
    page = build(
        config.out,
        out / NAME,
        compare=[(LONGER, LONGER)],
        claims=None if claims is None else read_claims(claims),
        quick=quick,
        command=["make", "demo"],
    )
    console.print(_table(page))
    return _point_to(console, page.path)


def _is_same(config: TrainConfig) -> bool:
    """What lies in the folder is this run, perhaps not at its end."""
    folder = Path(config.out)
    return is_run(folder) and not differences(read_config(folder).to_dict(), config.to_dict())


def _wants_old(console: Console, out: Path) -> bool:
    """Where nobody can be asked, yes."""
    if not (sys.stdin.isatty() and console.is_terminal):
        return True
    answer = console.input(f"{out} holds a demo that was made before. Look at it again? \\[Y/n] ")
    return not answer.strip().lower().startswith("n")


def _train(console: Console, config: TrainConfig, anew: bool) -> None:
    folder = Path(config.out)
    if is_run(folder) and (anew or not _is_same(config)):
        put_aside(folder)
    console.print(
        f"Training a model of 0.28M parameters on {config.samples:,} scenes that are drawn as they are needed. "
        "Ctrl-C stops it; the same command goes on."
    )
    train(config, resume=True)
    if not (folder / MODEL).is_dir():  # it was asked to stop, and saved its state
        raise KeyboardInterrupt


def _table(page: Page) -> Table:
    table = Table(title="What it learned, on scenes that it has not seen", title_justify="left")
    table.add_column("")
    table.add_column("this model", justify="right", style="bold")
    others = [name for name, _ in page.header.tiles[0].beside] if page.header.tiles else []
    for name in others:
        table.add_column(name, justify="right")
    for tile in page.header.tiles:
        table.add_row(f"{tile.name}: {tile.meaning}", tile.value, *(value for _, value in tile.beside))
    return table


def _point_to(console: Console, path: Path) -> Path:
    console.print(f"The report, to open in a browser: {path}", soft_wrap=True)
    return path
