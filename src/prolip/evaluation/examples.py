"""Selects examples for the uncertainty report: most and least uncertain samples, corners."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import Tensor

from prolip.evaluation.captions import EmbeddedPairs
from prolip.evaluation.metrics.correlation import ranks
from prolip.measures.public import csd

LONG_QUANTILE = 0.9
"""Captions at least as long as this quantile of lengths count as long."""


def select_examples(pairs: EmbeddedPairs, num_examples: int) -> dict[str, Any]:
    """Select the examples that the uncertainty report shows.

    Args:
        pairs: Images and captions, embedded.
        num_examples: Largest length of each list.

    Returns:
        certain_images, uncertain_images, certain_captions, uncertain_captions, long_uncertain_captions: lists of
        entries;
        corners: {"certain image, uncertain text" and so on: list of entries}, by the sum of both ranks.
        An entry is {image (row), index (in the source), key, caption, length (in tokens), image_uncertainty,
        text_uncertainty, text_rank (fraction of captions that are less uncertain), csd}. A list of images holds no
        image twice, a list of captions no text twice, a corner neither.
    """
    return _Selector(pairs, num_examples).select()


class _Selector:
    """Selects captions of embedded pairs by uncertainty and rank.

    image:                 Uncertainty of each image, float64 (N,).
    text:                  Uncertainty of each caption, float64 (T,).
    image_rank, text_rank: Rank of each caption among all captions by the uncertainty of its image and by its own, (T,).
    """

    def __init__(self, pairs: EmbeddedPairs, num_examples: int) -> None:
        self.pairs, self.num_examples = pairs, num_examples
        self.image_index = pairs.captions.image_index
        self.image, self.text = pairs.images.uncertainty.double(), pairs.texts.uncertainty.double()
        self.image_rank, self.text_rank = ranks(self.image[self.image_index]), ranks(self.text)

    def select(self) -> dict[str, Any]:
        """The lists that `select_examples` returns."""
        uncertainty_of_own_image = self.image[self.image_index]  # (T,)
        lengths = self.pairs.captions.lengths
        is_long = lengths >= float(np.quantile(lengths.numpy(), LONG_QUANTILE))
        corners = {
            f"{_describe(image_sign)} image, {_describe(text_sign)} text": self._select(
                -(image_sign * self.image_rank + text_sign * self.text_rank), "both"
            )
            for image_sign in (-1, 1)
            for text_sign in (-1, 1)
        }
        return {
            "certain_images": self._select(uncertainty_of_own_image, "image"),
            "uncertain_images": self._select(-uncertainty_of_own_image, "image"),
            "certain_captions": self._select(self.text, "caption"),
            "uncertain_captions": self._select(-self.text, "caption"),
            "long_uncertain_captions": self._select(-self.text, "caption", is_long),
            "corners": corners,
        }

    def _select(
        self, key: Tensor, unique: Literal["image", "caption", "both"], mask: Tensor | None = None
    ) -> list[dict[str, Any]]:
        """Entries of the captions with the smallest keys, at most `num_examples`.

        key:    (T,), one value per caption.
        unique: what no two entries have in common: the image, the text of the caption, or either.
        mask:   bool (T,), the captions that may be selected; None: all.
        """
        seen: set[object] = set()
        selected: list[dict[str, Any]] = []
        order = key.argsort(stable=True)
        if mask is not None:
            order = order[mask[order]]
        for index in order.tolist():
            identities = {"image": int(self.image_index[index]), "caption": self.pairs.captions.texts[index]}
            new = set(identities.values()) if unique == "both" else {identities[unique]}
            if seen.isdisjoint(new):
                seen |= new
                selected.append(self._make_entry(index))
            if len(selected) == self.num_examples:
                break
        return selected

    def _make_entry(self, index: int) -> dict[str, Any]:
        """The entry of `select_examples` for the caption at an index."""
        row = int(self.image_index[index])
        return {
            "image": row,
            "index": int(self.pairs.indices[row]),
            "key": self.pairs.keys[row],
            "caption": self.pairs.captions.texts[index],
            "length": int(self.pairs.captions.lengths[index]),
            "image_uncertainty": float(self.image[row]),
            "text_uncertainty": float(self.text[index]),
            "text_rank": float((self.text_rank[index] - 1) / max(1, len(self.text) - 1)),
            "csd": float(csd(self.pairs.images[row], self.pairs.texts[index])),
        }


def _describe(sign: int) -> str:
    return "uncertain" if sign > 0 else "certain"
