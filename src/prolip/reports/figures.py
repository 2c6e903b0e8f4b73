"""Style and output of all figures. The only module that imports matplotlib."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

from prolip import extras
from prolip.files import atomic_write

BLUE, ORANGE, GREEN, GRAY, PURPLE = "#3062a8", "#d9762b", "#3d8f63", "#8a8f98", "#8d5ea8"
"""Colors that are distinct in print and to color-blind readers."""
TICKS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    tuple(1 + 0.2 * k for k in range(45)),
)
"""Leading digits of the ticks of a logarithmic axis, from few to many."""
MAX_TICKS = 6
"""More labels would overlap."""

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
    "svg.hashsalt": "prolip",  # makes the output deterministic
    "svg.fonttype": "none",  # text stays text
}


def make_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure that draws without a screen (extra "report").

    Args:
        width: Inches.
        height: Inches.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    extras.import_extra("matplotlib", "report")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_style() -> Any:
    """A context manager that sets matplotlib's rcParams to `STYLE` and restores them at its end.

    Every figure is drawn and saved inside it: `with figures.figure_style(): ...`.
    """
    return extras.import_extra("matplotlib", "report").rc_context(STYLE)


def save_figure(figure: Any, out: Path) -> list[Path]:
    """Write a figure as PNG and as SVG, each atomically.

    Args:
        figure: A figure that `make_figure` made.
        out: Path; a suffix .png or .svg is dropped.

    Returns:
        Paths of the PNG and the SVG.
    """
    out = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    paths = []
    for suffix, options in (("png", {"dpi": 144}), ("svg", {"metadata": {"Date": None}})):
        path = out.with_name(f"{out.name}.{suffix}")
        draw = partial(figure.savefig, format=suffix, **options)
        paths.append(atomic_write(path, draw))
    return paths


def set_share_limits(axes: Any, *, horizontal: bool = False, top: float = 1.0) -> None:
    """End an axis of shares at 0 and at its largest value; markers at the ends are drawn whole.

    Args:
        axes: Matplotlib axes, already drawn.
        horizontal: The horizontal axis, else the vertical one.
        top: The largest value: 1, or 100 for percent.
    """
    (axes.set_xlim if horizontal else axes.set_ylim)(0.0, top)
    for artist in (*axes.lines, *axes.collections):
        artist.set_clip_on(False)


def choose_log_ticks(low: float, high: float, max_ticks: int = MAX_TICKS) -> list[float]:
    """Choose the ticks of a logarithmic axis.

    The first of `TICKS` that gives at least three ticks is used; of too many ticks, every n-th is kept. An axis so
    short that none does looks like a linear one, and gets its ticks.

    Args:
        low: Smallest value of the axis, above 0.
        high: Largest value.
        max_ticks: Largest number of ticks.

    Returns:
        Values from low to high, ascending.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in TICKS:
        ticks = [
            digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high
        ]
        if len(ticks) >= 3:
            break
    else:
        from matplotlib.ticker import MaxNLocator

        ticks = [
            float(tick) for tick in MaxNLocator(max_ticks - 1).tick_values(low, high) if low <= tick <= high
        ]
    return ticks[:: math.ceil(len(ticks) / max_ticks)] if len(ticks) > max_ticks else ticks
