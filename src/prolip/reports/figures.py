"""How every figure looks, and how it is written. The only file that imports matplotlib."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from prolip import extras
from prolip.files import atomic_write

BLUE, ORANGE, GREEN, GRAY = "#3062a8", "#d9762b", "#3d8f63", "#8a8f98"
"""Colors that stay apart in print and for color-blind eyes."""

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRAY,
    "xtick.color": "#444",
    "ytick.color": "#444",
    "legend.frameon": False,
    "svg.hashsalt": "prolip",  # the same figure gives the same file
    "svg.fonttype": "none",  # text stays text
}


def make_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure in the house style, inches wide and high. Draws without a screen."""
    extras.import_extra("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_style() -> Any:
    """A context in which to draw: `with figures.figure_style(): ...`."""
    return extras.import_extra("matplotlib", "report").rc_context(STYLE)


def save_figure(figure: Any, out: Path) -> list[Path]:
    """Write `out`.png and `out`.svg, each whole or not at all. Returns the paths. An ending of `out` is dropped."""
    out = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    paths = []
    for ending, options in (("png", {"dpi": 144}), ("svg", {"metadata": {"Date": None}})):
        path = out.with_name(f"{out.name}.{ending}")
        draw = partial(figure.savefig, format=ending, **options)
        paths.append(atomic_write(path, draw))
    return paths
