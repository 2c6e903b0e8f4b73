"""Everything that is measured of a model, as one dict of plain numbers: the content of a cell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prolip.embeddings.embedder import Embedder
from prolip.model.prolip import ProLIP
from prolip.progress import bar
from reproduction import filtering, masked, matching, retrieval, sets, truth
from reproduction.evaluation_sets import Ground, Told, tell

DIGITS = 6
"""Significant ones, in a cell."""

Part = Callable[[Embedder, Ground, Told], Any]
PARTS: dict[str, Part] = {
    "zero_shot": lambda embedder, ground, told: sets.zero_shot(embedder, ground),
    "retrieval": lambda embedder, ground, told: retrieval.measure(embedder, told),
    "truth": lambda embedder, ground, told: truth.measure(told),
    "matching": lambda embedder, ground, told: matching.measure(told),
    "masked": lambda embedder, ground, told: masked.measure(embedder, told),
    "filtering": lambda embedder, ground, told: filtering.measure(embedder, ground),
    "prompts": lambda embedder, ground, told: sets.prompt_rows(embedder, ground),
    "chains": lambda embedder, ground, told: sets.chains(embedder, ground),
    "segments": lambda embedder, ground, told: sets.segments(embedder, ground),
    "occlusion": lambda embedder, ground, told: sets.hidden(embedder, ground),
    "pgd": lambda embedder, ground, told: sets.attacked(embedder, ground),
}
"""By name; each file says what its numbers mean."""


def measure(model: ProLIP, ground: Ground, *, show: bool | None = None) -> dict[str, Any]:
    """All parts, on what `ground.prepare()` has written. None: the model can't have that number (a deterministic one).

    show: a bar; None: if stderr is a terminal.
    """
    model.eval()
    with tempfile.TemporaryDirectory() as kept, bar("measuring", len(PARTS), "parts", show) as advance:
        embedder = Embedder(model=model, cache=Path(kept), batch_size=250, progress=False)
        told = tell(embedder, ground)
        found: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
        for name, part in PARTS.items():
            found[name] = part(embedder, ground, told)
            advance(1)
    return rounded(found)  # type: ignore[no-any-return]


def rounded(value: Any) -> Any:
    """The same with floats of six significant digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
