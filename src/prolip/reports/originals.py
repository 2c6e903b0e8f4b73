"""Images of embedded samples, read again from their own files or from the data set."""

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
"""Shown in place of an image that can't be read."""
READ_ERRORS = (ValueError, OSError, IndexError)
"""What `OriginalImages.read` raises for an image that can't be read."""


class OriginalImages:
    """Reads the images of embedded samples.

    The data set is opened at the first use; if that fails, each image of it raises the same error.

    Args:
        embeddings: Embeddings of the samples; their header names the data set that was embedded.
    """

    def __init__(self, embeddings: EmbeddingDataset) -> None:
        self._embeddings = embeddings

    def read(self, row: Mapping[str, Any]) -> Image.Image:
        """Read the image of a row.

        Args:
            row: Row of the embeddings, with `path` (None: read from the data set) and `index` of the sample.

        Returns:
            The image.

        Raises:
            ValueError, OSError, IndexError: The image can't be read (`READ_ERRORS`).
        """
        if row["path"] is not None:
            return read_image(row["path"])
        if isinstance(self._source, Exception):
            raise self._source
        return read_sample_image(self._source, row["index"])

    @cached_property
    def _source(self) -> Source | Exception:
        """The embedded data set; if it can't be opened, the error, so that opening is tried only once."""
        try:
            return self._embeddings.open_source()
        except READ_ERRORS as error:
            return error
