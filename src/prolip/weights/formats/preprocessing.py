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
    names: dict[Any, Interpolation] = {3: "bicubic", 2: "bilinear"}
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
    """Shortest edge and center crop, or both edges at once; each must end at the tower's size."""
    crop = values.get("do_center_crop", default == "shortest")
    edges, cut = values.get("size", {}), values.get("crop_size", size)
    square = [size, size]
    both = edges and isinstance(edges, Mapping) and [edges.get("height"), edges.get("width")] == square
    short = not edges or edges == size or (isinstance(edges, Mapping) and edges.get("shortest_edge") == size)
    cut_square = cut == size or (isinstance(cut, Mapping) and [cut.get("height"), cut.get("width")] == square)
    if crop is True and short and cut_square:
        return "shortest"
    if both or (crop is False and not edges):
        return "squash"
    raise ValueError(
        f"the image processor's size {edges}, crop_size {cut}, do_center_crop {crop!r} don't give images of {size} "
        "pixels as we make them (shortest edge and center crop, or both edges at once)"
    )


def _parse_interpolation(name: str) -> Interpolation:
    known: dict[str, Interpolation] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    if name not in known:
        raise ValueError(
            f"preprocess_cfg: interpolation {name!r} is not supported; supported are {sorted(known)}"
        )
    return known[name]
