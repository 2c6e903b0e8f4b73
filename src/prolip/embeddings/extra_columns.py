"""Extra columns: what came along with samples, as typed columns of a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from prolip.embeddings.sample_metadata import Facts

OWN = ("id", "number", "modality", "mean", "log_var", "uncertainty", "caption", "path", "url", "pixels")
"""Columns that every table of embeddings has; what came along under such a name gets a line behind it: `id_`."""
WHOLE = range(-(2**63), 2**63)


def values_of(facts: Facts) -> dict[str, Any]:
    """What is carried through of a sample, by column. The fields of a JSON file are columns, but for `url`, which has
    one. Lists and objects become JSON texts."""
    found: dict[str, Any] = {}
    for name, value in facts.extra.items():
        for column, one in value.items() if isinstance(value, dict) else ((name, value),):
            if one is not None and column != "url":
                found[free_name(utf8(column), {*OWN, *found})] = one
    return found


def free_name(column: str, taken: Collection[str]) -> str:
    """A column's own name, with as many lines behind it as it takes to be no other's."""
    while column in taken:
        column += "_"
    return column


def utf8(text: str) -> str:
    """Names may be bytes of any kind, and JSON can spell half a character; Arrow's texts are UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def address_of(facts: Facts) -> str | None:
    """The address that a sample was fetched from, where it tells one."""
    found = [facts.extra, *(value for value in facts.extra.values() if isinstance(value, dict))]
    return next((utf8(told["url"]) for told in found if isinstance(told.get("url"), str)), None)


def kinds_of(samples: Iterable[Facts]) -> dict[str, str]:
    """The Arrow type of each extra column, seen on some samples: bool, int64, double or string. What is the caption of
    all of them is no extra column."""
    seen: dict[str, set[str]] = {}
    told: set[str] = set()  # columns that tell something else than the caption
    for facts in samples:
        for name, value in values_of(facts).items():
            seen.setdefault(name, set()).add(_kind(value))
            if not _is_caption(value, facts.captions):
                told.add(name)
    return {name: _widest(seen[name]) for name in sorted(told)}


def count_unknown(columns: Collection[str], facts: Facts, misfits: Counter[str]) -> None:
    """What came along under a name that no sample had that was looked at first is left out, and counted."""
    for name, value in values_of(facts).items():
        if name not in columns and not _is_caption(value, facts.captions):
            misfits[name] += 1


def cells(name: str, kind: str, rows: Sequence[Mapping[str, Any]], misfits: Counter[str]) -> list[Any]:
    """A column of what `values_of` gave. What isn't there is None; so is what isn't of its type, and is counted."""
    return [None if name not in row else _cell(name, kind, row[name], misfits) for row in rows]


def _is_caption(value: object, captions: Sequence[str]) -> bool:
    return isinstance(value, str) and value.strip() in captions


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and value in WHOLE:
        return "int64"
    return "double" if isinstance(value, float) else "string"


def _widest(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"int64", "double"} else "string"


def _cell(name: str, kind: str, value: Any, misfits: Counter[str]) -> Any:
    own = _kind(value)
    if kind == "string":
        text = value if isinstance(value, str) else json.dumps(value)
        return utf8(text)
    if own == kind or (kind, own) == ("double", "int64"):
        return float(value) if kind == "double" else value
    misfits[name] += 1
    return None
