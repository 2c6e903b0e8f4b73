"""The preprocessing that a foreign model says it wants, as our rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.preprocessing.images import Fit, PixelRules, Resampling

HALF = (0.5, 0.5, 0.5)
"""SigLIP's mean and standard deviation."""

SIGLIP_OPEN_CLIP = {"mean": HALF, "std": HALF, "resize_mode": "squash"}
"""open_clip's preprocess_cfg of SigLIP, for files that come without one."""


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
    """An image processor's config; `default` (what the model's class does) for what it doesn't say. The size is the
    tower's, and what we can't do exactly is refused."""
    names: dict[Any, Resampling] = {3: "bicubic", 2: "bilinear"}
    resample = values.get("resample", 3 if default.resampling == "bicubic" else 2)
    odd = {
        f"resample {resample!r}": resample not in names,
        "do_resize false": values.get("do_resize", True) is not True,
        "do_rescale false": values.get("do_rescale", True) is not True,
        "do_normalize false": values.get("do_normalize", True) is not True,
        f"rescale_factor {values.get('rescale_factor')!r}": abs(
            (values.get("rescale_factor") or 1 / 255) - 1 / 255
        )
        > 1e-6,
    }
    for what, is_odd in odd.items():
        if is_odd:
            raise ValueError(f"the image processor's {what} is not supported")
    return PixelRules(
        size=size,
        mean=tuple(values.get("image_mean") or default.mean),
        std=tuple(values.get("image_std") or default.std),
        fit=_transformers_fit(values, size, default.fit),
        resampling=names[resample],
    )


def _transformers_fit(values: Mapping[str, Any], size: int, default: Fit) -> Fit:
    """Shortest edge and centre crop, or both edges at once; each must end at the tower's size."""
    crop = values.get("do_center_crop", default == "crop")
    edges, cut = values.get("size", {}), values.get("crop_size", size)
    whole = [size, size]
    both = edges and isinstance(edges, Mapping) and [edges.get("height"), edges.get("width")] == whole
    short = not edges or edges == size or (isinstance(edges, Mapping) and edges.get("shortest_edge") == size)
    cut_whole = cut == size or (isinstance(cut, Mapping) and [cut.get("height"), cut.get("width")] == whole)
    if crop is True and short and cut_whole:
        return "crop"
    if both or (crop is False and not edges):
        return "squash"
    raise ValueError(
        f"the image processor's size {edges}, crop_size {cut}, do_center_crop {crop!r} don't give images of {size} "
        "pixels as we make them (shortest edge and centre crop, or both edges at once)"
    )


def _resampling(name: str) -> Resampling:
    known: dict[str, Resampling] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    if name not in known:
        raise ValueError(f"preprocess_cfg: interpolation {name!r} is not supported; we know {sorted(known)}")
    return known[name]
