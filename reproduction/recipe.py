"""Runs of the reproduction: the miniature recipe's variants and scales, and the fingerprint of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from prolip.checks import require_choice
from prolip.scenes.config import VERSION as SCENES_VERSION
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.run_folder import RESUME_KEYS
from reproduction.variants import UNTRAINED_VARIANTS, VARIANTS, get_variant

RECIPE, DEFAULT_WORLD = "miniature", "simple"
"""The recipe of all cells, and its world unless a variant names another."""
ADDED_SETTINGS: dict[str, Any] = {
    "isotropic": False,
    "init_log_var": None,
    "auxiliary_lr_multiplier": None,
    "likelihood": 0.0,
    "nll": 0.0,
    "text_crops": 0.0,
    "image_crops": 0.0,
    "image_masks": 0.0,
    "width_patience": None,
    "distillation": 0.0,
    "one_sided": 0.0,
    "lora_rank": None,
    "lora_alpha": None,
    "at_start": False,
    "reference": None,
    "max_reference_drop": 0.05,
}
"""Settings that the config did not have at first -> the value that computes what was computed without them. At this
value they don't enter fingerprints, so that older cells stay valid."""
SCALES = ("minutes", "hour", "night")
"""Budgets of a run, from the smallest."""


def load_recipe() -> recipes.Recipe:
    """Load the recipe of all cells, `RECIPE`."""
    return recipes.load_recipe(RECIPE)


def list_trained_variants() -> tuple[str, ...]:
    """Names of the variants that the recipe trains, in its order."""
    annotation, _ = load_recipe().parameters["variant"]  # a Literal of the names
    return tuple(map(str, get_args(annotation)))


def list_variants() -> tuple[str, ...]:
    """Names of all variants: those of the recipe, then those in other worlds and those without training."""
    trained = list_trained_variants()
    return (*trained, *(name for name, variant in VARIANTS.items() if variant.recipe in trained))


def make_run_config(variant: str, scale: str, seed: int, out: Path) -> TrainConfig:
    """Make the training config of a cell, with `out` as the folder of its run.

    A variant without training has the config of the variant whose model it uses.
    """
    require_choice(scale, SCALES, "scale")
    require_choice(variant, list_variants(), "variant")
    settings = get_variant(variant)
    parameters = {"variant": settings.recipe or variant, "scale": scale, "seed": seed, "out": out}
    if settings.world != DEFAULT_WORLD:
        parameters["level"] = settings.world
    if settings.veiled:
        parameters["veiled"] = settings.veiled
    return load_recipe().build_config(parameters)


def compute_fingerprint(config: TrainConfig, variant: str) -> str:
    """Compute the fingerprint of a run.

    Returns:
        16 hexadecimal digits, equal for runs that differ only in their seed or in what doesn't change the result, such
        as the output folder. Of a variant without training only the model's config enters.
    """
    settings = _select_relevant(config.to_dict())
    del settings["seed"]
    if variant in UNTRAINED_VARIANTS:
        settings = {"model": settings["model"]}
    text = json.dumps([variant, SCENES_VERSION, settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def compute_current_fingerprint(variant: str, scale: str) -> str | None:
    """The fingerprint that a new cell would have; None if the recipe has no such variant or scale."""
    if variant not in list_variants() or scale not in SCALES:
        return None
    return compute_fingerprint(make_run_config(variant, scale, 0, Path("anywhere")), variant)


def _select_relevant(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Select the settings that change what is computed: all but the output folder, display, workers and the like.

    prefix: path of nested settings, such as "data.".
    """
    return {
        name: _select_nested(value, f"{prefix}{name}.")
        for name, value in settings.items()
        if prefix + name not in RESUME_KEYS and ADDED_SETTINGS.get(name, ...) != value
    }


def _select_nested(value: Any, prefix: str) -> Any:
    """The relevant settings of nested settings, or of each in a sequence of them; other values as they are."""
    if isinstance(value, Mapping):
        return _select_relevant(value, prefix)
    if isinstance(value, tuple | list):
        return [_select_nested(entry, prefix) for entry in value]
    return value
