"""Which samples the uncertainty report shows: the most and the least uncertain, the corners, long captions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import Tensor

from prolip.evaluation.captions import EmbeddedPairs
from prolip.evaluation.metrics.correlation import ranks
from prolip.measures.public import csd

LONG = 0.9
"""The quantile of lengths from which on a caption counts as long."""


class Samples:
    """The samples that the report shows."""

    def __init__(self, pairs: EmbeddedPairs, shown: int) -> None:
        self.pairs, self.shown = pairs, shown
        self.owner = pairs.captions.image_index
        self.image, self.text = pairs.images.uncertainty.double(), pairs.texts.uncertainty.double()
        self.image_rank, self.text_rank = ranks(self.image[self.owner]), ranks(self.text)

    def lists(self) -> dict[str, Any]:
        own = self.image[self.owner]
        lengths = self.pairs.captions.lengths
        long = lengths >= float(np.quantile(lengths.numpy(), LONG))
        corners = {
            f"{_word(sign)} image, {_word(other)} text": self._pick(
                -(sign * self.image_rank + other * self.text_rank), "both"
            )
            for sign in (-1, 1)
            for other in (-1, 1)
        }
        return {
            "certain_images": self._pick(own, "image"),
            "uncertain_images": self._pick(-own, "image"),
            "certain_captions": self._pick(self.text, "caption"),
            "uncertain_captions": self._pick(-self.text, "caption"),
            "long_uncertain_captions": self._pick(-self.text, "caption", long),
            "corners": corners,
        }

    def _pick(
        self, key: Tensor, once: Literal["image", "caption", "both"], among: Tensor | None = None
    ) -> list[dict[str, Any]]:
        """The captions with the smallest keys; each image, each text, or each of both appears once."""
        seen: set[object] = set()
        picked: list[dict[str, Any]] = []
        order = key.argsort(stable=True)
        for number in (order if among is None else order[among[order]]).tolist():
            names = {"image": int(self.owner[number]), "caption": self.pairs.captions.texts[number]}
            new = set(names.values()) if once == "both" else {names[once]}
            if seen.isdisjoint(new):
                seen |= new
                picked.append(self._sample(number))
            if len(picked) == self.shown:
                break
        return picked

    def _sample(self, number: int) -> dict[str, Any]:
        row = int(self.owner[number])
        return {
            "image": row,
            "number": int(self.pairs.indices[row]),
            "key": self.pairs.keys[row],
            "caption": self.pairs.captions.texts[number],
            "length": int(self.pairs.captions.lengths[number]),
            "image_uncertainty": float(self.image[row]),
            "text_uncertainty": float(self.text[number]),
            "text_rank": float((self.text_rank[number] - 1) / max(1, len(self.text) - 1)),
            "csd": float(csd(self.pairs.images[row], self.pairs.texts[number])),
        }


def _word(sign: int) -> str:
    return "uncertain" if sign > 0 else "certain"
