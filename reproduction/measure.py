"""All measurements of a model as one dict of plain numbers: the content of a cell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prolip.embeddings.embedder import Embedder
from prolip.model.prolip import ProLIP
from prolip.progress import progress_bar
from reproduction import (
    ambiguity,
    benchmark_sets,
    filtering,
    masked,
    match_probability,
    matching,
    retrieval,
    veils,
)
from reproduction.evaluation_data import EmbeddedScenes, EvaluationData, embed_scenes

DIGITS = 6
"""Significant digits of the numbers in a cell."""

Measure = Callable[[Embedder, EvaluationData, EmbeddedScenes], Any]
MEASURES: dict[str, Measure] = {
    "zero_shot": lambda embedder, data, scenes: benchmark_sets.evaluate_zero_shot(embedder, data),
    "retrieval": lambda embedder, data, scenes: retrieval.measure_retrieval(embedder, scenes),
    "match": lambda embedder, data, scenes: match_probability.measure_match(embedder, scenes),
    "ambiguity": lambda embedder, data, scenes: ambiguity.measure_ambiguity(scenes),
    "matching": lambda embedder, data, scenes: matching.measure_matching(scenes),
    "veils": lambda embedder, data, scenes: veils.measure_veils(embedder, data),
    "masked": lambda embedder, data, scenes: masked.measure_masked_inputs(embedder, scenes),
    "filtering": lambda embedder, data, scenes: filtering.measure_filtering(embedder, data),
    "prompts": lambda embedder, data, scenes: benchmark_sets.evaluate_prompts(embedder, data),
    "hierarcaps": lambda embedder, data, scenes: benchmark_sets.evaluate_hierarcaps(embedder, data),
    "hierarimgs": lambda embedder, data, scenes: benchmark_sets.evaluate_hierarimgs(embedder, data),
    "occlusion": lambda embedder, data, scenes: benchmark_sets.evaluate_occlusion(embedder, data),
    "pgd": lambda embedder, data, scenes: benchmark_sets.evaluate_pgd(embedder, data),
}
"""By name in a cell, the function that measures its numbers and documents them."""


def measure_model(model: ProLIP, data: EvaluationData, *, show: bool | None = None) -> dict[str, Any]:
    """Measure a model on evaluation data; sets it to eval mode.

    Args:
        model: Model of any variant.
        data: Written by `EvaluationData.prepare`.
        show: Show a progress bar; None: if stderr is a terminal.

    Returns:
        parameters (their number), and by name the result of each of MEASURES, floats rounded by `round_floats`; None
        where a deterministic model has no such number.
    """
    model.eval()
    with (
        tempfile.TemporaryDirectory() as cache,
        progress_bar("measuring", len(MEASURES), "measures", show) as advance,
    ):
        embedder = Embedder(model=model, cache=Path(cache), batch_size=250, progress=False)
        scenes = embed_scenes(embedder, data)
        numbers: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
        for name, measure in MEASURES.items():
            numbers[name] = measure(embedder, data, scenes)
            advance(1)
    return round_floats(numbers)  # type: ignore[no-any-return]


def round_floats(value: Any) -> Any:
    """A copy of nested dicts and lists with floats rounded to DIGITS significant digits; other values are unchanged."""
    if isinstance(value, dict):
        return {name: round_floats(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [round_floats(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
