"""`prolip cache`: list, shrink or clear the embeddings that evaluations have cached."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prolip.cli.options import Json
from prolip.console import format_size

if TYPE_CHECKING:
    from prolip.embeddings.cache import CacheEntry, EmbeddingCache


def cache(
    cache: str | None = None, max_size: str | None = None, clear: bool = False, as_json: Json = False
) -> None:
    """List the embeddings that evaluations have cached, or remove some.

    Example: prolip cache --max-size 5GB

    Evaluations keep the cache below PROLIP_CACHE_SIZE (20 GB): the least recently used data sets are removed when a
    new one was written.

    Args:
        cache: Folder of the cache. None: the user's cache (~/.cache/prolip/embeddings).
        max_size: Remove the least recently used data sets until the cache is not larger than this: 5GB, 500MB.
        clear: Remove all data sets. (Those that a running evaluation uses stay.)
    """
    from prolip.embeddings.cache import EmbeddingCache, parse_size
    from prolip.files import get_cache_folder

    if clear and max_size is not None:
        raise ValueError("--clear removes all data sets: leave out --max-size")
    folder = get_cache_folder("embeddings") if cache is None else Path(cache).expanduser()
    opened = EmbeddingCache(folder=folder)
    removed: list[CacheEntry] | None = None
    if clear or max_size is not None:
        removed = opened.shrink(0 if max_size is None else parse_size(max_size, "--max-size"))
    _print_cache(opened, removed, as_json)


def _print_cache(cache: EmbeddingCache, removed: list[CacheEntry] | None, as_json: bool) -> None:
    """Print what is in the cache, and what was removed; None: nothing was to be removed."""
    from prolip.console import make_table, print_tables
    from prolip.embeddings.cache import get_max_size

    entries = cache.list_entries()
    if as_json:
        content = {
            "cache": str(cache.folder),
            "max_size": get_max_size(),
            "size": sum(entry.size for entry in entries),
            "data_sets": [_describe_entry(entry) for entry in entries],
            "removed": [_describe_entry(entry) for entry in removed or []],
        }
        print(json.dumps(content, indent=2))
        return
    if removed is not None:
        print(f"removed {len(removed):,} data sets, {_format_size(removed)}")
    if entries:
        rows = [
            (
                entry.folder.parent.name,
                _describe_data(entry),
                f"{datetime.fromtimestamp(entry.last_used):%Y-%m-%d %H:%M}"
                + (" (in use)" if entry.in_use else ""),
                f"{entry.size / 1e6:,.1f}",
            )
            for entry in entries
        ]
        print_tables([make_table(None, ("model", "data", "last used"), ("MB",), rows)])
    limit = f"{get_max_size() / 1e9:g} GB"
    print(
        f"{cache.folder}: {len(entries):,} data sets, {_format_size(entries)}; evaluations keep it below {limit}"
    )


def _format_size(entries: list[CacheEntry]) -> str:
    """The size of data sets, with a unit."""
    return format_size(sum(entry.size for entry in entries))


def _describe_data(entry: CacheEntry) -> str:
    """What was embedded, in words."""
    if entry.header is None:
        return f"{entry.folder.name} (of another version)"
    return entry.header.data + ("" if entry.header.transform is None else f", {entry.header.transform}")


def _describe_entry(entry: CacheEntry) -> dict[str, str | int | float | bool | None]:
    """A data set as JSON."""
    header = entry.header
    return {
        "folder": str(entry.folder),
        "size": entry.size,
        "last_used": entry.last_used,
        "in_use": entry.in_use,
        "model": None if header is None else header.model,
        "data": None if header is None else header.data,
        "transform": None if header is None else header.transform,
    }
