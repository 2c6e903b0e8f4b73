"""Runs of the reproduction: the miniature recipe's variants and scales, and the fingerprint of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from prolip.checks import require_choice
from prolip.scenes.writer import VERSION as SCENES_VERSION
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.run_folder import RESUME_KEYS
from reproduction.variants import HEADLINE, UNTRAINED_VARIANTS

RECIPE = "miniature"
SCALES = ("minutes", "hour", "night")
"""Budgets of a run, from the smallest."""


def load_recipe() -> recipes.Recipe:
    """Load the miniature recipe."""
    return recipes.load_recipe(RECIPE)


def list_trained_variants() -> tuple[str, ...]:
    """Variants of the recipe, in its order."""
    kind, _ = load_recipe().parameters["variant"]
    return tuple(map(str, get_args(kind)))


def list_variants() -> tuple[str, ...]:
    """All variants, with and without training."""
    return (*list_trained_variants(), *UNTRAINED_VARIANTS)


def make_run_config(variant: str, scale: str, seed: int, out: Path) -> TrainConfig:
    """Make the training config of a cell; of a variant without training, that of the headline, whose model it uses."""
    require_choice(scale, SCALES, "scale")
    require_choice(variant, list_variants(), "variant")
    trained = HEADLINE if variant in UNTRAINED_VARIANTS else variant
    return load_recipe().build_config([f"variant={trained}", f"scale={scale}", f"seed={seed}", f"out={out}"])


def compute_fingerprint(config: TrainConfig, variant: str) -> str:
    """Compute the fingerprint of a run.

    Returns:
        16 hexadecimal digits: equal for runs that compute the same on the same scenes, whatever their seed. Of variants
        without training only the model matters.
    """
    content = _select_relevant(config.to_dict())
    del content["seed"]
    if variant in UNTRAINED_VARIANTS:
        content = {"model": content["model"]}
    text = json.dumps([variant, SCENES_VERSION, content], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def compute_current_fingerprint(variant: str, scale: str) -> str | None:
    """The fingerprint of a cell of the current recipe; None if there is no such variant or scale."""
    if variant not in list_variants() or scale not in SCALES:
        return None
    return compute_fingerprint(make_run_config(variant, scale, 0, Path("anywhere")), variant)


def _select_relevant(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """The config without the keys that don't change what is computed (output folder, display, workers, ...)."""
    return {
        name: _select_relevant(value, f"{at}{name}.") if isinstance(value, Mapping) else value
        for name, value in values.items()
        if at + name not in RESUME_KEYS
    }
