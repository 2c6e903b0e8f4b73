"""Images whose class is in a field: a JSON field or a file of a tar, or a column of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prolip.data.open import open_data
from prolip.data.sample import BadSampleError
from prolip.data.source import Source
from prolip.data.sources.labeled import DEFAULT_TEMPLATES, LabeledData, check_templates, read_label


def open_labeled_fields(
    spec: str | Path,
    label: str,
    *,
    class_names: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
) -> LabeledData:
    """Open images of any format with the class of each in a field.

    Args:
        spec: data as `open_data` takes it: shards, a table.
        label: "json:class", "txt" or "cls" of a tar, or a column of a table. It holds the name of the class, or its
            number, counted from 0.
        class_names: names of the classes by number; None: the names that occur, sorted, for which all samples are read.
        templates: templates of prompts; None: "a photo of a {c}.".

    Returns:
        The data.

    Raises:
        FileNotFoundError: If there is no such data.
        ValueError: If labels are missing, or are numbers without names.
    """
    source = open_data(spec, captions=())
    names = _collect_names(source, label) if class_names is None else class_names
    return LabeledData(
        source=source,
        class_names=tuple(names),
        templates=check_templates(DEFAULT_TEMPLATES if templates is None else templates),
        label_field=label,
    )


def _collect_names(source: Source, field: str) -> list[str]:
    """The class names that occur in a field, sorted; ValueError if there is none, or one is a number."""
    names: set[str] = set()
    for index in range(len(source)):
        try:
            sample = source.read(index)
        except BadSampleError:  # evaluators count it
            continue
        value = read_label(sample.extra, field)
        if isinstance(value, int):
            raise ValueError(
                f"{source.name}: the label {field!r} of {sample.key} is the number {value}, so class names are needed, "
                "in the order of the numbers (class_names, --classes)"
            )
        if value is not None:
            names.add(value)
    if not names:
        raise ValueError(
            f"{source.name}: no sample has a class name in {field!r}. Fields are files of a tar (txt), JSON fields "
            "(json:class), or columns of a table"
        )
    return sorted(names)
