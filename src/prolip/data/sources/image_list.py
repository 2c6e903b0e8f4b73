"""A list of picture files as a source, for data sets that name them in a table or an index of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prolip.data.sample import Sample
from prolip.data.source import SingleChunkSource, compute_fingerprint, require_index
from prolip.data.sources.columns import require_image_file


class ImageList(SingleChunkSource):
    """Picture files in the order given, without captions; their paths are their keys. path: of what names them."""

    def __init__(self, path: Path, pictures: Sequence[Path]) -> None:
        self.path = path
        self.pictures = tuple(pictures)

    def __len__(self) -> int:
        return len(self.pictures)

    def read(self, index: int) -> Sample:
        require_index(index, len(self))
        picture = self.pictures[index]
        return Sample(str(picture), str(picture), require_image_file(picture, str(picture)), ())

    def fingerprint(self) -> str:
        return compute_fingerprint("pictures", *(ascii(str(picture)) for picture in self.pictures))
