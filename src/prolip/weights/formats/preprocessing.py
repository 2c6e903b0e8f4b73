"""Image preprocessing of foreign models as our config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prolip.preprocessing.images import ImagePreprocessing, Interpolation, ResizeMode

HALF = (0.5, 0.5, 0.5)
"""SigLIP's mean and standard deviation."""

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's pixels."""
SIZE_KEYS = ("size", "crop_size", "do_center_crop", "crop_pct")
SIGLIP_OPEN_CLIP = {"mean": HALF, "std": HALF, "resize_mode": "squash"}
"""open_clip's preprocess_cfg of SigLIP, for files that come without one."""


def from_open_clip(preprocess_cfg: Mapping[str, Any], size: int) -> ImagePreprocessing:
    """Our config of open_clip's image preprocessing.

    Args:
        preprocess_cfg: open_clip's settings; its defaults (OpenAI's mean and std, shortest edge) apply to absent keys.
        size: Side of the tower's images, in pixels.

    Returns:
        Our config.

    Raises:
        ValueError: Its resize_mode or interpolation is not supported.
    """
    modes: dict[str, ResizeMode] = {"shortest": "shortest", "squash": "squash"}
    mode = preprocess_cfg.get("resize_mode", "shortest")
    if mode not in modes:
        raise ValueError(
            f"preprocess_cfg: resize_mode {mode!r} is not supported; supported are {sorted(modes)}"
        )
    default = ImagePreprocessing(size=size)
    return ImagePreprocessing(
        size=size,
        mean=tuple(preprocess_cfg.get("mean") or default.mean),
        std=tuple(preprocess_cfg.get("std") or default.std),
        resize_mode=modes[mode],
        interpolation=_parse_interpolation(preprocess_cfg.get("interpolation", "bicubic")),
    )


def from_transformers(
    processor: Mapping[str, Any], size: int, default: ImagePreprocessing
) -> ImagePreprocessing:
    """Our config of an image processor of transformers.

    Args:
        processor: Config of the image processor.
        size: Side of the tower's images, in pixels.
        default: Settings for absent keys: those of the image processor's class in transformers.

    Returns:
        Our config.

    Raises:
        ValueError: The image processor does something that our preprocessing can't do exactly.
    """
    interpolations: dict[Any, Interpolation] = {3: "bicubic", 2: "bilinear"}  # by Pillow's constants
    resample = processor.get("resample", 3 if default.interpolation == "bicubic" else 2)
    unsupported = {
        f"resample {resample!r}": resample not in interpolations,
        "do_resize false": processor.get("do_resize", True) is not True,
        "do_rescale false": processor.get("do_rescale", True) is not True,
        "do_normalize false": processor.get("do_normalize", True) is not True,
        f"rescale_factor {processor.get('rescale_factor')!r}": abs(
            (processor.get("rescale_factor") or 1 / 255) - 1 / 255
        )
        > 1e-6,
    }
    for setting, is_unsupported in unsupported.items():
        if is_unsupported:
            raise ValueError(f"the image processor's {setting} is not supported")
    return ImagePreprocessing(
        size=size,
        mean=tuple(processor.get("image_mean") or default.mean),
        std=tuple(processor.get("image_std") or default.std),
        resize_mode=_get_resize_mode(processor, size, default.resize_mode),
        interpolation=interpolations[resample],
    )


def approximate_transformers(processor: Mapping[str, Any], size: int) -> ImagePreprocessing:
    """Our config of the image processor of an encoder whose features only have to be the same every time.

    Some processors resize the shortest edge to 256 pixels and cut out 224 x 224 of them (DINOv2, ResNet). The shortest
    edge is resized to 224 then, so that nothing but the borders beyond a square is cut off.

    Args:
        processor: Config of the image processor; {}: both edges are resized, ImageNet's mean and deviation.
        size: Side of the images, in pixels.

    Returns:
        Our config.

    Raises:
        ValueError: It doesn't scale or normalize pixels.
    """
    edges = processor.get("size")
    is_shortest = isinstance(edges, int) or (isinstance(edges, Mapping) and "shortest_edge" in edges)
    default = ImagePreprocessing(
        size=size, mean=IMAGENET[0], std=IMAGENET[1], resize_mode="shortest" if is_shortest else "squash"
    )
    try:
        return from_transformers(processor, size, default)
    except ValueError:
        content = {name: value for name, value in processor.items() if name not in SIZE_KEYS}
        return from_transformers({**content, "do_center_crop": is_shortest}, size, default)


def _get_resize_mode(processor: Mapping[str, Any], size: int, default: ResizeMode) -> ResizeMode:
    """The resize mode of an image processor: "shortest" (edge, then center crop) or "squash" (both edges at once).

    Raises ValueError unless one of the two gives images of `size` pixels, the tower's. The processor's size and
    crop_size may be a number or a mapping. `default` decides whether a processor without do_center_crop crops.
    """
    crop = processor.get("do_center_crop", default == "shortest")
    edges, crop_edges = processor.get("size", {}), processor.get("crop_size", size)
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
    # a crop to the size that the image has already changes nothing; without any size, the tower's is meant
    if (resizes_both and (crop is not True or crops_square)) or (crop is False and not edges):
        return "squash"
    raise ValueError(
        f"the image processor's size {edges}, crop_size {crop_edges}, do_center_crop {crop!r} don't give images "
        f"of {size} pixels as we make them (shortest edge and center crop, or both edges at once)"
    )


def _parse_interpolation(name: str) -> Interpolation:
    """Our name of open_clip's interpolation; raises ValueError for any other than bicubic and bilinear."""
    interpolations: dict[str, Interpolation] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    if name not in interpolations:
        raise ValueError(
            f"preprocess_cfg: interpolation {name!r} is not supported; supported are {sorted(interpolations)}"
        )
    return interpolations[name]


def to_transformers(preprocessing: ImagePreprocessing) -> dict[str, Any]:
    """The config of an image processor of transformers that does what our preprocessing does.

    Args:
        preprocessing: Our config.

    Returns:
        The content of a preprocessor_config.json: of CLIP's processor for "shortest", of SigLIP's for "squash".
        `from_transformers` is the inverse.
    """
    size, is_shortest = preprocessing.size, preprocessing.resize_mode == "shortest"
    square = {"height": size, "width": size}
    shape = {"size": {"shortest_edge": size}, "crop_size": square} if is_shortest else {"size": square}
    return {
        "image_processor_type": "CLIPImageProcessor" if is_shortest else "SiglipImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        **shape,
        "resample": {"bicubic": 3, "bilinear": 2}[preprocessing.interpolation],
        "do_center_crop": is_shortest,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }
