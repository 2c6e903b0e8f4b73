"""Image preprocessing of foreign models as our config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.preprocessing.images import ImagePreprocessing, Interpolation, ResizeMode

HALF = (0.5, 0.5, 0.5)
"""SigLIP's mean and standard deviation."""

SIGLIP_OPEN_CLIP = {"mean": HALF, "std": HALF, "resize_mode": "squash"}
"""open_clip's preprocess_cfg of SigLIP, for files that come without one."""


def from_open_clip(values: Mapping[str, Any], size: int) -> ImagePreprocessing:
    """Our config of open_clip's preprocess_cfg.

    Args:
        values: preprocess_cfg; open_clip's defaults (OpenAI's constants, shortest edge) apply to absent keys.
        size: Side of the tower's images, in pixels.

    Returns:
        Our config.
    """
    modes: dict[str, ResizeMode] = {"shortest": "shortest", "squash": "squash"}
    mode = values.get("resize_mode", "shortest")
    if mode not in modes:
        raise ValueError(
            f"preprocess_cfg: resize_mode {mode!r} is not supported; supported are {sorted(modes)}"
        )
    default = ImagePreprocessing(size=size)
    return ImagePreprocessing(
        size=size,
        mean=tuple(values.get("mean") or default.mean),
        std=tuple(values.get("std") or default.std),
        resize_mode=modes[mode],
        interpolation=_parse_interpolation(values.get("interpolation", "bicubic")),
    )


def from_transformers(
    values: Mapping[str, Any], size: int, default: ImagePreprocessing
) -> ImagePreprocessing:
    """Our config of an image processor of transformers; what we can't do exactly is refused.

    Args:
        values: Config of the image processor.
        size: Side of the tower's images, in pixels.
        default: For absent keys: what the model's class does.

    Returns:
        Our config.
    """
    names: dict[Any, Interpolation] = {3: "bicubic", 2: "bilinear"}  # Pillow's constants
    resample = values.get("resample", 3 if default.interpolation == "bicubic" else 2)
    unsupported = {
        f"resample {resample!r}": resample not in names,
        "do_resize false": values.get("do_resize", True) is not True,
        "do_rescale false": values.get("do_rescale", True) is not True,
        "do_normalize false": values.get("do_normalize", True) is not True,
        f"rescale_factor {values.get('rescale_factor')!r}": abs(
            (values.get("rescale_factor") or 1 / 255) - 1 / 255
        )
        > 1e-6,
    }
    for setting, is_unsupported in unsupported.items():
        if is_unsupported:
            raise ValueError(f"the image processor's {setting} is not supported")
    return ImagePreprocessing(
        size=size,
        mean=tuple(values.get("image_mean") or default.mean),
        std=tuple(values.get("image_std") or default.std),
        resize_mode=_get_resize_mode(values, size, default.resize_mode),
        interpolation=names[resample],
    )


def _get_resize_mode(values: Mapping[str, Any], size: int, default: ResizeMode) -> ResizeMode:
    """The resize mode of an image processor: shortest edge and center crop, or "squash", both edges at once.

    Either must give images of `size` pixels, the tower's; else ValueError. A size or crop_size may be a number or a
    mapping. `default` decides whether an image processor without do_center_crop crops.
    """
    crop = values.get("do_center_crop", default == "shortest")
    edges, crop_edges = values.get("size", {}), values.get("crop_size", size)
    square = [size, size]
    resizes_both = (
        edges and isinstance(edges, Mapping) and [edges.get("height"), edges.get("width")] == square
    )
    resizes_shortest = (
        not edges or edges == size or (isinstance(edges, Mapping) and edges.get("shortest_edge") == size)
    )
    crops_square = crop_edges == size or (
        isinstance(crop_edges, Mapping) and [crop_edges.get("height"), crop_edges.get("width")] == square
    )
    if crop is True and resizes_shortest and crops_square:
        return "shortest"
    if (resizes_both and (crop is not True or crops_square)) or (crop is False and not edges):
        return "squash"
    raise ValueError(
        f"the image processor's size {edges}, crop_size {crop_edges}, do_center_crop {crop!r} don't give images "
        f"of {size} pixels as we make them (shortest edge and center crop, or both edges at once)"
    )


def _parse_interpolation(name: str) -> Interpolation:
    """Our name of open_clip's interpolation; raises ValueError for any other than bicubic and bilinear."""
    known: dict[str, Interpolation] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    if name not in known:
        raise ValueError(
            f"preprocess_cfg: interpolation {name!r} is not supported; supported are {sorted(known)}"
        )
    return known[name]
