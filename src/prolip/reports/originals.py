"""Pictures of embedded samples, read again: from their own files, or from the data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from PIL import Image

from prolip.data.source import Source
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.preprocessing.images import read_image
from prolip.reports.sheets import read_sample_image

PLACEHOLDER = Image.new("RGB", (64, 64), "#c8c8c8")
"""Shown for a picture that can't be read again."""
READ_ERRORS = (ValueError, OSError, IndexError)
"""Why a picture can't be."""


class OriginalImages:
    """The data is opened once, when it is needed; if it can't be, every picture of it says why."""

    def __init__(self, embeddings: EmbeddingDataset) -> None:
        self._embeddings = embeddings

    def read(self, row: Mapping[str, Any]) -> Image.Image:
        """row: with `path` and `number`. One of READ_ERRORS if it can't be read."""
        if row["path"] is not None:
            return read_image(row["path"])
        if isinstance(self._source, Exception):
            raise self._source
        return read_sample_image(self._source, row["number"])

    @cached_property
    def _source(self) -> Source | Exception:
        try:
            return self._embeddings.open_source()
        except READ_ERRORS as error:
            return error
