"""ViewSource: the samples of a source as views: parts of its images, or crops of its captions, drawn from a seed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal, cast

import numpy as np
import torch

from prolip.data.batch import decode_image
from prolip.data.order import derive_seed
from prolip.data.sample import Sample
from prolip.data.source import FileBacked, Source, compute_fingerprint
from prolip.preprocessing.image_views import Color, ImageViews, ViewKind, draw_view_kind, make_image_view
from prolip.preprocessing.text_cropping import crop_text

ADDRESS = re.compile(r"view:(?P<kind>part|crops)@(?P<seed>\d{1,18}):(?P<data>.+)", re.DOTALL)
"""An address such as "view:part@1:photos": a part of each image; "crops": a crop of each caption."""
ViewOf = Literal["part", "crops"]
COLOR: Color = (124, 116, 104)
"""What fills hidden regions: the mean color of ImageNet's photographs."""
PARTS = ImageViews(crop_fraction=0.5, mask_fraction=0.5)
"""Half of the parts are crops, the others lose a box or all but some patches."""


class ViewSource:
    """A view of every sample of a source.

    Args:
        source: The samples.
        kind: part: a crop of the image, or the image without a box or with some patches only. crops: a crop of each
            caption (`crop_text`).
        seed: A view depends on it and on the index of its sample alone.
        parts: Sizes of the parts.
        shown: What every part is; None: it is drawn.
    """

    def __init__(
        self,
        source: Source,
        kind: ViewOf,
        seed: int,
        parts: ImageViews = PARTS,
        *,
        shown: ViewKind | None = None,
    ) -> None:
        self._source, self._kind, self._seed, self._parts = source, kind, seed, parts
        self._shown = shown

    @property
    def name(self) -> str:
        """Address of the view."""
        return format_view(self._kind, self._seed, self._source.name)

    @property
    def chunks(self) -> np.ndarray:
        """Those of the source."""
        return self._source.chunks

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> Sample:
        """Read a sample and draw its view.

        Args:
            index: Index of the sample.

        Returns:
            The sample, with another image or other captions.

        Raises:
            BadSampleError: The sample can't be used.
        """
        sample = self._source.read(index)
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "view", self._kind, index))
        if self._kind == "crops":
            return replace(sample, captions=tuple(crop_text(text, generator) for text in sample.captions))
        shown = self._shown or draw_view_kind(self._parts, generator)
        image = make_image_view(decode_image(sample), shown, self._parts, COLOR, generator)
        return replace(sample, image=image)

    def fingerprint(self) -> str:
        """Digest of the source's fingerprint and of what determines the views."""
        shown = () if self._shown is None else (self._shown,)
        return compute_fingerprint(
            "view", self._source.fingerprint(), self._kind, self._seed, self._parts, *shown
        )

    def files(self) -> list[object]:
        """Files of the source, by which a changed source is noticed."""
        return list(self._source.files()) if isinstance(self._source, FileBacked) else []


def format_view(kind: ViewOf, seed: int, data: str) -> str:
    """The address of a view: the inverse of `parse_view`.

    Args:
        kind: Kind of the view.
        seed: Its seed.
        data: Address of the data.

    Returns:
        The address.
    """
    return f"view:{kind}@{seed}:{data}"


def parse_view(address: str) -> tuple[ViewOf, int, str] | None:
    """Parse the address of a view.

    Args:
        address: Any address of data.

    Returns:
        Kind, seed and address of the data; None if it isn't a view.
    """
    match = ADDRESS.fullmatch(address)
    return None if match is None else (cast(ViewOf, match["kind"]), int(match["seed"]), match["data"])
