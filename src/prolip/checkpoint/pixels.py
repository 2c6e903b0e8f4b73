"""The preprocessing that a foreign model says it wants, as our rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from prolip.inputs.images import PixelRules

HALF = (0.5, 0.5, 0.5)
"""SigLIP's mean and standard deviation."""

SIGLIP_OPEN_CLIP = {"mean": HALF, "std": HALF, "resize_mode": "squash"}
"""open_clip's preprocess_cfg of SigLIP, for files that come without one."""

Fit = Literal["crop", "squash"]
Resampling = Literal["bicubic", "bilinear"]


def from_open_clip(values: Mapping[str, Any], size: int) -> PixelRules:
    """open_clip's preprocess_cfg; what it doesn't say is open_clip's default (OpenAI's constants, shortest edge)."""
    fits: dict[str, Fit] = {"shortest": "crop", "squash": "squash"}
    mode = values.get("resize_mode", "shortest")
    if mode not in fits:
        raise ValueError(f"preprocess_cfg: resize_mode {mode!r} is not supported; we know {sorted(fits)}")
    default = PixelRules(size=size)
    return PixelRules(
        size=size,
        mean=tuple(values.get("mean") or default.mean),
        std=tuple(values.get("std") or default.std),
        fit=fits[mode],
        resampling=_resampling(values.get("interpolation", "bicubic")),
    )


def from_transformers(values: Mapping[str, Any], size: int, default: PixelRules) -> PixelRules:
    """preprocessor_config.json; `default` where there is none. The size is the tower's."""
    if not values:
        return default
    crop = bool(values.get("do_center_crop", default.fit == "crop" and "crop_size" in values))
    names: dict[Any, Resampling] = {3: "bicubic", 2: "bilinear"}
    resample = values.get("resample", 3)
    if resample not in names:
        raise ValueError(f"preprocessor_config.json: resample {resample!r} is not supported; we know 2 and 3")
    return PixelRules(
        size=size,
        mean=tuple(values.get("image_mean") or default.mean),
        std=tuple(values.get("image_std") or default.std),
        fit="crop" if crop else "squash",
        resampling=names[resample],
    )


def _resampling(name: str) -> Resampling:
    known: dict[str, Resampling] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    if name not in known:
        raise ValueError(f"preprocess_cfg: interpolation {name!r} is not supported; we know {sorted(known)}")
    return known[name]
