"""Extra columns of an embedding data set: metadata of samples as typed columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from prolip.embeddings.sample_metadata import SampleMetadata

BUILTIN_COLUMNS = (
    "id",
    "index",
    "modality",
    "mean",
    "log_var",
    "uncertainty",
    "caption",
    "path",
    "url",
    "pixel_digest",
    "metadata",
)
"""Columns of every data set. Metadata with such a name gets an underscore appended: `id_`."""
INT64_RANGE = range(-(2**63), 2**63)
"""Integers outside of it are stored as strings."""


def flatten_extra(metadata: SampleMetadata) -> dict[str, object]:
    """Values of a sample's extra metadata by column, with names that no other column has.

    The fields of a JSON document become columns, except `url`, which has a builtin one. Null values are omitted.

    Args:
        metadata: Metadata of the sample.

    Returns:
        Value by column.
    """
    values: dict[str, object] = {}
    for name, value in metadata.extra.items():
        for column, column_value in value.items() if isinstance(value, dict) else ((name, value),):
            if column_value is not None and column != "url":
                values[make_unique_column_name(to_utf8(column), {*BUILTIN_COLUMNS, *values})] = column_value
    return values


def make_unique_column_name(column: str, other_columns: Collection[str]) -> str:
    """Append as many underscores to the name of a column as are needed to make it unique.

    Args:
        column: Preferred name.
        other_columns: Names that it must not have.

    Returns:
        The name.
    """
    while column in other_columns:
        column += "_"
    return column


def to_utf8(text: str) -> str:
    """Escape what is not valid UTF-8 in a text.

    File names may hold any bytes, and JSON may hold lone surrogates; Arrow strings are UTF-8.

    Args:
        text: Any string.

    Returns:
        The text, with backslash escapes.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def find_url(metadata: SampleMetadata) -> str | None:
    """Find the URL that a sample was downloaded from.

    Args:
        metadata: Metadata of the sample.

    Returns:
        The URL; None if the metadata has none.
    """
    mappings = [metadata.extra, *(value for value in metadata.extra.values() if isinstance(value, dict))]
    return next((to_utf8(values["url"]) for values in mappings if isinstance(values.get("url"), str)), None)


def infer_types(samples: Iterable[SampleMetadata]) -> dict[str, str]:
    """Infer the types of the extra columns from some samples.

    A column that only repeats captions is omitted.

    Args:
        samples: Metadata of some samples.

    Returns:
        Arrow type by column: bool, int64, double or string.
    """
    types_by_column: dict[str, set[str]] = {}
    informative_columns: set[str] = set()  # those that do not only repeat a caption
    for metadata in samples:
        for name, value in flatten_extra(metadata).items():
            types_by_column.setdefault(name, set()).add(_infer_type(value))
            if not _is_caption(value, metadata.captions):
                informative_columns.add(name)
    return {name: _merge_types(types_by_column[name]) for name in sorted(informative_columns)}


def count_unknown_columns(
    columns: Collection[str], metadata: SampleMetadata, invalid_counts: Counter[str]
) -> None:
    """Count the values of a sample that are not stored, because `infer_types` has not seen their columns.

    Args:
        columns: Extra columns of the data set.
        metadata: Metadata of the sample.
        invalid_counts: Counter by column, updated. Values that repeat a caption don't count.
    """
    for name, value in flatten_extra(metadata).items():
        if name not in columns and not _is_caption(value, metadata.captions):
            invalid_counts[name] += 1


def build_column(
    name: str, arrow_type: str, rows: Sequence[Mapping[str, object]], invalid_counts: Counter[str]
) -> list[Any]:
    """Values of an extra column.

    Args:
        name: Name of the column.
        arrow_type: Its Arrow type.
        rows: What `flatten_extra` returned for each sample.
        invalid_counts: Counter by column, updated with the values of another type.

    Returns:
        A value per row; None where it is missing or of another type.
    """
    return [
        _convert_value(name, arrow_type, row[name], invalid_counts) if name in row else None for row in rows
    ]


def _is_caption(value: object, captions: Sequence[str]) -> bool:
    """Whether a value is one of the sample's captions, outer white space aside."""
    return isinstance(value, str) and value.strip() in captions


def _infer_type(value: object) -> str:
    """Arrow type that stores a value: bool, int64, double, or string for everything else."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and value in INT64_RANGE:
        return "int64"
    return "double" if isinstance(value, float) else "string"


def _merge_types(types: set[str]) -> str:
    """Arrow type of a column whose values have these types; double holds integers, too, string anything."""
    if len(types) == 1:
        return next(iter(types))
    return "double" if types == {"int64", "double"} else "string"


def _convert_value(name: str, arrow_type: str, value: Any, invalid_counts: Counter[str]) -> Any:
    """Convert a value to the type of its column `name`; None, counted in `invalid_counts`, if it has another type.

    A string column takes any value, as JSON if it is no string; a double column also takes integers.
    """
    value_type = _infer_type(value)
    if arrow_type == "string":
        text = value if isinstance(value, str) else json.dumps(value)
        return to_utf8(text)
    if value_type == arrow_type or (arrow_type, value_type) == ("double", "int64"):
        return float(value) if arrow_type == "double" else value
    invalid_counts[name] += 1
    return None
