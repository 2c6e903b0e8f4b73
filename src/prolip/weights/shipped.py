"""Models that come with the package: small, and there without a hub."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "shipped"


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) if FOLDER.is_dir() else []


def folder(name: str) -> Path | None:
    """Where a model of this name lies; None: none is called so."""
    return FOLDER / name if name in names() else None
