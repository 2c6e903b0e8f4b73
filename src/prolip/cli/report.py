"""`prolip report ...`: the HTML page of a run or of results, and figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prolip.choices import SceneWorld
from prolip.cli import common
from prolip.cli.options import Json, print_written
from prolip.reports.page.config import ReportConfig


def page(
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")],
    config: ReportConfig,
    out: Path | None = None,
    compare: tuple[str, ...] = (),
    as_json: Json = False,
) -> None:
    """HTML page of a training run, whose model is evaluated, or of results that prolip evaluate wrote.

    Example: prolip report runs/miniature --compare clip=runs/clip

    Sections without data are omitted. The page is one file and needs no network.

    Args:
        folder: Folder that prolip train wrote, or one with results of prolip evaluate: then nothing is evaluated.
        out: The page, or a folder for it. None: FOLDER/report.html.
        compare: Other models for the headline numbers of a run, as NAME=MODEL (a folder, a run, a hub id).
    """
    from prolip.reports.page.build import build_report

    report_page = build_report(
        folder, out, config, compare=[_parse_named_model(word) for word in compare],
        command=["prolip", *common.command_line],
    )  # fmt: skip
    print_written([report_page.path], as_json)


def toy(out: Path = Path("toy-inclusion"), as_json: Json = False) -> None:
    """Figure of log inclusion, H, KL, DKL and containment for pairs of 1-D Gaussians.

    Example: prolip report toy --out toy-inclusion

    Args:
        out: File name without suffix, or an existing folder; .png and .svg are written.
    """
    from prolip.reports.toy import save_toy_figure

    print_written(save_toy_figure(_get_figure_path(out, "toy-inclusion")), as_json)


def scenes(
    out: Path = Path("scenes"), world: SceneWorld = "hard", seed: int = 0, as_json: Json = False
) -> None:
    """Sheets of scenes: with captions from general to specific, and behind veils; with the true ambiguity of each.

    Example: prolip report scenes --world simple --out scenes

    Args:
        out: File name without suffix, or an existing folder; .png and .svg are written, and -veils.png and .svg.
        world: simple: one or two objects, drawn cleanly; hard: up to three, in eight drawing styles; varied: simple
            with unequal shapes, colors and sizes; styled: simple in frequent, strong styles.
        seed: Seed of the scenes.
    """
    from prolip.reports.scenes import save_scene_sheet, save_veil_sheet

    path = _get_figure_path(out, "scenes")
    name = path.name.removesuffix(".png").removesuffix(".svg")
    veils = path.with_name(f"{name}-veils")
    print_written([*save_scene_sheet(path, world, seed), *save_veil_sheet(veils, world, seed)], as_json)


COMMANDS: dict[str, Callable[..., None]] = {"page": page, "toy": toy, "scenes": scenes}


def _parse_named_model(word: str) -> tuple[str, str]:
    """Split NAME=MODEL of --compare into (name, model). A model without a name is named after its folder."""
    name, sign, model = word.partition("=")
    return (name, model) if sign else (common.make_folder_name(word), word)


def _get_figure_path(out: Path, name: str) -> Path:
    """The path of a figure without its suffix: `out`, or, if `out` is a folder, the file `name` in it."""
    out = out.expanduser()
    return out / name if out.is_dir() else out
