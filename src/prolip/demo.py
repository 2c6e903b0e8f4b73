"""Demo: train a small ProLIP on scenes, compare it with a longer-trained one, write a report."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from prolip.configs import takes_config
from prolip.console import make_console, make_table, print_tables
from prolip.demo_config import DemoConfig
from prolip.demo_photos import can_show_photos, make_photo_tables
from prolip.reports.page.build import REPORT_FILE, ReportPage, build_report
from prolip.reports.page.config import ReportConfig
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.run_folder import MODEL, compare_configs, is_run, move_aside, read_config
from prolip.training.trainer import train

LONGER_TRAINED = "scenes-tiny"
"""The model to compare with: the same recipe with six times as many samples. It is part of the package."""
VEILED_FRACTION = 0.5
"""Fraction of the images behind veils in the last stage, so that image uncertainty has something to learn."""


@takes_config(DemoConfig)
def run_demo(out: str | Path, config: DemoConfig) -> Path:
    """Train a small model, evaluate it and write its report.

    If `out` has the report of an earlier demo with the same settings, and the user agrees or can't be asked, nothing is
    done and its path is returned. A stopped training is resumed; a run with other settings is moved aside.

    Args:
        out: Folder for the run (scenes-demo) and report.html.
        config: How to train and evaluate; or its fields as keywords.

    Returns:
        The path of the report.

    Raises:
        ValueError: A field of the config is out of range.
        KeyboardInterrupt: Training was stopped; the same call resumes it.
    """
    console, folder, overwrite = make_console(), Path(out), config.overwrite
    folder.mkdir(parents=True, exist_ok=True)  # fail now, not after the training
    training = recipes.load_recipe("miniature").build_config(
        {"variant": "likelihood", "veiled": VEILED_FRACTION, "samples": config.samples, "seed": config.seed,
         "out": folder / "scenes-demo"}
    )  # fmt: skip
    is_finished = _is_same_run(training) and (Path(training.out) / MODEL).is_dir()
    if is_finished and not overwrite and (folder / REPORT_FILE).is_file():
        if _ask_to_show_existing(console, folder):
            return _print_path(console, folder / REPORT_FILE)
        overwrite = True
    if overwrite or not is_finished:
        _train_or_resume(console, training, overwrite)
    console.print("Evaluating it, an untrained model and one that was trained for longer ...")
    page = build_report(
        training.out,
        folder / REPORT_FILE,
        ReportConfig(claims=config.claims, limit=config.limit),
        compare=[(LONGER_TRAINED, LONGER_TRAINED)],
        command=["make", "demo"],
    )
    _print_headline(page)
    if can_show_photos():
        print_tables(make_photo_tables())
    return _print_path(console, page.path)


def _is_same_run(config: TrainConfig) -> bool:
    """Whether the folder `config.out` holds a run with this config, finished or not."""
    folder = Path(config.out)
    return is_run(folder) and not compare_configs(read_config(folder).to_dict(), config.to_dict())


def _ask_to_show_existing(console: Console, out: Path) -> bool:
    """Ask the user whether to show the existing demo; True without asking if there is no terminal."""
    if not (sys.stdin.isatty() and console.is_terminal):
        return True
    answer = console.input(f"{out} holds an earlier demo. Show it again? [Y/n] ", markup=False)
    return not answer.strip().lower().startswith("n")


def _train_or_resume(console: Console, config: TrainConfig, overwrite: bool) -> None:
    """Train the model, or resume its training. A run with another config, or any with `overwrite`, is moved aside.

    Raises KeyboardInterrupt if a signal stopped the training before the final model was written.
    """
    folder = Path(config.out)
    if is_run(folder) and (overwrite or not _is_same_run(config)):
        move_aside(folder)
    console.print(
        f"Training a model with 0.28M parameters on {config.samples:,} scenes, generated on the fly. "
        "Ctrl-C stops it; the same command resumes it."
    )
    train(config, resume=True)
    if not (folder / MODEL).is_dir():  # training was stopped by a signal and saved a checkpoint
        raise KeyboardInterrupt


def _print_headline(page: ReportPage) -> None:
    """Print a table of the page's headline numbers: a row per metric, a column per model."""
    tiles = page.header.tiles
    other_models = [name for name, _ in tiles[0].comparisons] if tiles else []
    rows = [
        (f"{tile.label}: {tile.description}", tile.value, *(value for _, value in tile.comparisons))
        for tile in tiles
    ]
    print_tables([make_table("Results on unseen scenes", ["metric"], ["this model", *other_models], rows)])


def _print_path(console: Console, path: Path) -> Path:
    """Print where the report is; returns the path."""
    console.print(f"Report, to open in a browser: {path}", soft_wrap=True)
    return path
