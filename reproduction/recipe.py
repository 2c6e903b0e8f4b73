"""Which runs there are: the miniature recipe's variants and scales, and what makes two runs the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from prolip.checks import require_choice
from prolip.scenes.writer import VERSION as SCENES
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.run_folder import FREE
from reproduction.variants import HEADLINE, PSEUDO

RECIPE = "miniature"
SCALES = ("minutes", "hour", "night")
"""Budgets of a run, from the smallest."""


def the_recipe() -> recipes.Recipe:
    return recipes.load(RECIPE)


def trained_variants() -> tuple[str, ...]:
    """Those of the recipe, in its order."""
    kind, _ = the_recipe().choices["variant"]
    return tuple(map(str, get_args(kind)))


def all_variants() -> tuple[str, ...]:
    """Those that are trained, and those that nothing is trained for."""
    return (*trained_variants(), *PSEUDO)


def run_config(variant: str, scale: str, seed: int, out: Path) -> TrainConfig:
    """The run of a cell; of a cell without training, the headline's, whose model it takes."""
    require_choice(scale, SCALES, "scale")
    require_choice(variant, all_variants(), "variant")
    trained = HEADLINE if variant in PSEUDO else variant
    return the_recipe().config([f"variant={trained}", f"scale={scale}", f"seed={seed}", f"out={out}"])


def fingerprint(config: TrainConfig, variant: str) -> str:
    """16 hexadecimal digits: equal for runs that compute the same on the same scenes, whatever their seed. Of an
    untrained model and of costs only the model matters."""
    content = _essential(config.to_dict())
    del content["seed"]
    if variant in PSEUDO:
        content = {"model": content["model"]}
    text = json.dumps([variant, SCENES, content], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def current_fingerprint(variant: str, scale: str) -> str | None:
    """That of a cell as it would be made today; None if the recipe has no such variant or scale."""
    if variant not in all_variants() or scale not in SCALES:
        return None
    return fingerprint(run_config(variant, scale, 0, Path("anywhere")), variant)


def _essential(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Without the keys that don't change what is computed (where it is written, what is shown, workers, ...)."""
    return {
        name: _essential(value, f"{at}{name}.") if isinstance(value, Mapping) else value
        for name, value in values.items()
        if at + name not in FREE
    }
