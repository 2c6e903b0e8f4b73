"""Known ambiguity of images: `ImageAnnotation`s from a source, a json member, or the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prolip.data.source import ImageAnnotation

UNNAMED_VEIL = "unnamed"
"""Veil of an image of known ambiguity whose metadata name none."""


def describe_image(annotation: ImageAnnotation) -> dict[str, object]:
    """Describe an image in the json of its sample.

    Args:
        annotation: What is known of it.

    Returns:
        veil, image_log_ambiguity (nats), veil_kind, visible_objects, scene_name, sequence and step; without what is
        unknown. `parse_image_annotation` reads it.
    """
    fields = {
        "veil": annotation.veil,
        "image_log_ambiguity": round(annotation.log_ambiguity, 6),
        "veil_kind": annotation.kind,
        "visible_objects": annotation.visible_objects,
        "scene_name": annotation.scene,
        "sequence": annotation.sequence,
        "step": annotation.step,
    }
    return {name: value for name, value in fields.items() if value is not None}


def parse_image_annotation(extra: Mapping[str, object]) -> ImageAnnotation | None:
    """Read what is known of an image.

    Args:
        extra: `Sample.extra` or its metadata: a json member with the fields of `describe_image`, or columns of a table
            with their names.

    Returns:
        The annotation; None if the ambiguity of the image is not known.
    """
    record = extra.get("json")
    fields = record if isinstance(record, Mapping) else extra
    log_ambiguity = _parse_float(fields.get("image_log_ambiguity"))
    if log_ambiguity is None:
        return None
    return ImageAnnotation(
        _parse_text(fields.get("veil")) or UNNAMED_VEIL,
        log_ambiguity,
        kind=_parse_text(fields.get("veil_kind")),
        visible_objects=_parse_int(fields.get("visible_objects")),
        scene=_parse_text(fields.get("scene_name")),
        sequence=_parse_text(fields.get("sequence")),
        step=_parse_int(fields.get("step")),
    )


def _parse_float(value: object) -> float | None:
    """A finite number; None if it is none."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse_int(value: object) -> int | None:
    """A whole number; None if it is none."""
    number = _parse_float(value)
    return None if number is None or not number.is_integer() else int(number)


def _parse_text(value: object) -> str | None:
    """A text that is not empty, or a number as one; None if it is neither."""
    return str(value) if isinstance(value, str | int | float) and str(value) else None
